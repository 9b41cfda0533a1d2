"""A combination lock: an environment with few rules, whose state can be cloned and restored."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


@dataclass
class LockSnapshot:
    """State of a lock. Releasing it again, or restoring it afterwards, is an error."""

    lock: CombinationLock
    right: int
    pressed: str
    generator: dict[str, Any] = field(repr=False)
    released: bool = False

    @property
    def nbytes(self) -> int:
        return 100 + len(self.pressed)

    def release(self) -> None:
        assert not self.released, "released twice"
        self.released = True
        self.lock.live -= 1
        if self.lock.fails_to_release:
            raise OSError("cannot release")


class CombinationLock(gym.Env):
    """Opens when its digits are pressed in order; wrong ones do not matter, but presses are limited.

    An observation is the number of right digits, the number that all pressed digits make, and a random number, which depends
    on the state of the generator. Opening it is rewarded by 1; each press costs 1/8.

    Attributes:
        restores: Number of restored snapshots.
        presses: Number of steps of all branches.
        live: Number of snapshots that are not released.
        most_live: The largest of these numbers so far.
        worn_out_after: Number of presses of all branches after which the episode is truncated: not part of the state.
        jams_after: Number of presses of all branches after which the next raises, although its digit is pressed.
        refuses_clone_of: Pressed digits of the state that cannot be cloned.
        fails_to_release: Whether snapshots raise when they are released.
    """

    def __init__(self, combination: str = "314", *, most_presses: int = 6) -> None:
        self.observation_space = spaces.Box(0, 10**9, (3,), np.int64)
        self.action_space = spaces.Text(1, charset="0123456789")
        self.combination = combination
        self.most_presses = most_presses
        self.restores = self.presses = self.live = self.most_live = 0
        self.worn_out_after: int | None = None
        self.jams_after: int | None = None
        self.refuses_clone_of: str | None = None
        self.fails_to_release = False
        self._right = 0
        self._pressed = ""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._right, self._pressed = 0, ""
        return self._observe()

    def step(self, action):
        digit = int(action)
        assert not self._over, "the episode is over"
        self.presses += 1
        self._pressed += str(digit)
        self._right += str(digit) == self.combination[self._right]
        observation, info = self._observe()
        if self.presses - 1 == self.jams_after:
            raise OSError("jammed")
        worn_out = self.worn_out_after is not None and self.presses > self.worn_out_after
        truncated = not self._opened and (worn_out or self._over)
        return observation, self._opened - 0.125, self._opened, truncated, info

    def clone_state(self) -> LockSnapshot:
        if self._pressed == self.refuses_clone_of:
            raise RuntimeError("cannot clone this state")
        self.live += 1
        self.most_live = max(self.most_live, self.live)
        return LockSnapshot(self, self._right, self._pressed, copy.deepcopy(self.np_random.bit_generator.state))

    def restore_state(self, snapshot, *, seed=None):
        assert snapshot.lock is self
        assert not snapshot.released, "restored after its release"
        self.restores += 1
        self._right, self._pressed = snapshot.right, snapshot.pressed
        self.np_random.bit_generator.state = copy.deepcopy(snapshot.generator)
        return np.array([self._right, int(self._pressed or 0), 0]), {}

    @property
    def _opened(self) -> bool:
        return self._right == len(self.combination)

    @property
    def _over(self) -> bool:
        return self._opened or len(self._pressed) == self.most_presses

    def _observe(self):
        draw = int(self.np_random.integers(10**9))
        return np.array([self._right, int(self._pressed or 0), draw]), {"right": self._right}


def replay(actions, *, seed=1, **options):
    """Return what the last of some actions returns in a new lock."""
    lock = CombinationLock(**options)
    lock.reset(seed=seed)
    return [lock.step(action) for action in actions][-1]
