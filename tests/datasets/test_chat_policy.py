from __future__ import annotations

import contextlib
import json
import threading

import pytest

from coding_gym.datasets import ChatPolicy, collect, export_chat
from coding_gym.datasets.policies import chat as chat_policy_module
from coding_gym.errors import ConfigurationError, PolicyError, ProtocolError, TransportError, TransportTimeoutError
from tests.support.chat_endpoint import ChatEndpoint, completion
from tests.support.running_server import free_port
from tests.support.timing import promptly

KEY = "sk-very-secret"
HELLO = "Let me see.\n\n```python\nprint('h\N{LATIN SMALL LETTER E WITH ACUTE}', 6 * 7)\n```\n"


@pytest.fixture
def endpoint(monkeypatch):
    monkeypatch.setattr(chat_policy_module, "_INITIAL_PAUSE", 0.01)
    with contextlib.ExitStack() as stack:
        yield lambda answer, **options: stack.enter_context(ChatEndpoint(answer, **options))


@pytest.fixture
def ask(pool, tmp_path):
    def run(policy, episodes=1, **options):
        arguments = {"max_steps": 2, "seed": 1, "path": tmp_path / "dataset", **options}
        return collect(
            "CodingEnv-v0", policy, episodes, pool=pool, env_options={"screen": None, "step_timeout": 60}, **arguments
        )

    return run


def test_conversation_is_recorded_without_api_key(endpoint, ask, monkeypatch, tmp_path):
    monkeypatch.setenv("MY_KEY", KEY)
    server = endpoint(lambda body, _: completion(HELLO if len(body["messages"]) < 3 else "1/0", reasoning_content="hm"))
    policy = ChatPolicy("tiny", base_url=server.url, api_key_env="MY_KEY", parameters={"temperature": 0.5}, system="Be brief.")
    dataset = ask(policy)
    first, second = server.requests
    assert first["model"] == "tiny"
    assert first["temperature"] == 0.5
    assert first["seed"] != second["seed"]
    assert first["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Begin."}]
    assert second["messages"][2:] == [
        {"role": "assistant", "content": HELLO},
        {"role": "user", "content": "h\N{LATIN SMALL LETTER E WITH ACUTE} 42"},
    ]
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    steps = dataset[0].steps
    assert steps[1].action == "print('h\N{LATIN SMALL LETTER E WITH ACUTE}', 6 * 7)\n"
    assert steps[2].action == "1/0"
    assert steps[1].decision["content"] == HELLO
    assert steps[1].decision["reasoning"] == "hm"
    assert steps[1].decision["usage"] == {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
    export_chat(dataset, tmp_path / "chat.jsonl")
    messages = json.loads((tmp_path / "chat.jsonl").read_text())["messages"]
    assert messages == [*second["messages"], {"role": "assistant", "content": "1/0"}]
    assert all(KEY.encode() not in file.read_bytes() for file in (tmp_path / "dataset").iterdir())


def test_busy_endpoint_is_retried_after_requested_delay(endpoint, ask):
    busy = [(429, {"Retry-After": "0.2"}, b"slow down"), (503, {}, b""), (500, {"Retry-After": "soon"}, b"")]
    server = endpoint(lambda body, count: busy[count - 1] if count <= 3 else completion("1"))
    with promptly(after=0.2):
        ask(ChatPolicy("tiny", base_url=server.url), max_steps=1)
    assert len(server.requests) == 4
    # Retries send the same request.
    assert len({json.dumps(request) for request in server.requests}) == 1


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        ((401, {}, b'{"error": "bad key"}'), ProtocolError, r'answered 401: \{"error": "bad key"\}'),
        ((503, {}, b"tired"), ProtocolError, "answered 503: tired"),
        ((200, {}, b"<html>"), ProtocolError, "Expected a chat completion"),
        ((200, {}, b'{"choices": []}'), ProtocolError, "Expected a chat completion"),
    ],
)
def test_endpoint_errors_raise_policy_error(endpoint, ask, answer, kind, said):
    server = endpoint(lambda body, _: answer)
    with pytest.raises(PolicyError, match=said) as raised:
        ask(ChatPolicy("tiny", base_url=server.url, retries=1))
    assert isinstance(raised.value.__cause__, kind)
    assert len(server.requests) == (2 if answer[0] == 503 else 1)


def test_hanging_or_unreachable_endpoint_raises_policy_error(endpoint, ask, tmp_path):
    go_on = threading.Event()
    server = endpoint(lambda body, _: (go_on.wait(20), completion("1"))[1])
    with pytest.raises(PolicyError, match=r"did not answer within 0.2 s") as raised:
        ask(ChatPolicy("tiny", base_url=server.url, retries=0, timeout=0.2))
    go_on.set()
    assert isinstance(raised.value.__cause__, TransportTimeoutError)
    with pytest.raises(PolicyError, match="cannot be reached") as raised:
        ask(ChatPolicy("tiny", base_url="http://127.0.0.1:9/v1", retries=0), path=tmp_path / "other")
    assert isinstance(raised.value.__cause__, TransportError)


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"])
def test_endpoint_that_never_answered_is_not_retried(ask, host):
    policy = ChatPolicy("tiny", base_url=f"http://{host}:{free_port()}/v1", retries=10)
    with promptly(), pytest.raises(PolicyError, match=r"cannot be reached: \[Errno .*\] [A-Z][a-z ]+"):
        ask(policy)


def test_restarting_endpoint_is_retried(endpoint, ask):
    status, headers, data = completion("1")
    server = endpoint(lambda body, _: (status, {**headers, "Connection": "close"}, data))
    restarted = []

    def describe(observation, info):
        server.shutdown()
        server.server_close()
        threading.Timer(0.05, lambda: restarted.append(endpoint(server.answer, port=server.server_port))).start()
        return "Continue."

    # Pauses of 10 to 320 ms.
    assert len(ask(ChatPolicy("tiny", base_url=server.url, describe_observation=describe))[0].actions) == 2
    assert [len(each.requests) for each in (server, *restarted)] == [1, 1]


def test_first_observation_is_described_as_requested(endpoint, ask):
    server = endpoint(lambda body, _: completion("1"))
    policy = ChatPolicy("tiny", base_url=server.url, describe_first=lambda observation, info: f"Outcome: {info['outcome']}")
    dataset = ask(policy)
    assert [request["messages"][1]["content"] for request in server.requests] == ["Outcome: ok"] * 2
    assert "describe_first" in dataset.manifest.arguments.policy
    assert "describe_first" not in ChatPolicy("tiny", base_url=server.url).describe()


def test_lone_surrogates_in_answers_are_replaced(endpoint, ask):
    server = endpoint(lambda body, _: completion("print('\ud800 \x00')"))
    step = ask(ChatPolicy("tiny", base_url=server.url), max_steps=1)[0].steps[1]
    assert step.action == step.decision["content"] == "print('\ufffd \x00')"


def test_answer_without_text_becomes_empty_action(endpoint, ask):
    server = endpoint(lambda body, _: completion(None))
    assert ask(ChatPolicy("tiny", base_url=server.url), max_steps=1)[0].actions == [""]


def test_slow_answers_are_awaited_concurrently(endpoint, ask):
    together = threading.Barrier(4, timeout=20)

    def answer(body, count):
        together.wait()
        return completion("1")

    server = endpoint(answer)
    assert len(ask(ChatPolicy("tiny", base_url=server.url), 8, max_steps=1, sessions=4)) == 8


def test_invalid_base_url_is_refused():
    with pytest.raises(ConfigurationError, match="Expected base_url="):
        ChatPolicy("tiny", base_url="localhost:8000")
