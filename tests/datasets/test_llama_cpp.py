"""A model with random weights, served by llama.cpp over HTTP."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from coding_gym.datasets import ChatPolicy
from coding_gym.errors import PolicyError
from tests.support.requirements import import_extra
from tests.support.running_server import free_port

KEY = "sk-1"
SERVE = """
import sys, threading, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port, params.api_keys = sys.argv[1], int(sys.argv[2]), [sys.argv[3]]
params.n_ctx, params.n_parallel, params.cpuparams.n_threads = 2048, 1, 1
server = xllamacpp.Server(params)
print("ready", flush=True)
threading.Event().wait()
"""
GRAMMAR = r'root ::= "```python\nprint(" [0-9] [0-9] " * " [0-9] [0-9] ")\n```"'


def write_model(path):
    """Write a llama of two small layers, whose vocabulary is the 256 bytes."""
    gguf = import_extra("gguf")
    width, hidden, kind = 32, 64, gguf.TokenType
    vocabulary = [("<unk>", kind.UNKNOWN), ("<s>", kind.CONTROL), ("</s>", kind.CONTROL)]
    vocabulary += [*((f"<0x{byte:02X}>", kind.BYTE) for byte in range(256)), ("\N{LOWER ONE EIGHTH BLOCK}", kind.NORMAL)]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(2048)
    writer.add_embedding_length(width)
    writer.add_block_count(2)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_scores([0.0] * len(vocabulary))
    writer.add_token_types([kind for _, kind in vocabulary])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}")
    shapes = {"token_embd": (len(vocabulary), width), "output": (len(vocabulary), width), "output_norm": (width,)}
    for block in ("blk.0.", "blk.1."):
        shapes |= {f"{block}attn_{name}": (width, width) for name in ("q", "k", "v", "output")}
        shapes |= {f"{block}{name}_norm": (width,) for name in ("attn", "ffn")}
        shapes |= {f"{block}ffn_{name}": (hidden, width) for name in ("gate", "up")}
        shapes |= {f"{block}ffn_down": (width, hidden)}
    rng = np.random.default_rng(1)
    for name, shape in shapes.items():
        weights = rng.normal(scale=0.3, size=shape) if len(shape) == 2 else np.ones(shape)
        writer.add_tensor(f"{name}.weight", weights.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def llama_url(tmp_path_factory):
    import_extra("xllamacpp")
    path, port = tmp_path_factory.mktemp("model") / "tiny.gguf", free_port()
    write_model(path)
    command = [sys.executable, "-c", SERVE, path, str(port), KEY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout.readline() == "ready\n"
        yield f"http://127.0.0.1:{port}/v1"
        server.send_signal(signal.SIGKILL)


def test_llama_cpp_model_acts_over_several_turns(collect_here, llama_url, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    # Weights are random: only a grammar makes the model write code.
    policy = ChatPolicy("tiny", base_url=llama_url, parameters={"grammar": GRAMMAR, "max_tokens": 60})
    for episode in collect_here(policy, 2, max_steps=3):
        assert len(episode.actions) == 3
        for step in episode.steps[1:]:
            left, right = map(int, re.fullmatch(r"print\((\d\d) \* (\d\d)\)\n", step.action).groups())
            assert step.observation["stdout"] == f"{left * right}\n"
            assert step.decision["usage"]["completion_tokens"] >= len(step.decision["content"])


@pytest.mark.parametrize(
    ("key", "parameters", "status"), [("sk-2", {}, 401), (KEY, {"messages": [{"role": "user", "content": 1}]}, 400)]
)
def test_llama_cpp_refusal_is_shown(collect_here, llama_url, monkeypatch, key, parameters, status):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(PolicyError, match=rf"answered {status}: .*error"):
        collect_here(ChatPolicy("tiny", base_url=llama_url, parameters=parameters, retries=0), 1)
