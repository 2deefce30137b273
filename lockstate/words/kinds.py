"""Of what kind a thing, a rate limit or an act is: commands name it, records, results and events show it."""

import enum


class HoldKind(enum.StrEnum):
    """The kind of thing that is held. The value is the word used in JSON."""

    LOCK = "lock"
    SEMAPHORE = "semaphore"
    ELECTION = "election"

    __hash__ = str.__hash__  # that of Enum is a Python function, and slow


class Algorithm(enum.StrEnum):
    """How a rate limit counts. The value is the word used in JSON."""

    FIXED_WINDOW = "fixed-window"
    SLIDING_WINDOW = "sliding-window"
    GCRA = "gcra"

    __hash__ = str.__hash__  # that of Enum is a Python function, and slow


class IfHeld(enum.StrEnum):
    """What an acquire means if its session holds just that already. The value is the word used in JSON."""

    RENEW = "renew"
    COUNT = "count"
    REFUSE = "refuse"

    __hash__ = str.__hash__


class ClusterAct(enum.StrEnum):
    """What an operator does to the cluster itself."""

    ADD = "add"
    MOVE = "move"
    REMOVE = "remove"
    TRANSFER = "transfer"
