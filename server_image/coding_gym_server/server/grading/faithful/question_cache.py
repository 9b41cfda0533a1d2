"""Cache of the questions of tasks, which all submissions to a task are asked."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

import msgspec

from coding_gym_server.protocol.grading import Submission
from coding_gym_server.server.grading.faithful.questions import Questions

__all__ = ["QuestionCache"]

_MAX_TASKS = 512

_encoder = msgspec.msgpack.Encoder(order="deterministic")


class QuestionCache:
    """Least recently used questions by task. Concurrent requests for one task share their making."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._questions: OrderedDict[bytes, Questions] = OrderedDict()
        self._locks: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()

    async def get(self, submission: Submission, make: Callable[[bytes], Awaitable[Questions]]) -> Questions:
        """Return the questions of a submission's task; the first of several concurrent callers makes them.

        If that fails, or its caller is canceled, the next one tries.

        Args:
            submission: The submission.
            make: Makes them with a key, which depends on the secret of the task, or of this server if it has none.
        """
        task = (submission.tests, submission.reference, submission.files, submission.entry_point, submission.limits)
        secret = self._secret if submission.secret is None else submission.secret.encode()
        key = hmac.digest(secret, _encoder.encode(task), hashlib.sha256)
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            if key not in self._questions:
                self._questions[key] = await make(key)
                if len(self._questions) > _MAX_TASKS:
                    self._questions.popitem(last=False)
            self._questions.move_to_end(key)
            return self._questions[key]
