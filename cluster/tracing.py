"""Traces: whose part a call is (W3C Trace Context), and what this node records of it. No I/O, no library.

What is recorded is handed over when it is complete; `http_api/otlp.py` sends it to a collector. Only a
sampled call is recorded. `current` knows it wherever it asks for something, so that no signature carries it.
"""

import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Literal, NamedTuple

HEADER_PARENT: Final = "traceparent"
HEADER_STATE: Final = "tracestate"
STATUS: Final = "http.response.status_code"
"""The attribute that a call has once it is answered."""
ERROR: Final = "error.type"
"""That of what went wrong: its code."""

CALLS_PER_S_MAX: Final = 200
"""Calls that a node records in a second, whoever asks for it."""
STATE_CHARS_MAX: Final = 512
"""Characters of a `tracestate` that is passed on; so many the standard asks for. A longer one is left out."""
IDS_BYTES: Final = 24
"""Bytes of trace id and span id, as a context travels between nodes."""

_PARENT: Final = re.compile(
    r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)
_STATE: Final = re.compile(r"[ -~\t]*")
_SAMPLED: Final = 1
"""The flag that says that who calls records its part."""
_TRACE_BITS, _SPAN_BITS = 128, 64

Kind = Literal["server", "internal", "client"]


class Context(NamedTuple):
    """A place in a trace: ids in lowercase hexadecimal."""

    trace_id: str
    span_id: str
    is_sampled: bool = True
    state: str = ""
    """The `tracestate`: what others have to say of this trace, passed on as it is."""

    def packed(self) -> bytes:
        """Return it as it travels between nodes: only what is sampled does."""
        return bytes.fromhex(self.trace_id + self.span_id) + self.state.encode("ascii")

    @classmethod
    def of_packed(cls, data: bytes) -> "Context":
        """Return what another node has packed."""
        ids = data[:IDS_BYTES].hex()
        half = _TRACE_BITS // 4
        return cls(ids[:half], ids[half:], state=data[IDS_BYTES:].decode("ascii", "ignore"))


def parse(parent: str, state: str = "") -> Context | None:
    """Return the context in a `traceparent`, None if it is malformed: the standard says to ignore that.

    Version 00 has four parts; later ones may have more behind them. A `state` that cannot be passed on is
    left out, and the context counts all the same.
    """
    found = _PARENT.fullmatch(parent)
    if found is None or (found[1] == "00" and found[5] is not None):
        return None
    is_fit = len(state) <= STATE_CHARS_MAX and _STATE.fullmatch(state)
    is_sampled = bool(int(found[4], 16) & _SAMPLED)
    return Context(found[2], found[3], is_sampled, state if is_fit else "")


class Span:
    """One part of a call, with when it began and ended, in nanoseconds since 1970."""

    __slots__ = ("attributes", "context", "end_ns", "events", "kind", "name", "parent_id", "start_ns")

    def __init__(self, name: str, context: Context, parent_id: str = "", kind: Kind = "internal") -> None:
        """Begin now."""
        self.name, self.context, self.parent_id, self.kind = name, context, parent_id, kind
        self.start_ns, self.end_ns = time.time_ns(), 0
        self.attributes: dict[str, str | int] = {}
        self.events: list[tuple[str, int]] = []

    def event(self, name: str, at_ns: int = 0) -> None:
        """Say that something has happened, now or then."""
        self.events.append((name, at_ns or time.time_ns()))

    def failed(self, code: str) -> None:
        """Say what went wrong."""
        self.attributes[ERROR] = code

    def answered(self, method: str, route: str, status: int, call_id: str) -> None:
        """Say of a call what it was and how it was answered. Nothing of it names a lock, or is secret."""
        self.name = f"{method} {route}"
        self.attributes["http.request.method"], self.attributes["http.route"] = method, route
        self.attributes[STATUS] = status
        self.attributes["holdfast.request_id"] = call_id


current: Final[ContextVar[Span | None]] = ContextVar("holdfast_span", default=None)
"""The part of a recorded call in which the running code is."""


def trace_id_of(span: Span | None, parent: str) -> str:
    """Return the id of the trace of a call: as it is recorded, or else as its `traceparent` says; or ""."""
    context = span.context if span is not None else parse(parent)
    return "" if context is None else context.trace_id


class Tracer:
    """Decides which calls are recorded, and makes their spans."""

    def __init__(
        self,
        ended: Callable[[Span], None],
        share: float = 0.0,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Tell `ended` of each span that is complete. Of calls without a trace this share begins one."""
        self._ended = ended
        self._share = share
        self._now_s = now_s
        self._second, self._count = 0, 0
        """The second that it is, and how many calls of it are recorded."""

    def of_call(self, parent: str, state: str = "") -> Span | None:
        """Return the span of a call with these headers, None if it is not recorded."""
        context = parse(parent, state) if parent else None
        if context is not None:
            is_wanted = context.is_sampled
        else:
            is_wanted = self._share > 0 and random.random() < self._share  # noqa: S311 - a sample, not a secret
        if not is_wanted or not self._has_room():
            return None
        if context is not None:
            return self._child(context, "call", "server")
        return Span("call", Context(_new_id(_TRACE_BITS), _new_id(_SPAN_BITS)), kind="server")

    def _has_room(self) -> bool:
        """Count a call that is to be recorded, and whether so many of this second may be.

        Anybody can ask for it, and a call that is recorded costs more processor time.
        """
        second = int(self._now_s())
        if second != self._second:
            self._second, self._count = second, 0
        self._count += 1
        return self._count <= CALLS_PER_S_MAX

    def child(self, name: str, kind: Kind = "internal") -> Span | None:
        """Return a part of what runs now, None if that is not recorded."""
        parent = current.get()
        return None if parent is None or parent.end_ns else self._child(parent.context, name, kind)

    def of_peer(self, context: Context, name: str) -> Span:
        """Return this node's part of what another node has sent."""
        return self._child(context, name, "server")

    @staticmethod
    def _child(parent: Context, name: str, kind: Kind) -> Span:
        context = Context(parent.trace_id, _new_id(_SPAN_BITS), state=parent.state)
        return Span(name, context, parent.span_id, kind)

    def end(self, span: Span, error: str = "") -> None:
        """End a span, with the code of what went wrong, if anything did. Only the first end counts."""
        if not span.end_ns:
            if error:
                span.failed(error)
            span.end_ns = time.time_ns()
            self._ended(span)

    @contextmanager
    def within(self, name: str) -> Iterator[None]:
        """Record what is done in the block as a part of what runs now, if that is recorded."""
        span = self.child(name)
        try:
            yield
        except BaseException as error:
            if span is not None:
                self.end(span, code_of(error))
            raise
        if span is not None:
            self.end(span)


def code_of(error: BaseException) -> str:
    """Return the code of an error, as problems and metrics have it; the name of its class if it has none."""
    code = getattr(error, "code", None)
    return code if isinstance(code, str) else type(error).__name__


def _new_id(bits: int) -> str:
    """Return a random id, which is never 0: that stands for none."""
    return f"{random.randrange(1, 1 << bits):0{bits // 4}x}"  # noqa: S311 - unique, not secret
