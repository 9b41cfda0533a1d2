"""Environment package for verifiers and the Environments Hub: coding_gym's tasks with hidden tests.

Add ``CodingGymEnv`` to the names below, and a model has several turns in one interpreter for each task.
"""

from verifiers.v1.harnesses.null import NullHarness

from coding_gym_trainers.verifiers import CodingGymTaskset

__all__ = ["CodingGymTaskset", "NullHarness"]
