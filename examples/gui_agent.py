"""Let a vision model operate a program by mouse and keyboard: it sees screenshots, and fills in an order form.

Each episode opens the form somewhere on the screen of a sandbox, and asks for another order. The model gets a picture of the
screen with each message, and answers with a list of input events. The file that the form saves decides whether the order is
right: neither the picture nor what the model claims.

The model is at any endpoint that speaks the protocol of OpenAI's chat completions and accepts pictures. Run it with
``python examples/gui_agent.py --model gpt-5-mini`` and the key in ``OPENAI_API_KEY``, or with
``--base-url http://127.0.0.1:8000/v1`` for a server of your own. The episodes are a dataset in ``--out``, with the screenshots;
after Ctrl-C, the same command continues.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from agent import parse_arguments, record
from PIL import Image
from rich.console import Console
from rich.table import Table

from coding_gym.datasets import ChatPolicy, Dataset
from coding_gym.errors import InvalidActionError
from coding_gym.spaces import CodeText
from coding_gym.wrappers.actions import fenced_blocks

SYSTEM = """\
You operate a computer by mouse and keyboard. Each message shows its screen, whose upper left corner is (0, 0). Answer with a \
JSON list of events between ```json and ```, such as

```json
[{"type": "click", "x": 100, "y": 50}, {"type": "text", "text": "Hello"}, {"type": "key", "key": "Tab"}]
```

The other events are double_click, move, drag (x, y, to_x, to_y) and scroll (x, y, dy). They are performed in order, then you \
see the screen again. Continue until the task is done."""

FORM = """
import json
import tkinter as tk
from pathlib import Path

window = tk.Tk()
window.title("Order")
window.geometry("340x240+{x}+{y}")
window.columnconfigure(1, weight=1)
name, size, express = tk.StringVar(), tk.StringVar(value="none"), tk.BooleanVar()
saved = tk.Label(window)

def save():
    order = dict(name=name.get(), size=size.get(), express=express.get())
    Path("order.json").write_text(json.dumps(order))
    saved.configure(text="The order is saved.")

tk.Label(window, text="Name").grid(row=0, column=0, padx=12, pady=12)
tk.Entry(window, textvariable=name, background="white").grid(row=0, column=1, columnspan=3, sticky="ew", padx=12)
tk.Label(window, text="Size").grid(row=1, column=0)
for column, value in enumerate(["small", "medium", "large"], start=1):
    tk.Radiobutton(window, text=value, value=value, variable=size, selectcolor="white").grid(row=1, column=column)
tk.Checkbutton(window, text="express", variable=express, selectcolor="white").grid(row=2, column=1, pady=12)
tk.Button(window, text="Order", command=save, background="#2e7d32", foreground="white").grid(row=3, column=1, columnspan=3)
saved.grid(row=4, column=0, columnspan=4, pady=12)
window.mainloop()
"""


class OrderForm(gym.Wrapper[Any, str, Any, Any]):
    """A form to fill in, on the screen of ``CodingEnvGUI``; an action is the text of an answer with a list of events.

    The goal is ``info["goal"]`` of ``reset``; ``info["solved"]`` tells whether the saved order is the one that was asked for.

    Args:
        env: An environment whose actions are code and events.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.action_space = CodeText(100_000)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.env.reset(seed=seed, options=options)
        rng = np.random.default_rng(seed)
        self.order = {
            "name": str(rng.choice(["Ada", "Grace", "Edsger", "Barbara"])),
            "size": str(rng.choice(["small", "medium", "large"])),
            "express": bool(rng.integers(2)),
        }
        x, y = rng.integers((300, 240))
        observation, *_, info = self.env.step({"code": FORM.format(x=x, y=y), "events": []})
        delivery = "with" if self.order["express"] else "without"
        goal = f"Fill in the form: size {self.order['size']} for {self.order['name']}, {delivery} express"
        return observation, {**info, "goal": goal, "solved": False}

    def step(self, action: str) -> Any:
        blocks = [content for _, content in fenced_blocks(action)]
        problem = "" if blocks else "Your answer has no list of events between ```json and ```."
        try:
            events = json.loads(blocks[-1]) if blocks else []
            observation, _, _, truncated, info = self.env.step({"code": "", "events": events})
        except (ValueError, InvalidActionError) as error:
            problem = f"Your list of events is wrong, and nothing was performed: {error}"
            observation, _, _, truncated, info = self.env.step({"code": "", "events": []})
        try:
            solved = json.loads(self.get_wrapper_attr("files").read("order.json")) == self.order
        except FileNotFoundError:
            solved = False
        return observation, float(solved), solved, truncated, {**info, "problem": problem, "solved": solved}


def describe(observation: dict[str, Any], info: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of a message: the goal, or what was wrong with the last answer, and the screen."""
    file = BytesIO()
    Image.fromarray(observation["screenshot"]).save(file, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    text = info.get("goal") or info["problem"] or "This is the screen now."
    return [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url}}]


def show_results(dataset: Dataset, console: Console) -> None:
    """Print a table of the episodes."""
    table = Table("order", title=f"{dataset.manifest.arguments.policy['model']} on {len(dataset)} forms")
    for column in ("answers", "misunderstood", "solved"):
        table.add_column(column, justify="right")
    for episode in dataset:
        problems = sum(bool(step.info["problem"]) for step in episode.steps[1:])
        goal = episode.steps[0].info["goal"].partition(": ")[2]
        table.add_row(goal, str(len(episode.actions)), str(problems), "[green]yes" if episode.solved else "[red]no")
    console.print(table)
    console.print(f"solved: {sum(bool(episode.solved) for episode in dataset)} of {len(dataset)}", highlight=False)


def main() -> None:
    """Let the model fill in the forms, and print its results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=4, help="number of forms (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("gui-episodes"), help="output directory (default: %(default)s)")
    arguments, console = parse_arguments(parser), Console()
    policy = ChatPolicy(
        arguments.model,
        base_url=arguments.base_url,
        system=SYSTEM,
        to_action=str,
        describe_first=describe,
        describe_observation=describe,
    )
    env_options = {"provider": arguments.provider}
    dataset, problem = record(
        "CodingEnvGUI-v0", policy, arguments.limit, arguments, env_options=env_options, wrappers=[OrderForm]
    )
    if len(dataset):
        show_results(dataset, console)
        print(f"episodes: {arguments.out}")
    sys.exit(problem or None)


if __name__ == "__main__":
    main()
