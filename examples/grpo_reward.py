"""GRPO with rewards from hidden tests: with a reward function, or with an environment that the model uses as a tool.

The model is tiny and begins with random weights, and its tokens are lines of code, so this runs offline on any machine, and the
model learns in a minute which line makes which function pass its tests.

Run it with ``pip install 'coding-gym[trl]'`` (TRL 1.16 or later) and ``python examples/grpo_reward.py``, or with
``--environment``.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from importlib import resources
from typing import Any

# The libraries read both variables at import: TRL's environments are experimental, and downloads are disabled.
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from datasets import Dataset
from tokenizers import Tokenizer, decoders, models
from transformers import (
    PreTrainedTokenizerFast,
    PrinterCallback,
    Qwen2Config,
    Qwen2ForCausalLM,
    TrainerCallback,
    TrainerState,
    set_seed,
)
from trl import GRPOConfig, GRPOTrainer

from coding_gym.tasks import Asserts, Task, TaskSuite
from coding_gym_trainers.trl import TaskEnvironments, TaskReward, prompt_rows

VALUES = ([7], [2, 3, 4], [5, 1], [0, 6, 6])
EXPECTED = {"total": sum, "largest": max, "smallest": min}
HEADS = [f"def {name}(values):\n" for name in EXPECTED]
BODIES = [f"    return {function.__name__}(values)" for function in EXPECTED.values()] + ["    return values"]


class PrintReward(TrainerCallback):
    """Print the mean reward of every tenth update."""

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: dict[str, float], **others: Any) -> None:
        """Print the entry of an update."""
        if "reward" in logs and (state.global_step == 1 or state.global_step % 10 == 0):
            print(f"update {state.global_step}: mean reward {logs['reward']:.2f}", flush=True)


def make_suite() -> TaskSuite:
    """Return tasks of one line each."""
    tasks = []
    for name, function in EXPECTED.items():
        tests = Asserts(cases=tuple(f"assert {name}({values}) == {function(values)}" for values in VALUES))
        tasks.append(Task(id=name, prompt=f"Write {name}(values).", entry_point=name, tests=tests))
    return TaskSuite("lines", tasks)


def make_tokenizer(*, calls: bool) -> PreTrainedTokenizerFast:
    """Return a tokenizer whose tokens are lines, with the chat template of Qwen 3, which supports tools.

    Args:
        calls: Whether the lines are those of a call of the tool, instead of an answer.
    """
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "[UNK]"]
    tokenizer = Tokenizer(models.WordLevel({token: number for number, token in enumerate(special)}, special[3]))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(special[:3])
    call, _, end = json.dumps({"name": "python", "arguments": {"code": "\n"}}).partition("\\n")
    begin, end = (f"<tool_call>\n{call}", f"{end}\n</tool_call>") if calls else ("", "")
    written = [json.dumps(line)[1:-1] if calls else line for line in (*HEADS, *BODIES)]
    lines = [f"{begin}{line}" for line in written[: len(HEADS)]] + [f"{line}{end}" for line in written[len(HEADS) :]]
    tokenizer.add_tokens([*EXPECTED, *lines])
    template = resources.files("trl").joinpath("chat_templates", "qwen3.jinja").read_text()
    marks = {"pad_token": special[0], "eos_token": special[2], "unk_token": special[3]}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template, padding_side="left", **marks)


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """Return a model with random weights."""
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        initializer_range=0.1,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen2ForCausalLM(config)


def train(source: dict[str, Any], rows: list[dict[str, Any]], *, steps: int, generations: int, seed: int) -> None:
    """Train a new model.

    Args:
        source: The source of rewards: ``reward_funcs`` or ``environment_factory``.
        rows: The data set. Each update has completions for all of its prompts.
        steps: Number of updates.
        generations: Number of completions per prompt.
        seed: Seed of the weights and of the completions.
    """
    set_seed(seed)
    tokenizer = make_tokenizer(calls="environment_factory" in source)
    with tempfile.TemporaryDirectory() as directory:
        trainer = GRPOTrainer(
            model=make_model(tokenizer),
            processing_class=tokenizer,
            train_dataset=Dataset.from_list(rows),
            args=GRPOConfig(
                output_dir=directory,
                per_device_train_batch_size=len(rows) * generations,
                num_generations=generations,
                # A function has two lines.
                max_completion_length=2,
                learning_rate=5e-3,
                # Else, a model so small settles for one answer to all prompts.
                entropy_coef=0.1,
                max_steps=steps,
                logging_steps=1,
                save_strategy="no",
                report_to=[],
                use_cpu=True,
                bf16=False,
                disable_tqdm=True,
                seed=seed,
            ),
            callbacks=[PrintReward()],
            **source,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()


def main() -> None:
    """Train with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", action="store_true", help="use an environment instead of a reward function")
    parser.add_argument("--provider", default="auto", help="sandbox provider: auto, docker or local (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=100, help="number of updates (default: %(default)s)")
    parser.add_argument("--generations", type=int, default=16, help="number of completions per prompt (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the model (default: %(default)s)")
    arguments = parser.parse_args()
    suite = make_suite()
    settings = {"steps": arguments.steps, "generations": arguments.generations, "seed": arguments.seed}
    if arguments.environment:
        rollouts = len(suite) * arguments.generations
        with TaskEnvironments(suite, rollouts=rollouts, max_turns=1, provider=arguments.provider) as environments:
            train({"environment_factory": environments}, prompt_rows(suite, with_prompt=False), **settings)
    else:
        with TaskReward(suite, provider=arguments.provider) as reward:
            train({"reward_funcs": reward}, prompt_rows(suite), **settings)


if __name__ == "__main__":
    main()
