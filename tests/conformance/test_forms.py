"""The same program makes the same observation in every form: environments, processes, contexts and submissions."""

from __future__ import annotations

import pytest

from tests.conformance.behaviors import BEHAVIORS, WITH_ERRORS
from tests.conformance.differences import (
    KNOWN,
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


@pytest.mark.slow
def test_episodes_in_shared_sandbox_are_same(require_isolation, pool):
    require_isolation("local")
    assert_same(Comparison(observe_episodes(pool), KNOWN_BETWEEN_EPISODES), len(EPISODES))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.every_provider
def test_forms_are_same(require_isolation, screen_provider):
    require_isolation(screen_provider)
    assert_same(Comparison(observe_forms(provider=screen_provider, **OPTIONS), KNOWN), len(FORMS))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_providers_are_same(require_isolation, docker_engine):
    require_display()
    observed = {}
    for provider in ("docker", "local"):
        require_isolation(provider)
        observed[provider] = observe_environment(provider=provider, **OPTIONS)
    assert_same(Comparison(observed, KNOWN_BETWEEN_PROVIDERS, ignored=OF_THE_MACHINE), len(observed))


def test_names_of_behaviors_and_forms_are_right():
    assert len(BEHAVIORS) >= 60
    assert BEHAVIORS.keys() >= WITH_ERRORS | OF_THE_MACHINE
    for known in (*KNOWN, *KNOWN_BETWEEN_EPISODES, *KNOWN_BETWEEN_PROVIDERS):
        assert BEHAVIORS.keys() >= {*known.behaviors}
        assert {*FORMS, "docker", "local"} >= {*known.forms}
