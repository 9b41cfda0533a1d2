# /// script
# dependencies = ["httpx==0.28.1", "smolagents==1.26.0", "ipython==9.17.0", "matplotlib-inline==0.2.1", "e2b-charts==1.0.0"]
# ///
"""The code of smolagents' agents runs in a sandbox."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import pytest
from smolagents import CodeAgent, FinalAnswerTool, Tool
from smolagents.models import ChatMessage, MessageRole, Model
from smolagents.utils import AgentError

from coding_gym.code_interpreter import CodeInterpreter
from coding_gym.errors import ConfigurationError, TransportError
from coding_gym_trainers.smolagents import SandboxExecutor
from tests.support.sandbox_faults import kill_sandbox
from tests.support.timing import eventually


class Scripted(Model):
    """Model that writes the given cells, one after the other."""

    def __init__(self, *cells: str) -> None:
        super().__init__(model_id="scripted")
        self.cells = list(cells)
        self.seen: list[str] = []

    def generate(self, messages, **options):
        self.seen.append(str(messages[-1].content))
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"Thought: continue.\n<code>\n{self.cells.pop(0)}\n</code>")


class Shout(Tool):
    name = "shout"
    description = "Returns a text in capitals."
    inputs: ClassVar = {"text": {"type": "string", "description": "The text."}}
    output_type = "string"

    def forward(self, text: str) -> str:
        return text.upper()


@pytest.fixture(scope="module")
def interpreter():
    with CodeInterpreter(provider="local", preload=()) as interpreter:
        yield interpreter


@pytest.fixture
def executor(interpreter):
    with SandboxExecutor(interpreter, timeout=20) as executor:
        yield executor


def run_agent(executor, *cells, **options):
    model = Scripted(*cells)
    agent = CodeAgent(tools=[Shout()], model=model, executor=executor, verbosity_level=0, **options)
    return agent, model, agent.run("Do it.", max_steps=len(cells), additional_args={"given": {"n": (1, 2)}})


def test_agent_runs_in_sandbox(executor):
    _, model, answer = run_agent(
        executor,
        "import os\nx = given['n'][1] * 21\nprint(os.getcwd())",
        "print(shout(f'answer {x}'))",
        "final_answer({'value': x, 'pair': (1, 'zwei ✓')})",
    )
    assert answer == {"value": 42, "pair": (1, "zwei ✓")}
    assert "Execution logs" in model.seen[1]
    assert str(Path.cwd()) not in model.seen[1]
    assert "ANSWER 42" in model.seen[2]


def test_agent_runs_twice(executor):
    agent, model, first = run_agent(executor, "kept = 5\nfinal_answer(kept)")
    model.cells.append("final_answer(kept + 1)")
    assert (first, agent.run("Again.", reset=False)) == (5, 6)


def test_agent_sees_errors_and_continues(executor):
    _, model, answer = run_agent(executor, "print('before')\n1 / 0", "final_answer('done')")
    assert answer == "done"
    assert "before" in model.seen[1]
    assert "ZeroDivisionError" in model.seen[1]


def test_value_of_last_expression(executor):
    assert executor("6 * 7").output == "42"
    assert executor("None").output is None
    assert executor("'✓' * 3").output == "✓✓✓"
    executor("import PIL.Image")
    image = executor("PIL.Image.new('RGB', (3, 2), 'red')").output
    assert (image.size, image.convert("RGB").getpixel((0, 0))) == ((3, 2), (255, 0, 0))


def test_timeout_keeps_variables_and_output(interpreter):
    with SandboxExecutor(interpreter, timeout=3) as executor:
        executor("x = 1")
        with pytest.raises(AgentError, match="TimeoutError") as caught:
            executor("print('started', flush=True)\nwhile True: pass")
        assert "started" in caught.value.message
        assert executor("x").output == "1"


def test_tools_survive_death_of_interpreter(executor):
    executor.send_tools({"shout": Shout()})
    with pytest.raises(AgentError, match="ContextRestarting"):
        executor("import os\nos._exit(3)")
    assert executor("shout('still')").output == "STILL"


def test_tools_survive_timeout_that_code_ignores(interpreter):
    with SandboxExecutor(interpreter, timeout=3) as executor:
        executor.send_tools({"shout": Shout()})
        with pytest.raises(AgentError, match="variables are lost"):
            executor("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass")
        assert executor("shout('still')").output == "STILL"


@pytest.mark.parametrize("length", [10_000, 100_000, 1 << 19, 3_000_000])
def test_long_answer_is_whole(executor, length):
    executor.send_tools({"final_answer": FinalAnswerTool()})
    result = executor(f"final_answer('1' + 'é' * {length})")
    assert result.is_final_answer
    assert result.output == "1" + "é" * length


def test_floods_of_output_are_cut(executor):
    logs = executor("print('x' * 50_000_000)").logs
    assert 1000 < len(logs) < 10_000_000


def test_missing_module_of_tool_is_named(executor):
    class Lacking(Shout):
        name = "lacking"

        def forward(self, text: str) -> str:
            import no_such_module

            return no_such_module.shout(text)

    with pytest.raises(ConfigurationError, match=r"pass packages=\['no_such_module'\]"):
        executor.send_tools({"lacking": Lacking()})


def test_values_beyond_json_are_refused(executor):
    with pytest.raises(Exception, match="serialize"):
        executor.send_variables({"function": print})
    _, model, answer = run_agent(executor, "final_answer(object())", "final_answer('text')")
    assert answer == "text"
    assert "serialize" in model.seen[1]


def test_pickles_of_sandbox_are_refused(executor):
    code = "class FinalAnswerException(BaseException): pass\nraise FinalAnswerException('pickle:gASVBQ==')"
    with pytest.raises(Exception, match="Pickle data rejected"):
        executor(code)


def test_managed_agents_are_refused(executor):
    inner = CodeAgent(tools=[], model=Scripted(), executor=executor, name="inner", description="An agent.", verbosity_level=0)
    with pytest.raises(ConfigurationError, match="inner"):
        run_agent(executor, "1", managed_agents=[inner])


def test_executors_of_one_interpreter_are_separate(interpreter):
    with SandboxExecutor(interpreter) as one, SandboxExecutor(interpreter) as other:
        one("x = 1")
        with pytest.raises(AgentError, match="NameError"):
            other("x")


def test_cleanup_is_idempotent(interpreter):
    executor = SandboxExecutor(interpreter)
    executor("1")
    contexts = len(interpreter.contexts.list())
    executor.cleanup()
    executor.cleanup()
    assert len(interpreter.contexts.list()) == contexts - 1
    with pytest.raises(ConfigurationError, match="closed"):
        executor("1")


def test_options_with_interpreter_are_refused(interpreter):
    with pytest.raises(ConfigurationError, match="provider"):
        SandboxExecutor(interpreter, provider="local")


def test_lost_sandbox_is_an_error():
    with SandboxExecutor(provider="local", preload=()) as executor:
        assert executor("1").output == "1"
        running = ThreadPoolExecutor(1).submit(executor, "import time\nopen('begun', 'w').close()\ntime.sleep(60)")
        assert eventually(lambda: "begun" in [entry.name for entry in executor._interpreter.files.list()])
        kill_sandbox(executor._interpreter.sandbox)
        with pytest.raises(TransportError):
            running.result(timeout=30)
        with pytest.raises(TransportError):
            executor("1")
