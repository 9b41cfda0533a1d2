"""Code interpreters whose interpreters have other modules than those of the tests."""

from __future__ import annotations

from coding_gym import CodeInterpreter


def test_figures_are_results_with_matplotlib_preloaded():
    with CodeInterpreter(provider="local", preload=("matplotlib.pyplot",)) as interpreter:
        (figure,) = interpreter.execute("import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()").results
    assert figure.png.startswith(b"\x89PNG")


def test_contexts_run_python_without_ipython(open_directory, monkeypatch):
    (open_directory / "sitecustomize.py").write_text("import sys\nsys.modules['IPython'] = None\n")
    monkeypatch.setenv("PYTHONPATH", str(open_directory), prepend=":")
    with CodeInterpreter(provider="local", backend="python", preload=()) as interpreter:
        assert interpreter.execute("x = 6\nx * 7").text == "42"
        assert interpreter.execute("%time 1").error.name == "SyntaxError"
