"""The kinds of things that are held: commands name them, results and records show them."""

import enum


class HoldKind(enum.StrEnum):
    """The kind of thing that is held. The value is the word used in JSON."""

    LOCK = "lock"
    SEMAPHORE = "semaphore"
    ELECTION = "election"

    __hash__ = str.__hash__  # that of Enum is a Python function, and slow
