"""One operation of the client as a value: what is sent, how its answer is read, how its effect is undone.

No I/O. `exchange.py` decides to which node an operation is sent and how often; `transport.py` sends it.
"""

import secrets
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from holdfast import wire
from holdfast.values.errors import OutcomeUnknown
from holdfast.wire.commands import Command
from holdfast.wire.results import Result

T = TypeVar("T")


class TimedAnswer(msgspec.Struct, frozen=True):
    """A good answer; by our clock, when its operation and the attempt that was answered began."""

    body: bytes
    asked_at_s: float
    attempted_at_s: float


class NumberedForm(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """The same operation as a command of a stream (docs/stream.md), which waits in no queue.

    `read` makes of its result, and of when it was asked, what the operation gives. By `wanted` is remembered
    what others had a moment ago. If nobody can be asked any more what became of its number, it is asked once
    more over HTTP: after what `prevent` returns, which leaves nothing of its effect. What `ends_hold` cannot
    know then whether it was that which ended it; what may be done once only (`is_once`) is not asked again,
    and nobody knows.
    """

    command: Command
    read: Callable[[Result, float], T]
    prevent: "Callable[[], Operation[Any]] | None" = None
    wanted: str = ""
    ends_hold: bool = False
    is_once: bool = False


class Operation(msgspec.Struct, Generic[T], kw_only=True):
    """One request, byte for byte what every repetition of it sends, and how to read its answer.

    `fields` returns what its body says, and is asked once. `wait_ms` is how long the request may wait in a
    queue; it is in the body, too. `waits_for_ever` says that this is not a deadline of the caller: without a
    node that answers, nobody wants to wait so long. `undo` returns the operation that takes back what this
    one has given, for a caller that went away. `numbered` is its form on a stream, None if it has none.
    `names` are the queues in which it may wait for its place behind others of this client.
    """

    method: str
    path: str
    read: Callable[[TimedAnswer], T]
    fields: Callable[[], Mapping[str, object]] | None = None
    always: str = ""
    wait_ms: int = 0
    waits_for_ever: bool = False
    undo: "Callable[[T], Operation[Any]] | None" = None
    numbered: NumberedForm[T] | None = None
    names: tuple[str, ...] = ()
    _written: tuple[bytes, str] | None = None

    @property
    def changes_nothing(self) -> bool:
        """Whether a lost answer leaves no doubt about its effect: there is none."""
        return self.method == "GET"

    @property
    def stands_in_queue(self) -> bool:
        """Whether it may wait in a queue, from which it has to be withdrawn. A rate limit has none."""
        return self.wait_ms > 0 and self.path != wire.RATE_TAKE

    def slice(self, poll_ms: int) -> bytes:
        """Return what is sent to be told after `poll_ms` that the request still waits."""
        return self.body[:-1] + b',"poll_ms":%d}' % poll_ms

    @property
    def body(self) -> bytes:
        """What is sent; the same each time."""
        return self._write()[0]

    @property
    def request_id(self) -> str:
        """The id by which the cluster knows a repetition; empty if it has none."""
        return self._write()[1]

    def _write(self) -> tuple[bytes, str]:
        """Return body and request id, which are made when they are needed first: a stream needs neither."""
        if self._written is None:
            fields = self.fields() if self.fields is not None else {}
            body = {key: value for key, value in fields.items() if key == self.always or _is_given(value)}
            encoded = msgspec.json.encode(body) if body else b""
            self._written = encoded, str(body.get("request_id", ""))
        return self._written


def _is_given(value: object) -> bool:
    return value not in (None, "", {})


def new_request_id() -> str:
    """Return a fresh id: no two requests in the world share one."""
    return secrets.token_hex(16)


def write(
    path: str,
    fields: Mapping[str, object] | Callable[[], Mapping[str, object]],
    read: Callable[[TimedAnswer], T],
    *,
    method: str = "POST",
    wait_ms: int = 0,
    waits_for_ever: bool = False,
    undo: Callable[[T], Operation[Any]] | None = None,
    always: str = "",
    numbered: NumberedForm[T] | None = None,
    names: tuple[str, ...] = (),
) -> Operation[T]:
    """Make a write. Fields that are None or empty are left out, for the node to choose; not `always`."""
    return Operation(
        method=method,
        path=path,
        read=read,
        fields=fields if callable(fields) else lambda: fields,
        always=always,
        wait_ms=wait_ms,
        waits_for_ever=waits_for_ever,
        undo=undo,
        numbered=numbered,
        names=names,
    )


_FIXED = frozenset([path for path in vars(wire).values() if str(path).startswith("/v1/") and "{" not in path])
"""The paths without a part in braces: those of actions, which cannot be a name's as well."""


def path_to(path: str, part: str) -> str:
    """Return a path with this in the place of its braces.

    A name that is an action as well, such as "release", is told from it by one percent-encoded letter.
    """
    before, _, rest = path.partition("{")
    after = rest.partition("}")[2]
    found = f"{before}{quote(part, safe='')}{after}"
    return f"{before}%{ord(part[0]):02X}{part[1:]}" if found in _FIXED else found


def ask(path: str, query: Mapping[str, str], read: Callable[[TimedAnswer], T]) -> Operation[T]:
    """Make a read. Query parameters that are empty are left out."""
    given = urlencode({key: value for key, value in query.items() if value})
    return Operation(method="GET", path=f"{path}?{given}" if given else path, read=read)


def decode(answer: TimedAnswer, kind: type[T]) -> T:
    """Decode an answer. It may not come from a node at all; then the outcome is not known."""
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except msgspec.DecodeError as error:
        raise OutcomeUnknown(f"the answer does not come from a Holdfast node: {error}") from error
