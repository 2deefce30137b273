"""What can be asked of the state machine: one frozen struct per command, and the log entry that carries them.

A command is encoded as a MessagePack array whose first element is its tag. Tags are for ever; a new field
goes to the end, with a default. Ids and secrets come in commands: the state machine invents nothing.
"""

import msgspec

from lockstate.modes import Mode


class _Command(msgspec.Struct, frozen=True, array_like=True):
    """Base of all commands; fixes how they are encoded."""


class OpenSession(_Command, frozen=True, tag=1):
    """Open a session that lives for `ttl_ms` after its last keepalive."""

    session_id: str
    ttl_ms: int
    labels: dict[str, str] = {}
    request_id: str = ""


class KeepAlive(_Command, frozen=True, tag=2):
    """Start the session's ttl anew."""

    session_id: str


class CloseSession(_Command, frozen=True, tag=3):
    """End a session: release its holds, end its waits."""

    session_id: str
    request_id: str = ""


class Acquire(_Command, frozen=True, tag=4):
    """Ask for a lock, for a session (`session_id`) or with a lease of its own (`ttl_ms`): one of both.

    `hold_id` is the secret that the hold gets if this command is granted. `attempt_id` names this attempt: a
    repeated request carries the same `request_id` and a new attempt; `Cancel` ends only the attempt it names.
    """

    name: str
    mode: Mode
    hold_id: str
    attempt_id: str
    session_id: str = ""
    ttl_ms: int = 0
    owner: str = ""
    wait_ms: int = 0
    lock_delay_ms: int = 0
    note: str = ""
    request_id: str = ""


class Cancel(_Command, frozen=True, tag=5):
    """Undo an acquire whose client went away: end its wait, or release what it got.

    Has no effect when a later attempt of the same request took over.
    """

    hold_id: str
    attempt_id: str


class Renew(_Command, frozen=True, tag=6):
    """Start the lease of a hold anew, with another `ttl_ms` if it is not 0."""

    hold_id: str
    ttl_ms: int = 0
    request_id: str = ""


class Release(_Command, frozen=True, tag=7):
    """Give a hold back."""

    hold_id: str
    request_id: str = ""


class ForceRelease(_Command, frozen=True, tag=8):
    """End every hold of a lock, whoever has it."""

    name: str
    reason: str
    lock_delay_ms: int = 0
    request_id: str = ""


class Tick(_Command, frozen=True, tag=9):
    """Let cluster time pass: what is due expires. The entry's `now_ms` does the work."""


class Barrier(_Command, frozen=True, tag=10):
    """Mark a place in the log at which a node may answer linearizable reads."""


Command = (
    OpenSession
    | KeepAlive
    | CloseSession
    | Acquire
    | Cancel
    | Renew
    | Release
    | ForceRelease
    | Tick
    | Barrier
)


class Undecodable(msgspec.Struct, frozen=True):
    """Stands in an entry for bytes that are no command of this version. Never encoded."""


class Batch(msgspec.Struct, frozen=True):
    """The commands of one origin within an entry, in its order.

    `origin` names one run of a node process; `seqs` rise strictly within an origin for ever. A command whose
    number is not above all numbers already applied for its origin is a repetition and has no effect.
    """

    origin: str
    seqs: tuple[int, ...]
    commands: tuple[Command | Undecodable, ...]


class Entry(msgspec.Struct, frozen=True):
    """A committed log entry: commands, and the cluster time at which the leader proposed them."""

    now_ms: int
    batches: tuple[Batch, ...] = ()
