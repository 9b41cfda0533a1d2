"""GRPO with rewards from hidden tests: with a reward function, or with an environment that the model uses as a tool.

The model is tiny and has random weights, and the tokenizer is byte-level, so this runs offline on any machine. The
model does not learn: replace it by a real one.

Run it with ``pip install 'coding-gym[trl]'`` and ``python examples/grpo_reward.py``, or with ``--environment``.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from importlib import resources
from typing import Any

# The libraries read both variables at import: TRL's environments are experimental, and downloads are disabled.
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from coding_gym_trainers.trl import TaskEnvironments, TaskReward, prompt_rows


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer with the chat template of Qwen 3, which supports tools."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(special + alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    template = resources.files("trl").joinpath("chat_templates", "qwen3.jinja").read_text()
    marks = {"pad_token": special[0], "eos_token": special[2]}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template, padding_side="left", **marks)


def tiny_model(tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """Return a model with random weights."""
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen2ForCausalLM(config)


def train(source: dict[str, Any], rows: list[dict[str, Any]], *, steps: int, generations: int) -> list[dict[str, float]]:
    """Train the tiny model and return TRL's log.

    Args:
        source: The source of rewards: ``reward_funcs`` or ``environment_factory``.
        rows: The dataset.
        steps: Number of updates.
        generations: Number of completions per prompt.
    """
    tokenizer = tiny_tokenizer()
    with tempfile.TemporaryDirectory() as directory:
        trainer = GRPOTrainer(
            model=tiny_model(tokenizer),
            processing_class=tokenizer,
            train_dataset=Dataset.from_list(rows),
            args=GRPOConfig(
                output_dir=directory,
                per_device_train_batch_size=generations,
                num_generations=generations,
                max_completion_length=24,
                max_steps=steps,
                logging_steps=1,
                save_strategy="no",
                report_to=[],
                use_cpu=True,
                bf16=False,
                disable_tqdm=True,
            ),
            **source,
        )
        trainer.train()
        return trainer.state.log_history


def main() -> None:
    """Train with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", action="store_true", help="use an environment instead of a reward function")
    parser.add_argument("--suite", default="basics", help="suite of tasks (default: %(default)s)")
    parser.add_argument("--provider", default="auto", help="sandbox provider: auto, docker or local (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=4, help="number of updates (default: %(default)s)")
    parser.add_argument("--generations", type=int, default=4, help="number of completions per prompt (default: %(default)s)")
    arguments = parser.parse_args()
    sizes = {"steps": arguments.steps, "generations": arguments.generations}
    if arguments.environment:
        with TaskEnvironments(arguments.suite, rollouts=arguments.generations, provider=arguments.provider) as environments:
            rows = prompt_rows(arguments.suite, with_prompt=False)
            logged = train({"environment_factory": environments}, rows, **sizes)
    else:
        with TaskReward(arguments.suite, provider=arguments.provider) as reward:
            logged = train({"reward_funcs": reward}, prompt_rows(arguments.suite), **sizes)
    for number, entry in enumerate((entry for entry in logged if "reward" in entry), 1):
        print(f"step {number}: reward {entry['reward']:.3f}, completions of {entry['completions/mean_length']:.0f} tokens")


if __name__ == "__main__":
    main()
