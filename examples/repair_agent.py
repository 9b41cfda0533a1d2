"""Repair libraries of the suite ``repairs``, in sessions of their images.

Each task is an issue of a small library. The agent here is a script, which knows the commands that repair three of them; a
model would write the commands, and read what they print. ``submit`` has their changes graded with the tests of the release that
has the fix, in a session of its own.

Run it with ``python examples/repair_agent.py``. It requires a Docker engine. The first run downloads the releases from PyPI,
and builds the images.
"""

from __future__ import annotations

import sys

import gymnasium as gym

import coding_gym  # noqa: F401 - registers the environments
from coding_gym.errors import CodingGymError

SUBMIT = "submit"
ACTIONS = {
    "repairs/humanize": (
        r"""sed -i 's/return f"{bytes_} Byte"/return f"{bytes_:.0f} Byte"/' src/humanize/filesize.py""",
        """python -c 'import humanize; print(humanize.naturalsize(1.0), humanize.naturalsize("-1"), sep=", ")'""",
        SUBMIT,
    ),
    "repairs/iniconfig": (
        r"""sed -i 's/^    tokens = /    data = data.lstrip("\\ufeff")\n&/' src/iniconfig/_parse.py""",
        r"""python -c 'import iniconfig; print(iniconfig.IniConfig("", data="\ufeff[section]\nkey = value").sections)'""",
        SUBMIT,
    ),
    "repairs/tinydb": (
        r"""sed -i '/def set/,/else:/ s/self.cache.move_to_end/self.cache[key] = value\n            &/' tinydb/utils.py""",
        "git diff --shortstat",
        SUBMIT,
    ),
}


def main() -> None:
    """Repair three libraries, and print what the agent does."""
    try:
        env = gym.make("CodingTask-v0", suite="repairs", provider="docker", backend="bash", screen=None)
        for task_id, actions in ACTIONS.items():
            observation, _ = env.reset(seed=1, options={"task_id": task_id})
            print(f"{task_id}: {observation['prompt'].splitlines()[0]}")
            for action in actions:
                observation, reward, _, _, info = env.step(action)
                print(f"  $ {action}\n{observation['stdout']}{observation['stderr']}", end="")
                if info["graded"]:
                    print(f"{'solved' if info['solved'] else 'not solved'}: reward {reward:.0f}")
        env.close()
    except CodingGymError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
