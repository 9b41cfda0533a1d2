"""Train a small transformer to write programs, with rewards from hidden tests only.

The model begins with random weights. A warm start shows it programs for all single operations, and for a few chains of each
length; then it learns from rewards: GRPO, and imitation of a buffer of programs that passed. Nothing constrains what it
writes but its vocabulary.

Run it with ``pip install torch`` and ``python examples/learn_to_code/train.py``; ``--help`` lists the settings. It takes 11
minutes on two cores, and writes a log, which ``plot.py`` draws, and the model, which ``serve.py`` serves.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import torch
from language import (
    CLEAN_TOKENS,
    END,
    FORGERIES,
    FORGERY_PIECES,
    OPERATIONS,
    PAD,
    PROGRAM_TOKENS,
    VOCABULARY,
    Chain,
    demonstrate_operation,
    encode,
    encode_prompt,
    make_chains,
    program,
    solution,
)
from model import Decoder, Samples
from rewards import GradedReward, Reward, Score, Truth, UsualReward
from torch import Tensor
from torch.nn import functional

HELD_OUT = 60
"""Number of tasks of each length that are never trained on."""
DEMONSTRATED = {2: 4}
"""Number of chains of each length that the warm start shows; 12 of the others."""
IMITATIONS = 8
"""Updates of the imitation for each of the policy gradient."""

_SMOOTHING = 0.05
_SMOOTHING_OF_BUFFER = 0.02
"""Less: a program of 30 pieces, each of which is right with 95 %, is right with 21 %."""

REWARDS = ("graded", "agreement", "isolated", "faithful", "exit", "exec")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a run.

    Attributes:
        seed: Seed of the tasks, the weights and the samples.
        minutes: Time to learn from rewards.
        steps: Maximum number of updates.
        reward: ``graded`` for verdicts in the default mode, the name of another mode, or a reward of the usual kind: ``exit``
            or ``exec``.
        forgeries: Fraction of the programs of the warm start that are forgeries; the model writes no pieces of them if 0.
        demonstrations: Whether the warm start shows chains, not only single operations.
        buffer: Whether to imitate programs that passed, beside the warm start.
        provider: Provider of the sandboxes.
        operations: Maximum length of chains.
        width: Size of the model's states.
        layers: Number of the model's layers.
        tokens: Maximum length of programs.
        tasks: Maximum number of tasks of each length to train on.
        warm_steps: Updates of the warm start.
        prompts: Tasks of an update.
        samples: Programs per task.
        learning_rate: Learning rate; it falls to a tenth.
        entropy: Weight of the entropy bonus.
        imitated: Programs of an update of the imitation.
        evaluate_every: Updates from one evaluation to the next; none if 0.
        compare_every: Updates from one comparison of claimed and true success to the next; none if 0.
        device: Device of the model: ``cpu`` or ``cuda``.
    """

    seed: int = 1
    minutes: float = 10.0
    steps: int = 100_000
    reward: str = "graded"
    forgeries: float = 0.0
    demonstrations: bool = True
    buffer: bool = True
    provider: str = "auto"
    operations: int = 3
    width: int = 112
    layers: int = 3
    tokens: int = 56
    tasks: int = 1500
    warm_steps: int = 130
    prompts: int = 128
    samples: int = 4
    learning_rate: float = 5e-4
    entropy: float = 0.003
    imitated: int = 96
    evaluate_every: int = 20
    compare_every: int = 0
    device: str = "cpu"


class Buffer:
    """The shortest programs of each task that passed, three of each, from which samples are drawn evenly by length of task."""

    def __init__(self) -> None:
        self._programs: dict[int, dict[Chain, list[list[int]]]] = defaultdict(dict)

    def add(self, chain: Chain, tokens: list[int]) -> None:
        """Add a program that passed."""
        kept = self._programs[len(chain)].setdefault(chain, [])
        if tokens not in kept:
            kept.append(tokens)
            kept.sort(key=len)
            del kept[3:]

    def draw(self, chance: random.Random, count: int) -> list[tuple[Chain, list[int]]]:
        """Return programs; none if there are none yet."""
        drawn: list[tuple[Chain, list[int]]] = []
        for _ in range(count if self._programs else 0):
            by_chain = self._programs[chance.choice(list(self._programs))]
            chain = chance.choice(list(by_chain))
            drawn.append((chain, chance.choice(by_chain[chain])))
        return drawn


class Tasks:
    """Chains to train on, to evaluate with, and to show in the warm start."""

    def __init__(self, settings: Settings) -> None:
        chance = random.Random(settings.seed)
        self.singles: list[Chain] = [(name,) for name in OPERATIONS]
        self.held_out: dict[int, list[Chain]] = {}
        self.trained: dict[int, list[Chain]] = {1: self.singles}
        self.demonstrated: dict[int, list[Chain]] = {}
        for length in range(2, settings.operations + 1):
            chains = make_chains(length, HELD_OUT + settings.tasks, chance)
            self.held_out[length], self.trained[length] = chains[:HELD_OUT], chains[HELD_OUT:]
            shown = DEMONSTRATED.get(length, 12) if settings.demonstrations else 0
            self.demonstrated[length] = _with_all_operations(self.trained[length], shown)


def _with_all_operations(chains: Sequence[Chain], count: int) -> list[Chain]:
    """Return chains, each of which has as many operations as possible that those before it lack, or have elsewhere only."""
    chosen: list[Chain] = []
    seen: set[object] = set()
    for _ in range(count):
        left = (chain for chain in chains if chain not in chosen)
        chosen.append(max(left, key=lambda chain: len({*chain, *enumerate(chain)} - seen)))
        seen.update(chosen[-1], enumerate(chosen[-1]))
    return chosen


class Curriculum:
    """Chooses tasks: more of the lengths of which some programs pass, and fewer that are solved.

    Args:
        trained: Chains by length.
        chance: Source of randomness.
    """

    def __init__(self, trained: dict[int, list[Chain]], chance: random.Random) -> None:
        self._trained = trained
        self._chance = chance
        self._rates = dict.fromkeys(trained, 0.0)
        self._solved: dict[Chain, float] = {}

    def choose(self, count: int) -> list[Chain]:
        """Return chains to train on."""
        weights = [0.03 if length == 1 else rate * (1 - rate) + 0.15 for length, rate in self._rates.items()]
        chosen: list[Chain] = []
        while len(chosen) < count:
            (length,) = self._chance.choices(list(self._rates), weights)
            chain = self._chance.choice(self._trained[length])
            if self._solved.get(chain, 0.0) < 0.95 or self._chance.random() < 0.2:
                chosen.append(chain)
        return chosen

    def record(self, chains: Sequence[Chain], solved: Sequence[float]) -> None:
        """Record the fractions of the programs that passed."""
        self._solved.update(zip(chains, solved, strict=True))
        for length, before in self._rates.items():
            now = [rate for chain, rate in zip(chains, solved, strict=True) if len(chain) == length]
            if now:
                self._rates[length] = 0.9 * before + 0.1 * sum(now) / len(now)


class Batch(NamedTuple):
    """Programs that are being graded.

    Attributes:
        chains: The tasks.
        repeated: The task of each program.
        prompts: Tokens of their descriptions.
        written: Tokens of the programs.
        codes: The programs.
        grading: Their scores, and the seconds that they take.
        sampling_seconds: How long they took to write.
    """

    chains: list[Chain]
    repeated: list[Chain]
    prompts: Tensor
    written: Samples
    codes: list[str]
    grading: Future[tuple[list[Score], float]]
    sampling_seconds: float


class Learner:
    """A model and its updates.

    Args:
        settings: The settings.
        tasks: The tasks.
    """

    def __init__(self, settings: Settings, tasks: Tasks) -> None:
        self.settings = settings
        self.tasks = tasks
        self.chance = random.Random(settings.seed + 1)
        self._outputs = PROGRAM_TOKENS if settings.forgeries else CLEAN_TOKENS
        self._begin = settings.operations + 1
        size = {"width": settings.width, "layers": settings.layers}
        self.model = Decoder(len(VOCABULARY), self._outputs, self._begin + settings.tokens, **size).to(settings.device)
        self._optimizer = self._new_optimizer(1e-3, weight_decay=0.01)
        self.curriculum = Curriculum(tasks.trained, self.chance)
        self._buffer = Buffer()
        self._threads = ThreadPoolExecutor(1)
        self._next: Batch | None = None

    def close(self) -> None:
        """Wait for the programs that are being graded."""
        self._threads.shutdown()

    def warm_start(self, reward: Reward) -> None:
        """Imitate demonstrations, and keep the chains among them, as far as they earn the reward, in the buffer."""
        for step in range(self.settings.warm_steps):
            self._set_rate(1e-3 * min(1.0, (step + 1) / 50))
            self._imitate([self._demonstration() for _ in range(32)], _SMOOTHING)
        self._optimizer = self._new_optimizer(self.settings.learning_rate, weight_decay=0.0)
        shown = [(chain, encode(solution(chain))) for chains in self.tasks.demonstrated.values() for chain in chains]
        for (chain, row), score in zip(shown, reward([(chain, program(row)) for chain, row in shown]), strict=True):
            if score.solved:
                self._buffer.add(chain, row)

    def write(self, chains: Sequence[Chain], *, greedy: bool = False) -> tuple[Tensor, Samples]:
        """Write a program for each chain; return the prompts, too."""
        prompts = self._tensor([self._prompt(chain, anywhere=not greedy) for chain in chains])
        return prompts, self.model.sample(prompts, self.settings.tokens, end=END, greedy=greedy)

    def begin(self, reward: Reward) -> Batch:
        """Choose tasks, write programs for them, and begin to grade these."""
        began = time.perf_counter()
        chains = self.curriculum.choose(self.settings.prompts)
        repeated = [chain for chain in chains for _ in range(self.settings.samples)]
        prompts, written = self.write(repeated)
        codes = [program(row) for row in written.tokens.tolist()]
        sampling = time.perf_counter() - began
        grading = self._threads.submit(_timed, reward, list(zip(repeated, codes, strict=True)))
        return Batch(chains, repeated, prompts, written, codes, grading, sampling)

    def update(self, progress: float, reward: Reward) -> dict[str, Any]:
        """Update the model with programs; return a record of it.

        The programs of the next update are written first, and graded while the model learns: they are one update behind it.

        Args:
            progress: Fraction of the run that is over.
            reward: The reward.
        """
        began = time.perf_counter()
        self._set_rate(self.settings.learning_rate * (1 - 0.9 * progress))
        batch = self._next or self.begin(reward)
        scores, grading = batch.grading.result()
        self._next = self.begin(reward)
        solved = torch.tensor([float(score.solved) for score in scores]).view(-1, self.settings.samples)
        self.curriculum.record(batch.chains, solved.mean(1).tolist())
        # Half-right programs are worth a little, so that the first right ones are found.
        rewards = torch.tensor([0.8 * score.solved + 0.2 * score.fraction for score in scores]).view_as(solved)
        entropy = self._learn(batch.prompts, batch.written, rewards.to(self.settings.device))
        if self.settings.buffer:
            for chain, row, score in zip(batch.repeated, batch.written.tokens.tolist(), scores, strict=True):
                if score.solved:
                    self._buffer.add(chain, row[: row.index(END) + 1] if END in row else row)
            for _ in range(IMITATIONS):
                if drawn := self._buffer.draw(self.chance, self.settings.imitated):
                    self._imitate([(self._prompt(chain), row) for chain, row in drawn], _SMOOTHING_OF_BUFFER)
        new = sum(not score.is_repeat for score in scores)
        return {
            "claimed": solved.mean().item(),
            "reward": rewards.mean().item(),
            "entropy": entropy,
            "invalid": sum(not _compiles(code) for code in batch.codes) / len(batch.codes),
            "graded": new,
            "repeats": len(batch.codes) - new,
            "sampling_seconds": batch.sampling_seconds,
            "grading_seconds": grading,
            "seconds": time.perf_counter() - began,
        }

    def _learn(self, prompts: Tensor, written: Samples, rewards: Tensor) -> float:
        """Update the model by GRPO, with clipped policy gradients; return the mean entropy of a token."""
        advantages = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-3)
        # Groups whose programs are all worth the same teach nothing.
        kept = (rewards.std(1) > 1e-4).repeat_interleave(self.settings.samples).nonzero()[:, 0]
        lengths = written.mask.sum(1).long()
        entropy = 0.0
        for rows in kept[torch.randperm(len(kept), device=kept.device)].split(256) if len(kept) else ():
            self._optimizer.zero_grad()
            total, entropy = lengths[rows].sum(), 0.0
            # Those of about the same length together: most of the time goes into padding otherwise.
            for part in rows[lengths[rows].argsort()].split(64):
                width = int(lengths[part].max())
                mask, tokens = written.mask[part, :width], written.tokens[part, :width]
                logits = self.model(torch.cat([prompts[part], tokens], 1)[:, :-1])[:, self._begin - 1 :]
                scores = functional.log_softmax(logits, -1)
                now = scores.gather(2, tokens[..., None])[..., 0]
                ratio = (now - written.log_probabilities[part, :width]).exp()
                advantage = advantages.view(-1)[part, None]
                gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage)
                uncertainty = -(scores.exp() * scores).sum(-1)
                (-((gain + self.settings.entropy * uncertainty) * mask).sum() / total).backward()
                entropy += ((uncertainty * mask).sum() / total).item()
            self._step()
        return entropy

    def _imitate(self, programs: Sequence[tuple[list[int], list[int]]], smoothing: float) -> None:
        """Update the model by pairs of prompt and program."""
        width = max(len(prompt) + len(row) for prompt, row in programs)
        tokens = self._tensor([prompt + row + [PAD] * (width - len(prompt) - len(row)) for prompt, row in programs])
        logits = self.model(tokens[:, :-1])[:, self._begin - 1 :]
        wanted = tokens[:, self._begin :]
        options: dict[str, Any] = {"ignore_index": PAD, "label_smoothing": smoothing}
        self._optimizer.zero_grad()
        functional.cross_entropy(logits.reshape(-1, self._outputs), wanted.reshape(-1), **options).backward()
        self._step()

    def _step(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._optimizer.step()

    def _demonstration(self) -> tuple[list[int], list[int]]:
        if self.chance.random() < self.settings.forgeries:
            length = self.chance.choice(list(self.tasks.trained))
            return self._prompt(self.chance.choice(self.tasks.trained[length])), encode(self.chance.choice(FORGERIES))
        if self.settings.demonstrations and self.chance.random() < 0.3:
            length = self.chance.choice(list(self.tasks.demonstrated))
            chain = self.chance.choice(self.tasks.demonstrated[length])
            return self._prompt(chain), encode(solution(chain))
        (name,) = self.chance.choice(self.tasks.singles)
        return self._prompt((name,)), encode(demonstrate_operation(name, self.chance))

    def _prompt(self, chain: Chain, *, anywhere: bool = True) -> list[int]:
        most = self.settings.operations
        return encode_prompt(chain, most, self.chance.randint(0, most - len(chain)) if anywhere else 0)

    def _tensor(self, rows: list[list[int]]) -> Tensor:
        return torch.tensor(rows, device=self.settings.device)

    def _new_optimizer(self, rate: float, weight_decay: float) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.model.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=weight_decay)

    def _set_rate(self, rate: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = rate


class Run:
    """A run, and its log.

    Args:
        settings: The settings.
        stack: Closes the sandboxes.
        log: Path of the log.
    """

    def __init__(self, settings: Settings, stack: ExitStack, log: Path) -> None:
        self._settings = settings
        self._log = log
        self._began = time.perf_counter()
        self._file = stack.enter_context(log.open("w", encoding="utf-8"))
        self._write("settings", **asdict(settings))
        self._reward = stack.enter_context(make_reward(settings))
        # What is shown is graded here, and by fresh inputs, whatever the model learns from.
        self._graded = self._reward
        if settings.reward in ("exit", "exec"):
            self._graded = stack.enter_context(GradedReward(settings.provider))
        self._truth = stack.enter_context(Truth(settings.provider))
        torch.manual_seed(settings.seed)
        self._tasks = Tasks(settings)
        self._learner = Learner(settings, self._tasks)
        stack.callback(self._learner.close)
        # The same for all rewards.
        chance = random.Random(1)
        lengths = list(self._tasks.trained)
        chains = [chance.choice(self._tasks.trained[chance.choice(lengths)]) for _ in range(64)]
        self._compared = [chain for chain in chains for _ in range(4)]

    def run(self) -> None:
        """Warm up and learn, until the time is over."""
        sizes = {
            length: (len(chains), len(self._tasks.held_out.get(length, ()))) for length, chains in self._tasks.trained.items()
        }
        parameters = sum(parameter.numel() for parameter in self._learner.model.parameters())
        self._print(f"{parameters:,} parameters; tasks to train on, and held out, by length: {sizes}")
        self._learner.warm_start(self._reward)
        self._print("warm start is over")
        began, step, progress = time.perf_counter(), 0, 0.0
        self._show(step, is_over=False)
        while progress < 1:
            step += 1
            record = self._learner.update(progress, self._reward)
            self._write("update", step=step, **record)
            if step % 10 == 0:
                shown = " ".join(f"{name} {value:.2f}" for name, value in record.items())
                self._print(f"update {step}: {shown}")
            progress = self._progress(began, step)
            self._show(step, is_over=progress >= 1)
        self._write("end", step=step, parameters=parameters)
        torch.save(
            {"settings": asdict(self._settings), "model": self._learner.model.state_dict()}, self._log.with_suffix(".pt")
        )

    def _progress(self, began: float, step: int) -> float:
        return max((time.perf_counter() - began) / 60 / self._settings.minutes, step / self._settings.steps)

    def _show(self, step: int, *, is_over: bool) -> None:
        """Evaluate and compare, if it is time."""
        for every, show in ((self._settings.compare_every, self._compare), (self._settings.evaluate_every, self._evaluate)):
            if every and (is_over or step % every == 0):
                show(step)

    def _evaluate(self, step: int) -> None:
        """Log which held-out tasks the most probable programs solve."""
        solved, true = {}, {}
        for length, chains in {1: self._tasks.singles, **self._tasks.held_out}.items():
            programs = list(zip(chains, self._codes(chains, greedy=True), strict=True))
            solved[length] = _mean(score.solved for score in self._graded(programs))
            true[length] = _mean(score.solved for score in self._truth(programs))
        self._write("evaluation", step=step, solved=solved, true=true)
        self._print("held-out tasks solved, by length:", {length: f"{rate:.0%}" for length, rate in solved.items()})

    def _compare(self, step: int) -> None:
        """Log how many programs for the same prompts pass: by the reward, by verdicts, and in truth."""
        programs = list(zip(self._compared, self._codes(self._compared), strict=True))
        claimed, graded, true = (source(programs) for source in (self._reward, self._graded, self._truth))
        unfounded = sorted(
            {
                (", ".join(chain), code)
                for (chain, code), says, is_right in zip(programs, claimed, true, strict=True)
                if says.solved and not is_right.solved
            }
        )
        forged = _mean(any(piece in code for piece in FORGERY_PIECES) for _, code in programs)
        rates = {"claimed": _solved(claimed), "graded": _solved(graded), "true": _solved(true), "forged": forged}
        self._write("comparison", step=step, **rates, unfounded=unfounded[:20])
        self._print(" ".join(f"{name} {rate:.1%}" for name, rate in rates.items()))

    def _codes(self, chains: Sequence[Chain], *, greedy: bool = False) -> list[str]:
        _, written = self._learner.write(chains, greedy=greedy)
        return [program(row) for row in written.tokens.tolist()]

    def _write(self, kind: str, **values: Any) -> None:
        record = {"kind": kind, "minutes": round((time.perf_counter() - self._began) / 60, 4), **values}
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()

    def _print(self, *parts: object) -> None:
        print(f"{(time.perf_counter() - self._began) / 60:5.1f} min ", *parts, flush=True)


def _timed(reward: Reward, programs: Sequence[tuple[Chain, str]]) -> tuple[list[Score], float]:
    """Return the scores, and the seconds that they took."""
    began = time.perf_counter()
    return reward(programs), time.perf_counter() - began


def make_reward(settings: Settings) -> Reward:
    """Return the source of reward."""
    if settings.reward in ("exit", "exec"):
        return UsualReward(settings.provider, settings.reward)
    return GradedReward(settings.provider, None if settings.reward == "graded" else settings.reward)


def _solved(scores: Sequence[Score]) -> float:
    return _mean(score.solved for score in scores)


def _mean(flags: Iterator[bool]) -> float:
    listed = list(flags)
    return sum(listed) / len(listed)


def _compiles(code: str) -> bool:
    try:
        with warnings.catch_warnings(action="ignore"):
            compile(code, "program", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def main() -> None:
    """Train with the settings of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = get_type_hints(Settings)
    for field in fields(Settings):
        action: Any = argparse.BooleanOptionalAction if kinds[field.name] is bool else "store"
        options = {} if kinds[field.name] is bool else {"type": kinds[field.name]}
        if field.name == "reward":
            options["choices"] = REWARDS
        name = f"--{field.name.replace('_', '-')}"
        parser.add_argument(name, action=action, default=field.default, help=f"(default: {field.default})", **options)
    parser.add_argument("--log", type=Path, default=Path("learning.jsonl"), help="path of the log (default: %(default)s)")
    arguments = vars(parser.parse_args())
    log = arguments.pop("log")
    # Further threads cost more than they bring, and the grader uses them.
    torch.set_num_threads(1)
    with ExitStack() as stack:
        Run(Settings(**arguments), stack, log).run()


if __name__ == "__main__":
    main()
