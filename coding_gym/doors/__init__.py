"""Doors: ports of a session that lead to the trainer's side, and what passes through them."""

from coding_gym._lazy import lazy_names

__all__ = ["Door", "DoorLog", "DoorRequest", "DoorResponse", "Doors", "Egress", "Exchange", "ServerTarget"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Door": "coding_gym.doors.doors",
        "DoorLog": "coding_gym.doors.exchanges",
        "DoorRequest": "coding_gym.doors.targets",
        "DoorResponse": "coding_gym.doors.targets",
        "Doors": "coding_gym.doors.doors",
        "Egress": "coding_gym.doors.egress",
        "Exchange": "coding_gym.doors.exchanges",
        "ServerTarget": "coding_gym.doors.targets",
    },
)
