"""A small transformer decoder that writes programs."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["Decoder", "Samples"]

_HEADS = 4


class Samples(NamedTuple):
    """Programs that a model has written, B of them with up to T tokens.

    Attributes:
        tokens: int64 (B, T); 0 after the end.
        log_probabilities: float32 (B, T), of each token; 0 after the end.
        mask: float32 (B, T), 1 up to the end.
    """

    tokens: Tensor
    log_probabilities: Tensor
    mask: Tensor


class Block(nn.Module):
    """Attention and a feed-forward network, each after a normalization."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_attention, self.norm_feed = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.attended = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, states: Tensor, cache: tuple[Tensor, Tensor] | None = None, begin: int = 0) -> Tensor:
        """Return the next states.

        Args:
            states: float32 (B, T, width).
            cache: Keys and values of earlier positions, to which those of ``states`` are added; None without earlier ones.
            begin: Position of the first state.
        """
        batch, length, width = states.shape
        parts = self.attend(self.norm_attention(states)).view(batch, length, 3, _HEADS, width // _HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        if cache is not None:
            for kept, new in zip(cache, (key, value), strict=True):
                kept[:, :, begin : begin + length] = new
            key, value = (kept[:, :, : begin + length] for kept in cache)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=length > 1)
        states = states + self.attended(attended.transpose(1, 2).reshape(batch, length, width))
        return states + self.feed(self.norm_feed(states))


class Decoder(nn.Module):
    """A transformer decoder.

    Args:
        vocabulary: Number of tokens.
        outputs: Number of tokens that it can write, the first ones.
        length: Maximum number of tokens of a prompt and a program.
        width: Size of states, a multiple of 4.
        layers: Number of blocks.
    """

    def __init__(self, vocabulary: int, outputs: int, length: int, *, width: int, layers: int) -> None:
        super().__init__()
        self.width = width
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.outputs = nn.LayerNorm(width), nn.Linear(width, outputs)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, 0, 0.02 if "blocks" in name else 0.05)
        for block in self.blocks:
            for layer in (block.attended, block.feed[2]):
                nn.init.normal_(layer.weight, 0, 0.02 / math.sqrt(2 * layers))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of the token after each: float32 (B, T, outputs) for int64 (B, T)."""
        states = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            states = block(states)
        return self.outputs(self.norm(states))

    @torch.no_grad()
    def sample(self, prompts: Tensor, most: int, *, end: int, greedy: bool = False) -> Samples:
        """Write programs.

        Args:
            prompts: int64 (B, P).
            most: Maximum number of tokens of a program.
            end: Token that ends a program.
            greedy: Whether to write the most probable tokens instead of random ones.
        """
        batch, begin = prompts.shape
        shape = (batch, _HEADS, begin + most, self.width // _HEADS)
        device = prompts.device
        caches = [(torch.empty(shape, device=device), torch.empty(shape, device=device)) for _ in self.blocks]
        written = torch.zeros(batch, most, dtype=torch.long, device=device)
        log_probabilities, mask = torch.zeros(batch, most, device=device), torch.zeros(batch, most, device=device)
        rows, tokens, position = torch.arange(batch, device=device), prompts, 0
        goes_on = torch.ones(batch, dtype=torch.bool, device=device)
        for step in range(most):
            states = self.tokens(tokens) + self.positions.weight[position : position + tokens.shape[1]]
            for block, cache in zip(self.blocks, caches, strict=True):
                states = block(states, cache, position)
            position += tokens.shape[1]
            scores = functional.log_softmax(self.outputs(self.norm(states[:, -1])), -1)
            chosen = scores.argmax(-1) if greedy else torch.multinomial(scores.exp(), 1)[:, 0]
            own = rows[goes_on]
            written[own, step], mask[own, step] = chosen[goes_on], 1
            log_probabilities[own, step] = scores.gather(1, chosen[:, None])[goes_on, 0]
            goes_on &= chosen != end
            left = int(goes_on.sum())
            if not left:
                break
            if left < 0.75 * len(rows):
                # Those that have ended were carried along, since leaving them out copies the caches of the others.
                rows, chosen = rows[goes_on], chosen[goes_on]
                caches = [(keys[goes_on], values[goes_on]) for keys, values in caches]
                goes_on = goes_on[goes_on]
            tokens = chosen[:, None]
        return Samples(written, log_probabilities, mask)
