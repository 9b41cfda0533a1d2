from __future__ import annotations

import pickle

import pytest

from coding_gym import errors

ERRORS = [
    errors.ConfigurationError("a"),
    errors.PoolClosedError(),
    errors.ProviderUnavailableError(provider="docker", reason="no engine"),
    errors.ImageBuildError("no", ["line"]),
    errors.ReceiveTimeoutError(min_ready=2, arrived=1, timeout=3.0),
    errors.SnapshotError(["a thread"]),
    errors.ProtocolError("no", "CODE", status=404),
    errors.PolicyError({3: ValueError("x")}),
    errors.StepTimeoutError({"stdout": "", "stderr": "", "exit_code": 124}, {"outcome": "timeout"}),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_can_be_pickled(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy).keys() == vars(error).keys()
