"""The messages of a stream (docs/stream.md): arrays whose first element says what they are.

Nodes ignore nothing. Clients ignore messages that they do not know, and elements behind those they know.
"""

from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from holdfast.wire.commands import Command
from holdfast.wire.results import Result

C = TypeVar("C")
R = TypeVar("R")

VERSION: Final = 1
"""The version of the protocol."""
MSGPACK: Final = "holdfast.v1.msgpack"
JSON: Final = "holdfast.v1.json"
"""The subprotocols: how messages are encoded."""
GAP: Final = "gap"
"""The code of commands that begin behind numbers that were not applied: the one code that HTTP has not."""


class _ToNode(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """Base of what clients say."""


class StreamHello(_ToNode, frozen=True, tag=1):
    """The first message: begin a session, or go on with one whose id is given.

    With neither an id nor a ttl there is no session: such a stream is for calls.
    """

    version: int
    session_id: str
    ttl_ms: int
    labels: dict[str, str] = {}


class Commands(_ToNode, Generic[C], frozen=True, tag=2):
    """Numbered commands, from `first` on; `acked` are ranges of numbers whose final answers were seen.

    With `timeout_ms` 0 the node's own time counts.
    """

    first: int
    acked: tuple[tuple[int, int], ...]
    timeout_ms: int
    commands: tuple[C, ...]


class StreamPing(_ToNode, frozen=True, tag=4):
    """Ask whether the node is there. It keeps no session alive; an empty `Commands` does."""


class Bye(_ToNode, frozen=True, tag=5):
    """End the session and all it holds, and then the connection."""


class StreamCall(_ToNode, frozen=True):
    """A call of the HTTP API, by its path and its body. `number` tells it from the others that are open."""

    number: int
    path: str
    body: str

    @property
    def name(self) -> str:
        """Return by what logs and answers call it: its number."""
        return f"call-{self.number}"


class Calls(_ToNode, frozen=True, tag=6):
    """Calls that may wait. With `timeout_ms` 0 the node's own time counts."""

    timeout_ms: int
    calls: tuple[StreamCall, ...]


ToNode: TypeAlias = StreamHello | Commands[Command] | StreamPing | Bye | Calls


class _ToClient(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Base of what nodes say."""


class Welcome(_ToClient, frozen=True, tag=1):
    """All numbers up to `last` are applied; `window` and `bytes_max` bound what may be under way."""

    session_id: str
    last: int
    window: int
    bytes_max: int
    node: str
    leader_url: str
    revision: int
    group: int = 0
    placement_epoch: int = 0


class Results(_ToClient, Generic[R], frozen=True, tag=2):
    """The results of the numbers from `first` on."""

    first: int
    revision: int
    results: tuple[R, ...]


class WaitEnded(_ToClient, Generic[R], frozen=True, tag=3):
    """The end of a wait whose first result was `Queued`."""

    number: int
    revision: int
    result: R


class Declined(_ToClient, frozen=True, tag=4):
    """Of the commands sent together, those from `number` on were not taken; 0 is the hello or the bye."""

    number: int
    code: str
    detail: str
    retry_after_ms: int
    outcome: str


class LeaderMoved(_ToClient, frozen=True, tag=5):
    """Another node leads."""

    leader_url: str


class Stopping(_ToClient, frozen=True, tag=6):
    """This node stops."""

    grace_ms: int


class StreamPong(_ToClient, frozen=True, tag=9):
    """The answer to a ping."""


class CallAnswered(_ToClient, frozen=True, tag=10):
    """The answer to a call: the status and the body that it has over HTTP."""

    number: int
    status: int
    body: str


ToClient: TypeAlias = (
    Welcome
    | Results[Result]
    | WaitEnded[Result]
    | Declined
    | LeaderMoved
    | Stopping
    | StreamPong
    | CallAnswered
)
