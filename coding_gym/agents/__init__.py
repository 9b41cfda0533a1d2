"""Agents: programs in a sandbox that call a model, and models that operate the computer of a sandbox."""

from coding_gym._lazy import lazy_names

__all__ = ["Computer", "FileChange", "HarnessRun", "ModelCall", "run_harness"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Computer": "coding_gym.agents.computer",
        "FileChange": "coding_gym.agents.file_changes",
        "HarnessRun": "coding_gym.agents.harness",
        "ModelCall": "coding_gym.agents.model_calls",
        "run_harness": "coding_gym.agents.harness",
    },
)
