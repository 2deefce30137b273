"""The results of the commands of a stream, as nodes tell them and clients read them (docs/stream.md).

A result is an array: its tag, then its fields. A tag is never given to another result, and a new field goes
to the end, with a default: clients ignore what they do not know. Words are text here, for a newer node may
say one that this client does not know.
"""

from typing import TypeAlias

import msgspec


class _ResultPart(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Base of the results and their parts; fixes how they are encoded."""


class HeldLock(_ResultPart, frozen=True):
    """One of the locks of a hold."""

    name: str
    mode: str = "exclusive"
    scope: str = "node"


class StreamGranted(_ResultPart, frozen=True, tag=4):
    """It is held. `expires_in_ms` is None of what has no deadline.

    For several locks `name` is "" and `locks` lists them; `permits`, `available` and `limit` are a
    semaphore's. What the session held already has a `depth`: how many releases end it; else that is 0.
    """

    hold_id: str
    token: int
    name: str
    mode: str
    expires_in_ms: int | None
    owner: str = ""
    scope: str = "node"
    locks: tuple[HeldLock, ...] = ()
    permits: int = 0
    available: int = 0
    depth: int = 0
    limit: int = 0
    value: str = ""


class StreamQueued(_ResultPart, frozen=True, tag=5):
    """The request waits, under this `hold_id`."""

    hold_id: str
    position: int


class StreamRevocation(_ResultPart, frozen=True):
    """What was asked of a holder: to give up `name` within `ends_in_ms`, or it is forced, for `reason`.

    `ticket` is the wait for which it was asked, 0 if for none. A holder may put it off only once.
    """

    name: str
    reason: str
    ends_in_ms: int
    ticket: int = 0
    is_put_off: bool = False


class StreamRenewed(_ResultPart, frozen=True, tag=6):
    """The lease has started anew; what `revocations` name is to be given up nevertheless."""

    token: int
    expires_in_ms: int | None
    revocations: tuple[StreamRevocation, ...] = ()


class StreamReleased(_ResultPart, frozen=True, tag=7):
    """It was given back. `locks` are still held if only a part was, `depth` more releases end the rest."""

    locks: tuple[HeldLock, ...] = ()
    depth: int = 0


class StreamDone(_ResultPart, frozen=True, tag=10):
    """It was done."""


class HolderSeen(_ResultPart, frozen=True):
    """A holder that is in the way, as others may see it."""

    owner: str
    mode: str
    token: int
    expires_in_ms: int | None
    note: str
    name: str = ""
    scope: str = "node"
    kind: str = "lock"
    permits: int = 0


class CycleStep(_ResultPart, frozen=True):
    """One step of a deadlock: `owner` waits for `name`, which the next step's owner holds or waits for."""

    owner: str
    name: str
    kind: str = "lock"


class StreamRefused(_ResultPart, frozen=True, tag=11):
    """It had no effect. `code` is one of the HTTP API's, `retry_after_ms` a hint, 0 when there is none.

    `cycle` names a deadlock, `facts` are the numbers that belong to a code. `quota` says which is used up;
    with a `namespace` it is that one's, and without a quota the namespace does not allow it.
    """

    code: str
    detail: str
    holders: tuple[HolderSeen, ...] = ()
    queue_length: int = 0
    retry_after_ms: int = 0
    cycle: tuple[CycleStep, ...] = ()
    facts: dict[str, int] = {}
    namespace: str = ""
    quota: str = ""


class StreamProclaimed(_ResultPart, frozen=True, tag=13):
    """The election has the value."""

    token: int


class StreamRateTaken(_ResultPart, frozen=True, tag=14):
    """The answer of a rate limit; `at_ms` is when it was taken, by the cluster's clock."""

    allowed: bool
    limit: int
    remaining: int
    retry_after_ms: int
    reset_in_ms: int
    at_ms: int = 0
    window_ms: int = 0


class StreamFenceAdvanced(_ResultPart, frozen=True, tag=15):
    """The resource accepts this token and higher ones."""

    highest_token: int


class StreamCellWritten(_ResultPart, frozen=True, tag=40):
    """The cell has the value."""

    create_revision: int
    mod_revision: int
    version: int


class StreamCellsDeleted(_ResultPart, frozen=True, tag=41):
    """How many cells were deleted. `is_more` says that some with the prefix are left."""

    count: int
    revision: int
    is_more: bool = False


class CellSeen(_ResultPart, frozen=True):
    """A cell as it was read. `owner` is that of its session; what has no lease does not expire, None."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    owner: str = ""
    expires_in_ms: int | None = None


class StreamCellRead(_ResultPart, frozen=True, tag=42):
    """In a transaction: what was read, None if there is no such cell."""

    cell: CellSeen | None


class StreamTransacted(_ResultPart, frozen=True, tag=43):
    """A transaction was carried out, with a result for each operation of `then`, or else of `otherwise`."""

    succeeded: bool
    revision: int
    results: tuple[StreamCellWritten | StreamCellsDeleted | StreamCellRead, ...]


Result: TypeAlias = (
    StreamGranted
    | StreamQueued
    | StreamRenewed
    | StreamReleased
    | StreamDone
    | StreamRefused
    | StreamProclaimed
    | StreamRateTaken
    | StreamFenceAdvanced
    | StreamCellWritten
    | StreamCellsDeleted
    | StreamTransacted
)
"""What may become of a command."""
