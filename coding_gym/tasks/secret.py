"""The secret of a user, from which the questions of the faithful mode are drawn: the same ones in every run."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import hmac
import logging
import os
import secrets

from coding_gym.cache import cache_directory
from coding_gym.tasks.task import Task

__all__ = ["task_secret"]

_VARIABLE = "CODING_GYM_SECRET"

_log = logging.getLogger(__name__)


def task_secret(task: Task) -> str:
    """Return the secret of a task: one of the user and the content of the task, which tells nothing about other tasks.

    The user's secret is the environment variable ``CODING_GYM_SECRET``, or one that is generated once and kept in the file
    ``secret`` of the cache, ``~/.cache/coding_gym``. Who draws anew shows which answers recur.
    """
    return _derived(_user_secret(), task.content_digest)


# A tenth of the time that the client spends on a submission otherwise.
@functools.lru_cache(maxsize=4096)
def _derived(secret: str, digest: str) -> str:
    return hmac.digest(secret.encode(), digest.encode(), hashlib.sha256).hex()


def _user_secret() -> str:
    return os.environ.get(_VARIABLE) or _kept_secret()


@functools.cache
def _kept_secret() -> str:
    path = cache_directory() / "secret"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+", encoding="ascii") as file:
            # The first process writes it, and none reads a part of it.
            fcntl.flock(file, fcntl.LOCK_EX)
            if not (kept := file.read()):
                kept = secrets.token_hex(32)
                file.write(kept)
        return kept
    except OSError as error:
        _log.warning("the questions of the faithful mode will be others in the next run; set %s: %s", _VARIABLE, error)
        return secrets.token_hex(32)
