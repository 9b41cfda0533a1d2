from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from coding_gym.errors import ConfigurationError, InvalidActionError
from coding_gym.wrappers import FencedCode, SnippetActions, TemplateActions, TokenActions
from coding_gym.wrappers.actions import fenced_blocks

# No test starts a sandbox, because none resets an environment.


@pytest.fixture
def env():
    return gym.make("CodingEnv-v0", provider="local", max_code_chars=200)


def test_snippets_serve_as_default_names(env):
    wrapped = SnippetActions(env, ["a", "b"])
    assert wrapped.names == wrapped.snippets == ("a", "b")
    assert [wrapped.action(np.int64(number)) for number in (0, 1)] == ["a", "b"]
    with pytest.raises(ValueError, match="not in tuple"):
        wrapped.action_of("c")


def test_end_token_ends_code(env):
    wrapped = TokenActions(env, ["x", "y"], length=3, join=" ")
    assert [wrapped.action(np.array(numbers)) for numbers in ([0, 1, 0], [1, 2, 0], [2, 2, 2])] == ["x y x", "y", ""]
    assert TokenActions(env, ["x", "y"], length=3, end=False).action_space == gym.spaces.MultiDiscrete([2, 2, 2])


def test_template_slots_keep_template_order(env):
    choices = {"b": ["1", "2"], "a": ["x", "y", "z"]}
    wrapped = TemplateActions(env, "${a}_n = {'$$': $b, '$$a': $a}", choices)
    assert wrapped.action_space == gym.spaces.MultiDiscrete([3, 2])
    assert wrapped.action(np.array([2, 1])) == "z_n = {'$': 2, '$a': z}"
    by_name = TemplateActions(env, "$a = $b", choices, as_dict=True)
    assert by_name.action({"a": 0, "b": np.int64(1)}) == "x = 2"


@pytest.mark.parametrize(
    ("make", "action"),
    [
        (lambda env: SnippetActions(env, ["a"]), 1),
        (lambda env: SnippetActions(env, ["a"]), "a"),
        (lambda env: TokenActions(env, ["a"], length=2), np.array([0])),
        (lambda env: TokenActions(env, ["a"], length=2), np.array([0, 2])),
        (lambda env: TemplateActions(env, "$a", {"a": ["1"]}), np.array([1])),
        (lambda env: TemplateActions(env, "$a", {"a": ["1"]}, as_dict=True), {"b": 0}),
        (FencedCode, 5),
        (FencedCode, "x" * 201),
    ],
)
def test_actions_outside_space_are_refused(env, make, action):
    with pytest.raises(InvalidActionError, match="Expected an action in"):
        make(env).action(action)


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda env: SnippetActions(env, []), "list of code"),
        (lambda env: SnippetActions(env, "print(1)"), "list of code"),
        (lambda env: SnippetActions(env, ["x" * 201]), "Expected snippets that are in"),
        (lambda env: SnippetActions(env, ["\ud800"]), "Expected snippets that are in"),
        (lambda env: TokenActions(env, [], length=1), "list of words"),
        (lambda env: TokenActions(env, "abc", length=1), "list of words"),
        (lambda env: TokenActions(env, ["a"], length=0), "length= to be an integer"),
        (lambda env: TokenActions(env, ["abc"], length=67), "201 characters long, and an action at most 200"),
        (lambda env: TemplateActions(env, "$a", {}), "found a in"),
        (lambda env: TemplateActions(env, "$a", {"a": ["1"], "b": ["1"]}), "found a in"),
        (lambda env: TemplateActions(env, "$a $", {"a": ["1"]}), "found none in"),
        (lambda env: TemplateActions(env, "$a", {"a": []}), "list of code for the slot 'a'"),
        (lambda env: TemplateActions(env, "$a", {"a": "123"}), "list of code for the slot 'a'"),
        (lambda env: TemplateActions(env, "$a$a", {"a": ["1", "x" * 101]}), "202 characters"),
        (lambda env: FencedCode(env, which="middle"), "which= to be one of last, first, all"),
        (lambda env: FencedCode(env, no_fence="raise"), "no_fence= to be one of nothing, text"),
        (lambda env: FencedCode(env, languages="python"), "languages= to be a list"),
        (lambda env: FencedCode(SnippetActions(env, ["a"])), "whose actions are text"),
        (lambda env: SnippetActions(gym.make("CodingEnvGUI-v0", provider="local"), ["a"]), "whose actions are text"),
    ],
)
def test_invalid_settings_are_refused(env, make, hint):
    with pytest.raises(ConfigurationError, match=hint):
        make(env)


SAID = "Try:\n```python\n1\n```\nor\n~~~py title=x\n2\n~~~\nin a shell\n```sh\nls\n```\nand\n```\n3"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, "3\n"),
        ({"unclosed": False}, "2\n"),
        ({"which": "first"}, "1\n"),
        ({"which": "all"}, "1\n2\n3\n"),
        ({"languages": ["sh"]}, "ls\n"),
        ({"languages": ["rust"], "no_fence": "text"}, ""),
    ],
)
def test_options_select_code_block(env, options, code):
    assert FencedCode(env, **options).action(SAID) == code


def test_text_without_fence_is_empty_by_default(env):
    assert FencedCode(env).action("print(1)") == ""
    assert FencedCode(env, no_fence="text").action("print(1)") == "print(1)"


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("````md\n```python\nx\n```\n````", [("md", "```python\nx\n```\n")]),
        ("```py\ns = '''\n    ```\n'''\n```", [("py", "s = '''\n    ```\n'''\n")]),
        ("~~~\n```\n~~~", [("", "```\n")]),
        ("<think>\n```python\na\n```\n</think>\n```python\nb\n```", [("python", "a\n"), ("python", "b\n")]),
        ("1. first\n   ```python\n   if x:\n       y\n   ```\n2. then", [("python", "if x:\n    y\n")]),
        ("> ```\n> quoted\n> ```", [("", "quoted\n")]),
        ("```{Python}\r\nx\r\n```\r\n", [("python", "x\n")]),
        ("it is `x` or ```y```", []),
        ("```\n", [("", "")]),
        ("", []),
    ],
)
def test_fences_follow_commonmark(text, blocks):
    assert fenced_blocks(text) == blocks
