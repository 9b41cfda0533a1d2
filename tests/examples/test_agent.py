from __future__ import annotations

import json
import re

import pytest

from coding_gym.datasets import load
from coding_gym.tasks import load_suite
from tests.support.chat_endpoint import ChatEndpoint, completion
from tests.support.running_server import free_port

SUITE = load_suite("basics")
WRONG = "```python\ndef {task.entry_point}(*arguments):\n    return None\n```"
RIGHT = "It is done.\n\n~~~ py\n{task.reference}\n~~~"
BROKEN = "```python\nprint('[/b]')\n1 / 0\n```"
PROSE = "I have to think about {task.entry_point} first."
SHELL = "```sh\nls\n```"
ANSWERS = {
    "basics/add_up": [RIGHT],
    "basics/bill": [WRONG, BROKEN, RIGHT],
    "basics/check_letter": [PROSE, SHELL, RIGHT],
    "basics/columns": [PROSE, BROKEN, WRONG],
    "basics/count_changes": [PROSE, PROSE, None],
}


def agent(body, count):
    """Answer by the task and the turn, as a model would that is busy at first."""
    if count == 1:
        return 429, {"Retry-After": "0.05"}, b'{"error": {"message": "Rate limit reached"}}'
    prompt = body["messages"][1]["content"]
    task = next(task for task in SUITE if task.prompt == prompt)
    turn = sum(message["role"] == "assistant" for message in body["messages"])
    answer = ANSWERS[task.id][turn]
    return completion(answer and answer.format(task=task))


def test_agent_solves_suite_over_several_turns(run_example, tmp_path):
    with ChatEndpoint(agent, api_key="sk-1") as endpoint:
        options = ["--model", "tiny", "--base-url", endpoint.url, "--api-key", "sk-1", "--turns", 3, "--out", tmp_path / "a"]
        code, printed = run_example("agent.py", *options, "--limit", 2)
        assert code is None, printed
        code, printed = run_example("agent.py", *options, "--limit", len(ANSWERS), "--show")
    assert code is None, printed
    rows = re.findall(r"│ (basics/\w+) +│ +(\d) │ +(\d of \d|none) │ +(\d+) │ +(\d+) │ +(yes|no) ", printed)
    assert rows == [
        ("basics/add_up", "1", "6 of 6", "3", "5", "yes"),
        ("basics/bill", "3", "7 of 7", "9", "15", "yes"),
        ("basics/check_letter", "3", "7 of 7", "9", "15", "yes"),
        ("basics/columns", "3", "0 of 6", "9", "15", "no"),
        ("basics/count_changes", "3", "none", "9", "15", "no"),
    ]
    assert re.findall(r"solved with (\d) answers?: (\d) of 5", printed) == [("1", "1"), ("2", "1"), ("3", "3")]
    # The first run's episodes are not repeated; its first request was, because the endpoint was busy.
    assert len(endpoint.requests) == 1 + 1 + 4 * 3

    dataset = load(tmp_path / "a")
    told = [step.decision["messages"][-1]["content"] for step in dataset[1].steps[1:]]
    assert told[0] == SUITE["basics/bill"].prompt
    assert re.search(r"^\[\d of 7 tests passed\]$", told[1], re.M)
    assert "ZeroDivisionError" in told[2]
    assert all("no block of Python" in step.observation["stderr"] for step in dataset[2].steps[1:3])
    conversations = [json.loads(line) for line in (tmp_path / "a" / "conversations.jsonl").read_text().splitlines()]
    assert [line["solved"] for line in conversations] == [True, True, True, False, False]
    # The conversations are printed, too, in panels.
    assert "I have to think about columns first." in printed
    assert printed.count("ZeroDivisionError: division by zero") == 2
    assert "│ [/b]" in printed


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((401, {}, b'{"error": {"message": "Incorrect API key provided."}}'), r"answered 401: .*Incorrect API key"),
        ((200, {}, b"<html>It works!</html>"), "Expected a chat completion from .*It works!"),
        (None, r"cannot be reached: \[Errno 111\] Connection refused"),
    ],
    ids=["key", "malformed", "refused"],
)
def test_endpoint_errors_leave_other_episodes(run_example, tmp_path, answer, said):
    def usually(body, count):
        return agent(body, count) if "add_up" in body["messages"][1]["content"] or answer is None else answer

    with ChatEndpoint(usually) as endpoint:
        url = endpoint.url if answer else f"http://127.0.0.1:{free_port()}/v1"
        code, printed = run_example("agent.py", "--model", "tiny", "--base-url", url, "--limit", 3, "--out", tmp_path / "a")
    assert re.search(said, code), code
    assert ("basics/add_up" in printed) == bool(answer)


def test_wrong_options_are_explained(run_example, tmp_path):
    code, printed = run_example("agent.py", "--model", "tiny")
    assert code == 2
    assert "set OPENAI_API_KEY" in printed
    code, _ = run_example("agent.py", "--model", "tiny", "--base-url", "localhost:8000", "--out", tmp_path / "a")
    assert "Expected base_url= such as http://" in code
    code, _ = run_example("agent.py", "--model", "tiny", "--base-url", "http://x/v1", "--suite", "basic", "--out", tmp_path)
    assert "There is no suite 'basic'" in code
