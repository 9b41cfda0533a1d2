"""Let a model operate a program by the computer tool of its vendor: OpenAI's ``computer_call``, or Anthropic's computer tool.

The task is the order form of ``gui_agent.py``. ``coding_gym.agents.Computer`` performs the model's actions on the screen of the
sandbox, and answers with pictures of it; the file that the form saves decides whether the order is right.

Run it with ``python examples/computer_agent.py --vendor openai --model MODEL`` and the key in ``OPENAI_API_KEY``, or with
``--vendor anthropic`` and the key in ``ANTHROPIC_API_KEY``; ``--base-url`` names another endpoint of the same protocol.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import requests
from gui_agent import OrderForm

from coding_gym.agents import Computer

BASE_URLS = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}
BETA = "computer-use-2025-11-24"
MAX_TOKENS = 4096


def post(url: str, body: dict[str, Any], headers: dict[str, str]) -> Any:
    """Return the JSON document that an endpoint answers a request with."""
    response = requests.post(url, json=body, headers=headers, timeout=300)
    if not response.ok:
        sys.exit(f"{url} answers with {response.status_code}: {response.text[:1000]}")
    return response.json()


def ask_openai(computer: Computer, goal: str, model: str, base_url: str) -> Iterator[None]:
    """Let a model of OpenAI's responses work; yield after each of its turns."""
    headers = {"Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', '')}"}
    conversation: list[dict[str, Any]] = [{"role": "user", "content": goal}]
    while True:
        body = {"model": model, "input": conversation, "tools": [computer.openai_tool], "truncation": "auto"}
        output = post(f"{base_url}/responses", body, headers)["output"]
        conversation += output
        calls = [item for item in output if item["type"] == "computer_call"]
        conversation += [computer.answer_openai(call) for call in calls]
        yield
        if not calls:
            return


def ask_anthropic(computer: Computer, goal: str, model: str, base_url: str) -> Iterator[None]:
    """Let a model of Anthropic's messages work; yield after each of its turns."""
    headers = {
        "x-api-key": os.environ.get("ANTHROPIC_API_KEY", ""),
        "anthropic-version": "2023-06-01",
        "anthropic-beta": BETA,
    }
    messages: list[dict[str, Any]] = [{"role": "user", "content": goal}]
    while True:
        body = {"model": model, "max_tokens": MAX_TOKENS, "messages": messages, "tools": [computer.anthropic_tool]}
        content = post(f"{base_url}/v1/messages", body, headers)["content"]
        messages.append({"role": "assistant", "content": content})
        results = [computer.answer_anthropic(block) for block in content if block["type"] == "tool_use"]
        yield
        if not results:
            return
        messages.append({"role": "user", "content": results})


def is_right(form: OrderForm) -> bool:
    """Return whether the form has saved the order that was asked for."""
    try:
        order: dict[str, Any] = json.loads(form.get_wrapper_attr("files").read("order.json"))
    except FileNotFoundError:
        return False
    return order == form.order


def main() -> None:
    """Let the model fill in forms, and print which of them are right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vendor", choices=BASE_URLS, required=True, help="whose protocol the endpoint speaks")
    parser.add_argument("--model", required=True, help="name of the model")
    parser.add_argument("--base-url", help="the endpoint (default: that of the vendor)")
    parser.add_argument("--limit", type=int, default=2, help="number of forms (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=20, help="maximum number of turns per form (default: %(default)s)")
    parser.add_argument("--provider", default="auto", help="provider of the sandbox (default: %(default)s)")
    arguments = parser.parse_args()
    base_url = (arguments.base_url or BASE_URLS[arguments.vendor]).rstrip("/")
    ask = ask_openai if arguments.vendor == "openai" else ask_anthropic
    solved = 0
    with gym.make("CodingEnvGUI-v0", provider=arguments.provider) as env:
        form = OrderForm(env)
        for seed in range(arguments.limit):
            _, info = form.reset(seed=seed)
            turns = 0
            for _ in ask(Computer(env), info["goal"], arguments.model, base_url):
                turns += 1
                if turns == arguments.turns:
                    break
            solved += is_right(form)
            print(f"{info['goal']}: {'right' if is_right(form) else 'wrong'} after {turns} turns")
    print(f"solved: {solved} of {arguments.limit}")
    sys.exit(0)


if __name__ == "__main__":
    main()
