"""The command line of scripts/trace-request: what one acquire at a follower costs in Python calls."""

import argparse
import asyncio
import gc
import itertools
import logging
import platform
import secrets
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import Any, Final, Protocol

import msgspec
import uvloop
from aiohttp import web

import cluster
from cluster.config import Address, NodeConfig
from cluster.node import Node
from http_api.app import build_server
from lab.trace import call_trace
from lab.trace.call_trace import CallRecorder, CallTrace
from lockstate.words.commands.holds import Acquire, Release
from lockstate.words.ids import AttemptId, HoldId
from lockstate.words.modes import Mode
from lockstate.words.results import Granted
from scripts.lib import ports

NODES_COUNT: Final = 3
SEND: Final = "Link.send"
"""The function through which every frame leaves for a peer."""
TRIES_COUNT_MAX: Final = 10
"""How often in a row a trace may be disturbed by a heartbeat."""
WARM_UP_COUNT: Final = 20
"""Requests before the first that is counted."""
TIMEOUT_S: Final = 20.0
HELD_S: Final = 5.0
QUIET_S: Final = 0.005
"""The nodes are idle when they have called nothing for so long."""
LOCK: Final = "traces/of-one-acquire"
"""Long and odd enough to be found in the bytes of a frame."""
TTL_MS: Final = 60_000
ROOT: Final = Path(cluster.__file__).resolve().parents[1]
OWN_FILES: Final = frozenset({__file__, call_trace.__file__})

HELP: Final = """\
Start three nodes in this process and thread, ask one of the two followers for a free lock, and record every
Python call on all three nodes. Prints the medians of several runs and the most called functions of the middle
one. Compare figures only between runs on the same version of Python.

What is counted:
  Python calls        calls of Python functions of any file, and resumptions of coroutines and generators
                      (sys.setprofile); not functions written in C, not this script
  own                 those of the product's packages: not the standard library, not the Raft library
  files               files with at least one such call
  loop callbacks      calls that the event loop (uvloop) makes into Python: one for each arrival of bytes,
                      each callback and each step of a task
  frames to Link.send functions on the stack, from the one that the loop called to Link.send, both included,
                      when the leader sends the entry to the first of its followers

The lock is the same in all runs, so nothing is called for a lock that is new to the metrics.
"until the answer" ends when the caller has the answer, "until idle" when all three nodes have nothing left to
do. Timers (heartbeats, pings) are held back meanwhile. A heartbeat that falls due while a slow sync is waited
for sends the entry once more; such a request is not counted, and another one is traced in its place.
"""


class TracingError(Exception):
    """The request could not be traced."""


class DisturbedError(TracingError):
    """The leader sent the entry again amid the request, because a heartbeat was due."""


class PausableLoop(uvloop.Loop):
    """An event loop whose timers can be held back: what they do is not part of a request."""

    def __init__(self) -> None:
        super().__init__()
        self._is_holding = False
        self._held: list[Callable[[], object]] = []

    @contextmanager
    def holding_timers(self) -> Iterator[None]:
        """Let no timer fire here; afterwards those that were due do.

        For `HELD_S` at most: a request may need one, to be sent again to a node that leads by then. Raises
        DisturbedError if it took as long.
        """
        self._is_holding = True
        let_go = super().call_later(HELD_S, self._let_go)
        try:
            yield
            if not self._is_holding:
                raise DisturbedError(f"the request took longer than {HELD_S:.0f} s")
        finally:
            let_go.cancel()
            self._let_go()

    def _let_go(self) -> None:
        self._is_holding = False
        held, self._held = self._held, []
        for fire in held:
            self.call_soon(fire)

    def call_later(  # type: ignore[override]  # the stub's signature cannot be written on Python 3.11
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Call `callback` after `delay` seconds, or when timers are let go again."""

        def fire() -> None:
            if self._is_holding:
                self._held.append(fire)
            elif not handle.cancelled():
                callback(*args)

        handle = super().call_later(delay, fire, context=context)
        return handle

    def call_at(  # type: ignore[override]  # as above
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Call `callback` at `when`, or when timers are let go again."""
        return self.call_later(when - self.time(), callback, *args, context=context)

    def call_later_in_any_case(self, delay: float, callback: Callable[[], object]) -> None:
        """Call `callback` after `delay` seconds, also while other timers are held back."""
        super().call_later(delay, callback)


class Asker(Protocol):
    """How the follower is asked."""

    async def acquire(self) -> str:
        """Acquire the free lock; return the hold's id. Raises TracingError."""


class NodeAsker:
    """Asks the node itself, as a face would."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def acquire(self) -> str:
        """Acquire the free lock; return the hold's id. Raises TracingError."""
        hold_id, attempt_id = secrets.token_hex(16), secrets.token_hex(16)
        command = Acquire(LOCK, Mode.EXCLUSIVE, HoldId(hold_id), AttemptId(attempt_id), ttl_ms=TTL_MS)
        answer = await self._node.acquire(command, TIMEOUT_S)
        if not isinstance(answer.result, Granted):
            raise TracingError(f"the free lock was not granted: {answer.result}")
        return hold_id


class HttpAsker(asyncio.Protocol):
    """Asks over HTTP, with a client that adds no Python calls of its own."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: Any) -> None:
        """Keep the connection."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take the answer, which is small enough to come in one piece."""
        if self._answer is not None:
            self._answer.set_result(data)

    async def acquire(self) -> str:
        """Acquire the free lock; return the hold's id. Raises TracingError."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        body = msgspec.json.encode({"name": LOCK, "ttl_ms": TTL_MS})
        head = "POST /v1/locks/acquire HTTP/1.1\r\nHost: node\r\nContent-Type: application/json\r\n"
        self._transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answered, _, text = (await self._answer).partition(b"\r\n\r\n")
        if not answered.startswith(b"HTTP/1.1 200"):
            raise TracingError(f"the free lock was not granted: {answered!r} {text!r}")
        return str(msgspec.json.decode(text)["hold_id"])


@dataclass(frozen=True)
class TracedRun:
    """One traced request."""

    whole: CallTrace
    """Until idle."""
    answered: CallTrace
    """Until the answer."""
    append: int
    """The index of the leader's call of Link.send for the entry."""

    def figures(self) -> dict[str, tuple[int, int]]:
        """Return each figure, until the answer and until idle."""
        traces = (self.answered, self.whole)
        return {
            "Python calls": _pair(len(trace.calls) for trace in traces),
            "Python calls, own": _pair(trace.ours_count() for trace in traces),
            "files": _pair(len(trace.files()) for trace in traces),
            "files, own": _pair(len(trace.our_files()) for trace in traces),
            "loop callbacks": _pair(trace.callbacks_count() for trace in traces),
        }

    def frames(self) -> tuple[int, int]:
        """Return the frames to Link.send: all, and the product's own."""
        stack = self.whole.stack(self.append)
        return len(stack), sum(map(self.whole.is_ours, stack))


@asynccontextmanager
async def running_nodes(directory: Path) -> AsyncIterator[list[Node]]:
    """Run three nodes in this event loop, ready and with a leader."""
    base = ports.find_base(NODES_COUNT)
    pairs = ports.of_cluster(base, NODES_COUNT)
    peers = {f"n{number}": Address(ports.HOST, peer) for number, (_, peer) in enumerate(pairs, 1)}
    secret = secrets.token_bytes(32)
    nodes = [
        Node(
            NodeConfig(
                node_id=node_id,
                data_dir=directory / node_id,
                http=Address(ports.HOST, http),
                peer=Address(ports.HOST, peer),
                peers=peers,
                secret=secret,
                advertise_http=f"http://{ports.HOST}:{http}",
                # Slow, so that heartbeats seldom fall into a run.
                heartbeat_ms=300,
                election_ms_min=1000,
                election_ms_max=1500,
            )
        )
        for node_id, (http, peer) in zip(peers, pairs, strict=True)
    ]
    try:
        for node in nodes:
            await node.start()
        async with asyncio.timeout(TIMEOUT_S):
            while not all(node.status().ready for node in nodes):  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.02)
        yield nodes
    finally:
        await asyncio.gather(*(node.stop() for node in nodes))


@asynccontextmanager
async def asking(node: Node, *, over_http: bool) -> AsyncIterator[Asker]:
    """Provide the way to ask `node`."""
    if not over_http:
        yield NodeAsker(node)
        return
    loop = asyncio.get_running_loop()
    runner = web.ServerRunner(build_server(node, int(TIMEOUT_S * 1000)))
    await runner.setup()
    http = node.config.http
    assert http is not None, "a node of three listens at an address"
    try:
        await web.TCPSite(runner, http.host, http.port).start()
        _, asker = await loop.create_connection(HttpAsker, http.host, http.port)
        yield asker
    finally:
        await runner.cleanup()


async def trace_once(loop: PausableLoop, asker: Asker, node: Node) -> TracedRun:
    """Trace one request. Raises TracingError, and DisturbedError if more than the request is in the trace."""
    entry_sends: list[int] = []

    def on_send(index: int, frame: FrameType) -> None:
        """Remember the sends whose arguments contain the lock's name."""
        arguments = [value for key, value in frame.f_locals.items() if key != "self"]
        if LOCK.encode() in msgspec.msgpack.encode(arguments, enc_hook=repr):
            entry_sends.append(index)

    recorder = CallRecorder(OWN_FILES, SEND, on_send)
    hold_id = ""
    try:
        with _no_collections(), loop.holding_timers():
            recorder.start()
            try:
                hold_id = await asker.acquire()
                answered_count = len(recorder.calls)
                await _until_quiet(loop, recorder)
            finally:
                recorder.stop()
    finally:
        if hold_id:
            await node.submit(Release(HoldId(hold_id)), TIMEOUT_S)
    if len(entry_sends) != NODES_COUNT:
        is_more = len(entry_sends) > NODES_COUNT
        message = f"the request passed {SEND} {len(entry_sends)} times, not {NODES_COUNT} times"
        raise DisturbedError(message) if is_more else TracingError(message)
    # The first is the follower's, to the leader; then the leader sends the entry to each of the others.
    whole = CallTrace(recorder.calls, ROOT)
    return TracedRun(whole, whole.first(answered_count), entry_sends[1])


async def trace_undisturbed(loop: PausableLoop, asker: Asker, node: Node) -> TracedRun:
    """Trace requests until one is traced without a heartbeat. Raises TracingError."""
    for _ in range(TRIES_COUNT_MAX - 1):
        with suppress(DisturbedError):
            return await trace_once(loop, asker, node)
    return await trace_once(loop, asker, node)


async def _until_quiet(loop: PausableLoop, recorder: CallRecorder) -> None:
    """Return when nothing was called for a while."""
    quiet = loop.create_future()

    def look(seen_count: int) -> None:
        if len(recorder.calls) == seen_count:
            quiet.set_result(None)
        else:
            count = len(recorder.calls)
            loop.call_later_in_any_case(QUIET_S, lambda: look(count))

    look(-1)
    await quiet


@contextmanager
def _no_collections() -> Iterator[None]:
    """Keep the garbage collector from calling anything."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def runs_in_this_process(runs_count: int, *, over_http: bool) -> list[TracedRun]:
    """Trace requests, in nodes of this process; return the runs, the one with the fewest calls first.

    Raises:
        TracingError, TimeoutError: a request could not be traced.

    """
    logging.getLogger("cluster").setLevel(logging.ERROR)
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-trace-") as directory,
        asyncio.Runner(loop_factory=PausableLoop) as runner,
    ):
        return runner.run(trace_runs(Path(directory), runs_count, over_http=over_http))


async def trace_runs(directory: Path, runs_count: int, *, over_http: bool) -> list[TracedRun]:
    """Return the runs, the one with the fewest calls first. Raises TracingError."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, PausableLoop)
    async with running_nodes(directory) as nodes:
        leader_id = nodes[0].status().leader
        follower = next(node for node in nodes if node.config.node_id != leader_id)
        async with asking(follower, over_http=over_http) as asker:
            for _ in range(WARM_UP_COUNT):
                await trace_undisturbed(loop, asker, follower)
            runs = [await trace_undisturbed(loop, asker, follower) for _ in range(runs_count)]
    return sorted(runs, key=lambda run: len(run.whole.calls))


def report(runs: Sequence[TracedRun], top_count: int) -> Iterator[str]:
    """Yield the lines of the report."""
    figures = [run.figures() for run in runs]
    middle = runs[len(runs) // 2]
    versions = f"Python {platform.python_version()}, uvloop {metadata.version('uvloop')}"
    yield f"one acquire at a follower of three nodes; {versions}; median of {len(runs)} runs (lowest-highest)"
    yield ""
    yield f"{'':<24}{'until the answer':>22}{'until idle':>22}"
    for name in figures[0]:
        columns = zip(*(figure[name] for figure in figures), strict=True)
        yield f"{name:<24}" + "".join(f"{_spread(column):>22}" for column in columns)
    total, own = (_spread(counts) for counts in zip(*(run.frames() for run in runs), strict=True))
    yield f"{'frames to Link.send':<24}{total:>22}   own: {own}"
    yield ""
    yield "the way to Link.send:"
    for code in middle.whole.stack(middle.append):
        yield f"    {middle.whole.describe(code)}"
    yield ""
    yield f"most called, until idle (the first {top_count} of {len(middle.whole.functions())} functions):"
    for code, count in middle.whole.functions().most_common(top_count):
        yield f"{count:>7}  {middle.whole.describe(code)}"


def _spread(counts: Sequence[int]) -> str:
    """Write the median of `counts`, and their range unless they are all the same."""
    median = f"{statistics.median_high(counts):,}"
    lowest, highest = min(counts), max(counts)
    return median if lowest == highest else f"{median} ({lowest:,}-{highest:,})"


def _pair(counts: Iterator[int]) -> tuple[int, int]:
    answered, idle = counts
    return answered, idle


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/trace-request", description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--runs", type=_count, default=20, metavar="N", help="requests to trace (default: 20)"
    )
    parser.add_argument("--top", type=_count, default=20, metavar="N", help="functions to list (default: 20)")
    parser.add_argument("--http", action="store_true", help="ask over HTTP instead of through the node's API")
    parser.add_argument("--tree", action="store_true", help="print every call of the middle run, indented")
    parser.add_argument("--files", action="store_true", help="print the product's files of the middle run")
    return parser


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"must be a number above 0: {text!r}")
    return int(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    options = build_parser().parse_args(argv)
    try:
        runs = runs_in_this_process(options.runs, over_http=options.http)
    except (TracingError, TimeoutError) as error:
        print(f"scripts/trace-request: {str(error) or 'the cluster did not answer in time'}", file=sys.stderr)
        return 1
    middle = runs[len(runs) // 2].whole
    files = sorted(str(Path(name).relative_to(ROOT)) for name in middle.our_files()) if options.files else ()
    tree = middle.tree() if options.tree else ()
    for line in itertools.chain(report(runs, options.top), files, tree):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
