"""The same program makes the same observation in every form: environments, processes, contexts and submissions."""

from __future__ import annotations

import sys

import pytest

from tests.conformance.behaviors import BEHAVIORS, WITH_ERRORS
from tests.conformance.differences import (
    KNOWN,
    KNOWN_BEFORE_PYTHON_3_13,
    KNOWN_BETWEEN_EPISODES,
    KNOWN_BETWEEN_PROVIDERS,
    OF_THE_MACHINE,
    Comparison,
)
from tests.conformance.forms import EPISODES, FORMS, observe_environment, observe_episodes, observe_forms
from tests.support.requirements import missing, require_display

OPTIONS = {"preload": ()}


@pytest.fixture
def require_isolation(sandbox_of):
    """Function that requires the isolation for which the known differences of a provider are listed."""

    def require(provider):
        isolation = sandbox_of(provider=provider).health()["isolation"]
        if provider == "docker" and not isolation["session_users"]:
            missing("docker", f"sessions share a user: {isolation['shared_user_reason']}")
        if provider == "local" and not isolation["session_users"]:
            pytest.skip(isolation["shared_user_reason"])

    return require


def assert_same(comparison, forms):
    print(comparison)
    assert comparison.with_errors == WITH_ERRORS
    assert comparison.unknown == []
    assert comparison.obsolete == []
    assert str(comparison) == f"{len(BEHAVIORS)} behaviors, {forms} forms, 0 differences"


def test_episodes_in_shared_sandbox_are_same(require_isolation, pool):
    require_isolation("local")
    assert_same(Comparison(observe_episodes(pool), KNOWN_BETWEEN_EPISODES), len(EPISODES))


@pytest.fixture(scope="module")
def observed_environments():
    """What environments saw, by provider, as far as the tests of this module know it already."""
    return {}


@pytest.mark.timeout(600)
@pytest.mark.every_provider
def test_forms_are_same(require_isolation, screen_provider, observed_environments):
    require_isolation(screen_provider)
    observed = observe_forms(provider=screen_provider, **OPTIONS)
    observed_environments[screen_provider] = observed[FORMS[0]]
    # A local sandbox runs the Python of the tests, and the image has a new one.
    is_old = screen_provider == "local" and sys.version_info < (3, 13)
    assert_same(Comparison(observed, [*KNOWN, *(KNOWN_BEFORE_PYTHON_3_13 if is_old else ())]), len(FORMS))


@pytest.mark.timeout(300)
def test_providers_are_same(require_isolation, docker_engine, observed_environments):
    require_display()
    observed = {}
    for provider in ("docker", "local"):
        require_isolation(provider)
        observed[provider] = observed_environments.get(provider) or observe_environment(provider=provider, **OPTIONS)
    assert_same(Comparison(observed, KNOWN_BETWEEN_PROVIDERS, ignored=OF_THE_MACHINE), len(observed))


def test_names_of_behaviors_and_forms_are_right():
    assert len(BEHAVIORS) >= 150
    assert BEHAVIORS.keys() >= WITH_ERRORS | OF_THE_MACHINE
    for known in (*KNOWN, *KNOWN_BEFORE_PYTHON_3_13, *KNOWN_BETWEEN_EPISODES, *KNOWN_BETWEEN_PROVIDERS):
        assert BEHAVIORS.keys() >= {*known.behaviors}
        assert {*FORMS, "docker", "local"} >= {*known.forms}
