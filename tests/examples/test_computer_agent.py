from __future__ import annotations

import base64
import io
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from PIL import Image

from tests.examples.test_gui_agent import Reader
from tests.support.requirements import require_display

pytestmark = pytest.mark.screen


class Endpoint(ThreadingHTTPServer):
    """Endpoint of one path, whose responses are computed from the request by a function."""

    daemon_threads = True

    def __init__(self, path, answer):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.path, self.answer = path, answer
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == self.server.path
        answer = json.dumps(self.server.answer(body)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


def picture_of(text):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text))).convert("RGB"))


def plan(goal, picture):
    """Return the clicks that fill in the form, as a model that sees the picture, and the name to type, if any."""
    size, name, delivery = re.search(r"size (\w+) for (\w+), (\w+) express", goal).groups()
    form = Reader(picture)
    if not form.is_filled:
        return [form.fields(form.text)[0]], name
    express = [form.fields(form.express)[0]] if delivery == "with" else []
    return [form.sizes[size], *express, form.button], None


def openai_model(body):
    """Answer as OpenAI's responses do, with all actions of a turn in one call."""
    assert body["tools"] == [{"type": "computer"}]
    pictures = [item["output"]["image_url"] for item in body["input"] if item.get("type") == "computer_call_output"]
    calls = len(pictures)
    if calls == 3:
        return {"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}]}
    actions = [{"type": "screenshot"}]
    if pictures:
        clicks, name = plan(body["input"][0]["content"], picture_of(pictures[-1].partition(",")[2]))
        actions = [{"type": "click", "button": "left", "x": x, "y": y} for x, y in clicks]
        actions += [{"type": "type", "text": name}] if name else []
    call = {"type": "computer_call", "call_id": f"c{calls}", "actions": actions, "pending_safety_checks": []}
    return {"output": [call]}


def anthropic_model(body):
    """Answer as Anthropic's messages do, with one tool use for each action."""
    assert body["tools"][0]["type"] == "computer_20251124"
    turns = len(body["messages"]) // 2
    if turns == 3:
        return {"content": [{"type": "text", "text": "Done."}]}
    actions = [{"action": "screenshot"}]
    if turns:
        source = body["messages"][-1]["content"][-1]["content"][0]["source"]
        clicks, name = plan(body["messages"][0]["content"], picture_of(source["data"]))
        actions = [{"action": "left_click", "coordinate": [x, y]} for x, y in clicks]
        actions += [{"action": "type", "text": name}] if name else []
    block = {"type": "tool_use", "name": "computer"}
    return {"content": [{**block, "id": f"t{number}", "input": action} for number, action in enumerate(actions)]}


@pytest.mark.parametrize(
    ("vendor", "path", "prefix", "model"),
    [("openai", "/v1/responses", "/v1", openai_model), ("anthropic", "/v1/messages", "", anthropic_model)],
)
def test_model_fills_in_forms(run_example, vendor, path, prefix, model):
    require_display()
    with Endpoint(path, model) as endpoint:
        options = ["--vendor", vendor, "--model", "tiny", "--base-url", endpoint.url + prefix]
        code, printed = run_example("computer_agent.py", *options)
    assert code == 0, printed
    assert printed.count(": right after 4 turns") == 2
    assert "solved: 2 of 2" in printed
