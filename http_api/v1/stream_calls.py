"""Calls on a stream: requests of the HTTP API that may wait, as many as a client likes over one connection.

Each is answered with the status and the body that it has over HTTP, as soon as there is an answer. When the
connection ends, all that still wait are left as requests are whose connections end.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from holdfast.wire.stream import CallAnswered
from holdfast.wire.stream import Calls as CallsMessage
from holdfast.wire.stream import StreamCall as Asked
from http_api.server import answer_bytes
from http_api.server.access_log import log_failure
from http_api.server.answer_bytes import Content
from http_api.v1.waiting import BY_PATH, WaitingCall
from lockapi import problems
from lockapi.gateway import Gateway
from lockapi.problems import ProblemError

CALLS_IN_MESSAGE_MAX: Final = 1_024
"""Calls in one message: all of them are begun before anything else is done."""
CALLS_COUNT_MAX: Final = 20_480
"""Calls of one connection without an answer: a queue has 10,000 places, and each may be given up."""
CALLS_OF_NODE_MAX: Final = 65_536
"""Calls of all connections of a node. Each takes some 10 kB while it waits."""
CALLER_SHARE: Final = 2
"""One caller may have half of these, or more precisely one in this many."""
RETRY_MS: Final = 1_000
"""Milliseconds after which a client may call again that had too many open."""


class CallCounts:
    """How many calls are open on a node, in all and of each caller."""

    def __init__(self) -> None:
        self._total = 0
        self._of_callers: Counter[str] = Counter()

    def take(self, caller: str) -> None:
        """Count a call. Raises ProblemError if there are too many."""
        if self._total >= CALLS_OF_NODE_MAX or self._of_callers[caller] >= CALLS_OF_NODE_MAX // CALLER_SHARE:
            raise _too_many("this node has reached its bound on calls of streams: ask another one")
        self._total += 1
        self._of_callers[caller] += 1

    def give_back(self, caller: str) -> None:
        """Count a call no more."""
        self._total -= 1
        self._of_callers[caller] -= 1
        if not self._of_callers[caller]:
            del self._of_callers[caller]


class OpenCalls:
    """The open calls of one connection."""

    def __init__(
        self,
        counts: CallCounts,
        say: Callable[[CallAnswered], None],
        note: Callable[[ProblemError, str, str, str], None],
    ) -> None:
        """Answer with `say`; `note` is told of each problem, with method, path and name of its call."""
        self._counts, self._say, self._note = counts, say, note
        self._open: dict[int, asyncio.Task[None]] = {}

    def begin(self, gateway: Gateway, message: CallsMessage, timeout_s: float, caller: str) -> None:
        """Carry out the calls of a message, in their order."""
        for asked in message.calls:
            if asked.number in self._open:
                continue  # it is answered once
            try:
                if len(self._open) >= CALLS_COUNT_MAX:
                    raise _too_many(f"{CALLS_COUNT_MAX} calls of this connection have no answer yet")
                self._counts.take(caller)
            except ProblemError as problem:
                self.refuse(asked, problem)
                continue
            task = asyncio.ensure_future(self._carry_out(gateway, asked, timeout_s))
            self._open[asked.number] = task
            task.add_done_callback(partial(self._ended, asked.number, caller))

    def refuse(self, asked: Asked, problem: ProblemError) -> None:
        """Answer a call that is not carried out."""
        self._answer(asked, self._problem(asked, problem))

    def end(self) -> None:
        """Leave all calls: the connection is gone."""
        for task in tuple(self._open.values()):
            task.cancel()

    async def _carry_out(self, gateway: Gateway, asked: Asked, timeout_s: float) -> None:
        try:
            waiting = _call_of(asked.path).content(gateway, asked.body.encode(), timeout_s)
            asked = replace(asked, body="")  # thousands wait, and bodies are long
            content = await waiting
        except Exception as exc:  # noqa: BLE001 - a call is answered, whatever happens
            content = self._problem(asked, exc)
        self._answer(asked, content)

    def _problem(self, asked: Asked, exc: Exception) -> Content:
        route = asked.path if asked.path in BY_PATH else "-"
        self._note(problems.of_exception(exc), "POST", route, asked.name)
        content = answer_bytes.of_problem(exc, asked.name)
        if content.is_internal:
            log_failure(exc, asked.name)
        return content

    def _answer(self, asked: Asked, content: Content) -> None:
        self._say(CallAnswered(asked.number, content.status, content.body.decode()))

    def _ended(self, number: int, caller: str, _: "asyncio.Task[None]") -> None:
        del self._open[number]
        self._counts.give_back(caller)


def _call_of(path: str) -> WaitingCall[Any]:
    """Return the call that a path stands for. Raises ProblemError."""
    try:
        return BY_PATH[path]
    except KeyError:
        raise ProblemError(
            "not-found", "this path cannot be called on a stream; docs/stream.md lists those that can"
        ) from None


def _too_many(detail: str) -> ProblemError:
    return ProblemError("overloaded", detail, retry_after_ms=RETRY_MS)
