"""Serve a model that ``train.py`` has trained, as an endpoint that speaks OpenAI's protocol.

``python examples/learn_to_code/serve.py learning.pt --suite held_out.jsonl`` also writes the tasks that the model was not
trained on, for ``coding-gym evaluate --base-url http://127.0.0.1:8765/v1 --model learned --suite held_out.jsonl``.
"""

from __future__ import annotations

import argparse
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from language import OPERATIONS, Chain, make_task, program
from train import Learner, Settings, Tasks

from coding_gym.tasks import TaskSuite

_PROMPT = re.compile(r"returns: (.+) xs\.")


class Model:
    """A trained model, which answers prompts.

    Args:
        path: Path of the file that ``train.py`` wrote.
    """

    def __init__(self, path: Path) -> None:
        saved = torch.load(path, map_location="cpu", weights_only=True)
        settings = Settings(**{**saved["settings"], "device": "cpu"})
        self.tasks = Tasks(settings)
        self._longest = settings.operations
        self._learner = Learner(settings, self.tasks)
        self._learner.model.load_state_dict(saved["model"])
        self._lock = threading.Lock()

    def answer(self, request: dict[str, Any]) -> tuple[list[str], dict[str, int]]:
        """Return the replies to a request for a chat completion, and the numbers of tokens.

        Raises:
            ValueError: If the request is not about a task of the language, or asks for a temperature other than 0 and 1.
        """
        temperature = request.get("temperature", 1)
        if temperature not in (0, 1):
            message = f"expected a temperature of 0 or 1, got {temperature!r}"
            raise ValueError(message)
        chain = self._chain(str(request["messages"][-1]["content"]))
        with self._lock:
            seed = request["seed"] if request.get("seed") is not None else time.time_ns()
            torch.manual_seed(seed)
            # It places the description in the prompt.
            self._learner.chance.seed(seed)
            prompts, written = self._learner.write([chain] * request.get("n", 1), greedy=temperature == 0)
        read, wrote = prompts.shape[1], int(written.mask.sum())
        usage = {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}
        return [f"```python\n{program(row)}```" for row in written.tokens.tolist()], usage

    def _chain(self, text: str) -> Chain:
        found = _PROMPT.search(text)
        chain = tuple(found[1].split(", ")) if found else ()
        if not 0 < len(chain) <= self._longest or not set(chain) <= set(OPERATIONS):
            message = f"expected a prompt such as {make_task(('sum of', 'squares of')).prompt!r}, got {text!r:.200}"
            raise ValueError(message)
        return chain


class Handler(BaseHTTPRequestHandler):
    """Answers requests of one connection."""

    model: Model

    def do_POST(self) -> None:
        """Answer a request for a chat completion."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            replies, usage = self.model.answer(json.loads(body))
        except (ValueError, KeyError, IndexError, TypeError) as error:
            self._send(400, {"error": {"message": str(error), "type": "invalid_request_error"}})
            return
        choices = [
            {"index": number, "message": {"role": "assistant", "content": reply}, "finish_reason": "stop"}
            for number, reply in enumerate(replies)
        ]
        self._send(200, {"object": "chat.completion", "model": "learned", "choices": choices, "usage": usage})

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing about requests."""

    def _send(self, status: int, content: dict[str, Any]) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--port", type=int, default=8765, help="(default: %(default)s)")
    parser.add_argument("--suite", type=Path, help="path to write the held-out tasks to")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    Handler.model = Model(arguments.model)
    if arguments.suite is not None:
        held_out = [chain for chains in Handler.model.tasks.held_out.values() for chain in chains]
        TaskSuite(arguments.suite.stem, map(make_task, held_out)).save(arguments.suite)
    with ThreadingHTTPServer(("127.0.0.1", arguments.port), Handler) as server:
        print(f"serving on http://127.0.0.1:{server.server_port}/v1", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
