from __future__ import annotations

import re

import numpy as np
import pytest
from PIL import Image

from coding_gym.errors import ConfigurationError
from coding_gym.wrappers import terms
from coding_gym.wrappers.terms import Step


def step(code="", *, info=None, **observation):
    return Step(action=code, observation=observation, info=info or {})


def noise(seed=0, shape=(60, 80, 3)):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


# Outcomes


def test_passed_tests_count_only_when_graded():
    graded = {"graded": True, "tests_passed": 1, "tests_total": 2}
    infos = [graded, {}, {**graded, "graded": False}, {**graded, "tests_total": 0}]
    assert [terms.PassedTests()(step(info=info)) for info in infos] == [0.5, 0, 0, 0]


def test_improvement_restarts_with_episode():
    term = terms.Improvement()
    half = step(info={"graded": True, "tests_passed": 1, "tests_total": 2})
    values = [term(half), term(half)]
    term.reset()
    assert [*values, term(half)] == [0.5, 0, 0.5]


def test_time_penalty_per_second_requires_timing():
    with pytest.raises(ConfigurationError, match="last_timing"):
        terms.TimePenalty(per="second")(step())
    with pytest.raises(ConfigurationError, match="step, second"):
        terms.TimePenalty(per="minute")


def test_gui_action_provides_its_code():
    assert terms.Length(limit=10)(Step(action={"code": "x = 1", "events": []}, observation={}, info={})) == 0.5


@pytest.mark.parametrize(
    ("term", "wrong", "hint"),
    [
        (terms.Length(), Step(action=3, observation={}, info={}), "inside of the wrappers that change actions"),
        (
            terms.ExitCode(),
            Step(action="", observation=np.zeros(3), info={}),
            "inside of the wrappers that change observations",
        ),
        (terms.Novelty(), step(stdout=np.zeros(3, np.uint8)), "inside of the wrappers that change observations"),
    ],
)
def test_term_in_wrong_wrapper_order_is_explained(term, wrong, hint):
    with pytest.raises(ConfigurationError, match=hint):
        term(wrong)


# Outputs


def test_novelty_of_both_streams_compares_pairs():
    term = terms.Novelty(streams=("stdout", "stderr"))
    printed = [("a", ""), ("", "a"), ("a", "b"), ("a", ""), ("", "")]
    assert [term(step(stdout=out, stderr=err)) for out, err in printed] == [1, 1, 1, 0, 0]
    term.reset()
    assert term(step(stdout="a", stderr="")) == 1


@pytest.mark.parametrize(
    ("metric", "text", "value"),
    [
        ("exact", "1\n2\n", 1),
        ("exact", "1\n2", 0),
        ("normalised", "1 \r\n2\t\n\n\n", 1),
        ("normalised", " 1\n2", 0),
        ("similarity", "1\n2", 1),
        ("similarity", "", 0),
        ("similarity", "1\n3", 2 / 3),
    ],
)
def test_output_match_supports_every_metric(metric, text, value):
    assert terms.OutputMatch("1\n2\n", metric=metric)(step(stdout=text)) == pytest.approx(value)


def test_long_outputs_are_compared_by_line():
    lines = [f"line {n}\n" for n in range(2000)]
    term = terms.OutputMatch("".join(lines), metric="similarity")
    assert term(step(stdout="".join(lines[:1000]))) == pytest.approx(2 / 3, abs=0.001)
    assert term(step(stdout="a" * 16_000)) == 0


# Safety

UNSAFE = {
    "import os as o": "os",
    "from os import system as s": "os.system",
    "from os import *": "os.*",
    "import os.path; os.system('x')": "os.system",
    "import os.path as p; p.os.system('x')": "os.path.os.system",
    "import random; random._os.system('x')": "random._os.system",
    "eval('1')": "eval",
    "e = eval\ne('1')": "eval",
    "list(map(eval, x))": "eval",
    "__builtins__['exec']": "exec",
    "__builtins__.__dict__['eval']": "eval",
    "vars(__builtins__)['eval']": "eval",
    "getattr(__builtins__, 'ev' + 'al')": "eval",
    "globals()['__builtins__']": "builtins",
    "__import__('os').system('x')": "os.system",
    "__import__(name)": "__import__",
    "getattr(__import__('os'), f\"{'sys'}tem\")": "os.system",
    "import importlib as i\ni.import_module('os')": "os",
    "import sys as y\ny.modules['os'].system": "os.system",
    "().__class__.__base__.__subclasses__()": "__subclasses__",
    "getattr(f, '__globals__')": "__globals__",
    "def f():\n    try:\n        pass\n    finally:\n        with open('x') as g: pass": "open",
    "x" + ".a" * 3000: "(nested too deeply)",
    "getattr(x, 'y', eval('1'))": "eval",
    "__import__('json', eval('1'))": "eval",
}

SAFE = [
    "# import os",
    "'import os; eval(1)'",
    "import re\nre.compile('x')",
    "def reopen(): pass\nreopen()",
    "from os import path\npath.join('a', 'b')",
    "import os.path\nos.path.join('a', 'b')",
    "code = requests = 1\nprint(code, requests)",
    "door.open(), company.system()",
    "self.__class__.__name__",
    "import sys\nsys.stdin.read()\nsys.exit(3)",
    "import math as os\nos.pi",
    "__import__('json').loads('1')",
    "from . import os",
    "import scipy.signal\nscipy.signal.convolve",
    "not python at all",
]


@pytest.mark.parametrize("code", UNSAFE, ids=lambda code: code[:40])
def test_dangerous_code_is_detected(code):
    assert UNSAFE[code] in terms.Safety().findings(code)
    assert terms.Safety()(step(code)) == -1


@pytest.mark.parametrize("code", SAFE)
def test_harmless_code_has_no_findings(code):
    assert terms.Safety().findings(code) == ()
    assert terms.Safety()(step(code)) == 0


def test_safety_remembers_imports_within_episode():
    term = terms.Safety(forbidden={"os.system"})
    assert [term(step(code)) for code in ("import os as o", "run = o", "run.system('ls')")] == [0, 0, -1]
    term.reset()
    assert term(step("o.system('ls')")) == 0


def test_safety_rules_are_configurable():
    term = terms.Safety(forbidden={"math"}, allowed={"math.pi"}, attributes={"secret"}, trust_unparsable=False)
    codes = ("import os", "from math import pi", "from math import e", "x.secret", "!ls")
    assert [term.findings(code) for code in codes] == [(), (), ("math.e",), ("secret",), ("(not Python)",)]


def test_many_assignments_are_analysed_quickly():
    code = "\n".join(f"a{n} = a{n + 1}" for n in range(5000))
    assert terms.Safety()(step(code)) == 0


# Quality


@pytest.mark.parametrize(
    ("code", "complexity"),
    [
        ("", 1),
        ("x = 1 if y else 2", 2),
        ("while x:\n    try:\n        pass\n    except A:\n        pass\n    except B:\n        pass", 4),
        ("a and b and c or d", 4),
        ("{k: v for k in x for v in y if v}", 4),
        ("match x:\n    case 1: pass\n    case [y]: pass\n    case _: pass", 3),
    ],
)
def test_complexity_is_cyclomatic_complexity(code, complexity):
    assert terms.Complexity(limit=101)(step(code)) == pytest.approx((complexity - 1) / 100)


@pytest.mark.parametrize("code", ["x = (", "\0", "\ud800"])
def test_unparsable_code_has_defined_costs(code):
    assert [term(step(code)) for term in (terms.Complexity(), terms.Lint())] == [0, 1]


def test_costs_are_capped_at_1():
    branches = "if x: pass\n" * 100
    assert [term(step(branches)) for term in (terms.Length(), terms.Complexity(), terms.Lint(limit=5))] == [1, 1, 1]


def test_lint_forgets_names_after_episode():
    term = terms.Lint(limit=1)
    values = [term(step("x = 1")), term(step("print(x)"))]
    term.reset()
    assert [*values, term(step("print(x)"))] == [0, 0, 1]


# Screens


def test_structural_similarity_equals_scikit_image():
    # skimage.metrics.structural_similarity(x, y, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=255)
    card, moved = np.zeros((2, 60, 80, 3), np.uint8)
    card[10:30, 20:50] = moved[12:32, 25:50] = (200, 30, 90)
    assert terms.structural_similarity(card, moved) == pytest.approx(0.8040330029426033, abs=1e-12)
    assert terms.structural_similarity(noise(), card) == pytest.approx(0.0014393167533559793, abs=1e-12)


@pytest.mark.parametrize("metric", ["ssim", "pixels"])
def test_screen_match_is_1_only_for_goal(metric, tmp_path):
    picture = noise()
    Image.fromarray(picture).save(tmp_path / "goal.png")
    for goal in (picture, str(tmp_path / "goal.png"), tmp_path / "goal.png"):
        term = terms.ScreenMatch(goal, metric=metric)
        assert term(step(screenshot=picture)) == pytest.approx(1)
        assert term(step(screenshot=noise(1))) < 0.7


def test_screen_and_goal_are_scaled_to_same_size():
    goal = np.zeros((20, 30, 3), np.uint8)
    goal[5:10] = 255
    assert terms.ScreenMatch(goal)(step(screenshot=goal.repeat(4, 0).repeat(4, 1))) == pytest.approx(1)
    assert terms.ScreenMatch(goal, size=(60, 40))(step(screenshot=goal)) == pytest.approx(1)


@pytest.mark.parametrize(
    ("goal", "options", "hint"),
    [
        (np.zeros((20, 20, 3)), {}, "uint8 of shape"),
        (np.zeros((20, 20), np.uint8), {}, "uint8 of shape"),
        (np.zeros((5, 20, 3), np.uint8), {}, "at least 11 x 11"),
        (noise(), {"metric": "looks"}, "ssim, pixels"),
        ("nowhere.png", {}, "Cannot read the goal picture nowhere.png"),
    ],
)
def test_invalid_goals_are_refused(goal, options, hint):
    with pytest.raises(ConfigurationError, match=hint):
        terms.ScreenMatch(goal, **options)


# Names


def test_every_name_makes_its_term():
    assert {name: terms.as_term(name).name for name in terms.NAMES} == {name: name for name in terms.NAMES}


@pytest.mark.parametrize(
    ("term", "hint"), [("nope", "known are tests,"), (3, "Expected a reward term"), (terms.Length, "got <class")]
)
def test_invalid_term_is_refused(term, hint):
    with pytest.raises(ConfigurationError, match=re.escape(hint)):
        terms.as_term(term)


@pytest.mark.parametrize(
    "make", [lambda: terms.Length(limit=0), lambda: terms.Complexity(limit=1), lambda: terms.Lint(limit=True)]
)
def test_invalid_limits_are_refused(make):
    with pytest.raises(ConfigurationError, match="limit= to be an integer"):
        make()


def test_openenv_terms_match_openenv_rewards():
    # Results of OpenEnv's own transforms, safety and quality together.
    both = terms.OpenEnvSafety(), terms.OpenEnvQuality()
    codes = {"x = 1": 0.1, "x = 1 #" + "." * 100: 0.0, "import os": -0.9, "import os #" + "." * 100: -1.0, "(": -0.1}
    assert {code: round(sum(term(step(code)) for term in both), 2) for code in codes} == codes
