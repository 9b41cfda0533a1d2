"""Client of OpenEnv's ``coding_env``, as in its repository, based on ``EnvClient`` of the package ``openenv``.

A test that imports this module is skipped if ``openenv`` is not installed. Warnings of ``openenv`` are not errors.
"""

from __future__ import annotations

import warnings

from tests.support.requirements import import_extra

import_extra("openenv.core")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from openenv.core import EnvClient, GenericAction, GenericEnvClient
    from openenv.core.client_types import StepResult
    from openenv.core.env_server.types import Action, Observation, State

__all__ = ["CodeAction", "CodeObservation", "CodeState", "CodingEnv", "GenericAction", "GenericEnvClient", "StepResult"]


class CodeAction(Action):
    code: str


class CodeObservation(Observation):
    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0


class CodeState(State):
    last_exit_code: int = 0


class CodingEnv(EnvClient[CodeAction, CodeObservation, CodeState]):
    def _step_payload(self, action):
        return {"code": action.code}

    def _parse_result(self, payload):
        return StepResult(
            observation=CodeObservation(**payload["observation"]),
            reward=payload.get("reward"),
            done=bool(payload.get("done", False)),
        )

    def _parse_state(self, payload):
        return CodeState(
            episode_id=payload.get("episode_id"),
            step_count=payload.get("step_count", 0),
            last_exit_code=payload.get("last_exit_code", 0),
        )
