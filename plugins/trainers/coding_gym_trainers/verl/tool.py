"""``CodingTool``: a tool of verl's agent loops that runs Python and keeps its state for a whole trajectory."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from PIL import Image

from coding_gym.wrappers.observations import describe_output
from coding_gym_trainers.verl.trajectories import Trajectories, TrajectoryStep

try:
    from verl.tools.base_tool import BaseTool
    from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse
    from verl.utils.rollout_trace import rollout_trace_op
except ImportError as error:
    message = f"coding_gym_trainers.verl.CodingTool requires verl: pip install verl ({error})"
    raise ImportError(message) from error

__all__ = ["CodingTool"]

_SCHEMA = {
    "type": "function",
    "function": {
        "name": "python",
        "description": "Runs Python code in an interpreter that keeps its variables and files, and returns what it prints.",
        "parameters": {
            "type": "object",
            "properties": {"code": {"type": "string", "description": "The code to run."}},
            "required": ["code"],
        },
    },
}
_FAULT = "[the sandbox failed, which says nothing about the code; the interpreter restarts, without its variables and files]"
_RESTARTED = "[the interpreter was restarted: its variables and files are lost]\n"
_NO_CODE = "[nothing was run: expected the parameter code, a string]"
_NOT_TEXT = "[nothing was run: the code is too long, or not text]"


class CodingTool(BaseTool):
    """Tool ``python(code)``: a session for each trajectory, in sandboxes that all trajectories of the process share.

    verl creates and releases an instance for every call and does not tell when a trajectory ends. So the session belongs to
    its ``agent_data``, and ends with that object, or when it has been idle for long. Request ids may repeat.

    Args:
        config: ``type: native``; ``sessions``, the maximum number of sessions at a time (64); ``idle_seconds`` after which a
            session ends (600); and options of ``AsyncCodingEnv`` and fields of ``SandboxConfig``, such as ``step_timeout: 10``
            and ``provider: docker``. The screen is an image of the response if ``screen`` is set and shows something: ``auto``,
            or ``[width, height]``; there is none by default, because only models with vision can read it.
        tool_schema: The description for the model; a function ``python`` with the parameter ``code`` if None.

    Raises:
        ConfigurationError: If an option is unknown or invalid.
    """

    def __init__(self, config: Mapping[str, Any], tool_schema: Any = None) -> None:
        options = {name: value for name, value in config.items() if name != "type"}
        self._trajectories = Trajectories(**{"screen": None, **options})
        super().__init__(dict(config), tool_schema or OpenAIFunctionToolSchema.model_validate(_SCHEMA))

    async def create(self, instance_id: str | None = None, **_: Any) -> tuple[str, Any]:
        """Return the id of an instance, which has a session only if calls have no ``agent_data``."""
        return instance_id or str(uuid.uuid4()), ToolResponse()

    @rollout_trace_op  # type: ignore[untyped-decorator]
    async def execute(
        self, instance_id: str, parameters: dict[str, Any], *, agent_data: Any = None, **_: Any
    ) -> tuple[Any, float, dict[str, Any]]:
        """Run code in the session of a trajectory.

        Args:
            instance_id: Id of the instance.
            parameters: ``code``.
            agent_data: The trajectory.

        Returns:
            The output as text, and the screen as an image; the reward 0; and ``outcome`` as in ``info`` of an environment, or
            ``not_run``.
        """
        code = parameters.get("code")
        if not isinstance(code, str):
            return ToolResponse(text=_NO_CODE), 0.0, {"outcome": "not_run"}
        if code not in self._trajectories.action_space:
            return ToolResponse(text=_NOT_TEXT), 0.0, {"outcome": "not_run"}
        key = instance_id if agent_data is None else agent_data.request_id
        step = await self._trajectories.step(key, code, owner=agent_data)
        return _response(step), 0.0, {"outcome": step.outcome}

    async def release(self, instance_id: str, **_: Any) -> None:
        """End the session of an instance, if it has one; those of trajectories continue."""
        await self._trajectories.close(instance_id)

    async def aclose(self) -> None:
        """End all sessions and remove the sandboxes, which otherwise end with this process."""
        await self._trajectories.aclose()


def _response(step: TrajectoryStep) -> Any:
    if step.observation is None:
        return ToolResponse(text=_FAULT)
    text = (_RESTARTED if step.is_restarted else "") + describe_output(step.observation)
    screenshot = step.observation.get("screenshot")
    if screenshot is None or not screenshot.any():
        return ToolResponse(text=text)
    return ToolResponse(text=text, image=[Image.fromarray(screenshot)])
