"""Registration of coding_gym's environments.

Entry points are strings, so that ``EnvSpec`` is serializable and this package does not import ``coding_gym``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["register_envs", "register_when_imported"]


def register_when_imported() -> None:
    """Register the environments as soon as Gymnasium is imported, which takes too long for commands that need none of them.

    Idempotent.
    """
    if "gymnasium" in sys.modules:
        register_envs()
    elif not any(isinstance(finder, _GymnasiumFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _GymnasiumFinder())


class _GymnasiumFinder:
    """Finds Gymnasium, as the other finders do, and has the environments registered once it is executed."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != "gymnasium":
            return None
        # Finders of the protocol before Python 3.4 have no find_spec, and find no Gymnasium that others do not.
        searches = (getattr(finder, "find_spec", None) for finder in sys.meta_path if finder is not self)
        specs = (search(fullname, path, target) for search in searches if search is not None)
        spec: ModuleSpec | None = next(filter(None, specs), None)
        # Specs can be asked for without an import: this finder stays until there is one.
        if spec is not None and spec.loader is not None:
            loader, execute = spec.loader, spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                # An attribute of this loader only, which has no other modules.
                vars(loader).pop("exec_module", None)
                execute(module)
                # Not before, as the next import has another loader if this one fails.
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                register_envs()

            vars(loader)["exec_module"] = execute_and_register
        return spec


def register_envs() -> None:
    """Register the environments with Gymnasium. Idempotent."""
    import gymnasium as gym

    if "CodingEnv-v0" not in gym.registry:
        gym.register(
            id="CodingEnv-v0",
            entry_point="coding_gym.envs.coding_env:CodingEnv",
            vector_entry_point="coding_gym.envs.vector_env:CodingVectorEnv",
            nondeterministic=False,
        )
    if "CodingEnvGUI-v0" not in gym.registry:
        gym.register(
            id="CodingEnvGUI-v0",
            entry_point="coding_gym.envs.gui_env:CodingEnvGUI",
            vector_entry_point="coding_gym.envs.gui_vector_env:CodingGuiVectorEnv",
        )
    if "CodingShellEnv-v0" not in gym.registry:
        gym.register(
            id="CodingShellEnv-v0",
            entry_point="coding_gym.envs.shell_env:CodingShellEnv",
            vector_entry_point="coding_gym.envs.shell_vector_env:CodingShellVectorEnv",
        )
    if "CodingTask-v0" not in gym.registry:
        gym.register(
            id="CodingTask-v0",
            entry_point="coding_gym.envs.task_env:CodingTaskEnv",
            vector_entry_point="coding_gym.envs.task_vector_env:CodingTaskVectorEnv",
        )
