"""The commands of a stream, by which clients say there what they want (docs/stream.md).

A command is an array: its tag, then its fields; those at the end may be left out. A tag is never given to
another command, and a new field goes to the end, with a default. Fields mean what they mean in the HTTP API,
and have the same bounds: a value out of bounds is refused under its number. Anything else than a command, or
one with more fields than there are, ends the stream.

These are not the commands of the log: a node makes those of them, with ids and with what only nodes know.
"""

from typing import TypeAlias

import msgspec

from holdfast.wire.words import (
    PRIORITY_DEFAULT,
    Algorithm,
    CellField,
    HoldKind,
    IfHeld,
    Mode,
    Relation,
    Scope,
)


class _CommandPart(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """Base of the commands and their parts; fixes how they are encoded, and that nothing is ignored."""


class StreamLock(_CommandPart, frozen=True):
    """One of several locks: asked for together, held together."""

    name: str
    mode: Mode = "exclusive"
    scope: Scope = "node"


class StreamAcquire(_CommandPart, frozen=True, tag=4):
    """Ask for a lock, or for those in `locks`; then `name` is "".

    It is held for `session_id`, "" standing for the session of the stream; or with `ttl_ms` by a lease of its
    own; or, if `is_endless`, until somebody ends it. A `hold_id` of the client's own, 32 hexadecimal digits
    chosen at random, lets it give back what it never heard of.
    """

    name: str
    mode: Mode = "exclusive"
    hold_id: str = ""
    session_id: str = ""
    ttl_ms: int = 0
    owner: str = ""
    wait_ms: int = 0
    lock_delay_ms: int = 0
    note: str = ""
    scope: Scope = "node"
    locks: tuple[StreamLock, ...] = ()
    if_held: IfHeld | None = None
    value: str = ""
    is_secret: bool = False
    priority: int = PRIORITY_DEFAULT
    is_endless: bool = False


class StreamAcquirePermits(_CommandPart, frozen=True, tag=12):
    """Ask for permits of a semaphore; `limit` 0 stands for any that it has. The others are as for a lock."""

    name: str
    limit: int = 0
    permits: int = 1
    hold_id: str = ""
    session_id: str = ""
    ttl_ms: int = 0
    owner: str = ""
    wait_ms: int = 0
    lock_delay_ms: int = 0
    note: str = ""
    is_strict: bool = False
    value: str = ""
    is_secret: bool = False
    priority: int = PRIORITY_DEFAULT
    is_endless: bool = False


class StreamCampaign(_CommandPart, frozen=True, tag=14):
    """Ask to lead an election, with a value that everybody can read. The others are as for a lock."""

    name: str
    value: str
    hold_id: str = ""
    session_id: str = ""
    owner: str = ""
    wait_ms: int = 0
    if_held: IfHeld | None = None


class StreamConvert(_CommandPart, frozen=True, tag=11):
    """Change the mode of a hold."""

    hold_id: str
    mode: Mode
    wait_ms: int = 0


class StreamRenew(_CommandPart, frozen=True, tag=6):
    """Start the lease of a hold anew, with another length if `ttl_ms` is not 0; if `exact`, just that."""

    hold_id: str
    ttl_ms: int = 0
    kind: HoldKind = "lock"
    exact: bool = False


class StreamRelease(_CommandPart, frozen=True, tag=7):
    """Give a hold back; of a hold of several locks only those in `names`, unless `names` is empty."""

    hold_id: str
    names: tuple[str, ...] = ()
    kind: HoldKind = "lock"


class StreamReleaseByValue(_CommandPart, frozen=True, tag=79):
    """Give back the hold of a name that has a value."""

    name: str
    value: str
    kind: HoldKind = "lock"


class StreamRenewByValue(_CommandPart, frozen=True, tag=80):
    """Renew the hold of a name that has a value."""

    name: str
    value: str
    ttl_ms: int = 0
    kind: HoldKind = "lock"
    exact: bool = False


class StreamProclaim(_CommandPart, frozen=True, tag=15):
    """Change the value of the election that a hold leads."""

    hold_id: str
    value: str


class StreamTakeRate(_CommandPart, frozen=True, tag=16):
    """Take `cost` from a rate limit now. Only HTTP can wait for it.

    What its namespace sets may be left out: 0 and None stand for that.
    """

    name: str
    limit: int = 0
    window_ms: int = 0
    algorithm: Algorithm | None = None
    cost: int = 1


class StreamAdvanceFence(_CommandPart, frozen=True, tag=17):
    """Raise the highest token that a resource has seen."""

    name: str
    token: int


class StreamPutCell(_CommandPart, frozen=True, tag=40):
    """Write a cell. It lives with a session, for `ttl_ms`, or until it is deleted."""

    key: bytes
    value: bytes
    session_id: str = ""
    ttl_ms: int = 0


class StreamDeleteCells(_CommandPart, frozen=True, tag=41):
    """Delete the cell of a key, or those whose keys begin with it. `is_all` stands for all."""

    key: bytes
    is_prefix: bool = False
    is_all: bool = False


class StreamCellCompare(_CommandPart, frozen=True, tag=1):
    """In a transaction: what the cell has stands in this relation to `number`, or to `value`."""

    key: bytes
    of: CellField
    relation: Relation = "="
    number: int = 0
    value: bytes = b""


class StreamHoldCompare(_CommandPart, frozen=True, tag=2):
    """In a transaction: this hold is still there and has this token; 0 stands for any."""

    hold_id: str
    token: int = 0


class StreamCellPut(_CommandPart, frozen=True, tag=1):
    """In a transaction: write a cell."""

    key: bytes
    value: bytes
    session_id: str = ""
    ttl_ms: int = 0


class StreamCellDelete(_CommandPart, frozen=True, tag=2):
    """In a transaction: delete a cell, if it is there."""

    key: bytes


class StreamCellGet(_CommandPart, frozen=True, tag=3):
    """In a transaction: read a cell."""

    key: bytes


Compare: TypeAlias = StreamCellCompare | StreamHoldCompare
CellOperation: TypeAlias = StreamCellPut | StreamCellDelete | StreamCellGet


class StreamTransactCells(_CommandPart, frozen=True, tag=42):
    """Do all of `then` if every compare is true, all of `otherwise` if not."""

    compares: tuple[Compare, ...]
    then: tuple[CellOperation, ...] = ()
    otherwise: tuple[CellOperation, ...] = ()


class StreamEndWait(_CommandPart, frozen=True, tag=72):
    """End the wait of an earlier number of the same stream, if it still waits."""

    number: int


Command: TypeAlias = (
    StreamAcquire
    | StreamAcquirePermits
    | StreamCampaign
    | StreamConvert
    | StreamRenew
    | StreamRelease
    | StreamReleaseByValue
    | StreamRenewByValue
    | StreamProclaim
    | StreamTakeRate
    | StreamAdvanceFence
    | StreamPutCell
    | StreamDeleteCells
    | StreamTransactCells
    | StreamEndWait
)
"""What a session may number."""
