"""Run a node: the one place that knows all parts, from configuration to signals."""

import asyncio
import dataclasses
import gc
import logging
import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import uvloop
from aiohttp import web

from cluster.build import this_build
from cluster.config import NodeConfig, load
from cluster.errors import IdentityRefused, NodeFailed, StartupError, advice_on
from cluster.file_watch import FileWatch
from cluster.node import Node
from cluster.observing import memory
from cluster.observing.samples import Sample
from cluster.storage.disk_space import DiskSpace, disk_space
from cluster.storage.forked_child import Child
from cluster.storage.freed_memory import FreedMemory
from cluster.tracing import Tracer
from http_api import (
    checking,
    listeners,
    redis_face,
    restoring,
    service_manager,
    signals,
    starting,
    tls_watch,
    tokens_watch,
)
from http_api.app import build_server
from http_api.insecure_log import InsecureLog
from http_api.listeners import Listeners
from http_api.ready_log import ReadyLog
from http_api.server import logs
from http_api.server.authentication import Authentication
from http_api.server.callers import Callers
from http_api.server.connection_limits import LOCAL_COUNT_MAX, SPARE_COUNT_MAX, PlaceLimits
from http_api.server.connections import HttpServer
from http_api.server.request_rates import RequestRates
from http_api.server.start_gate import StartGate
from http_api.starting import started
from http_api.tls_watch import TlsWatch
from http_api.tokens_watch import TokensWatch
from http_api.ui.activity import Activity, Totals
from lockapi.allowed_names import allowed
from lockapi.gateway import Gateway
from redis_api.server import RedisServer

if TYPE_CHECKING:
    from http_api.otlp import SpanExport

logger = logging.getLogger("http_api")

_FILES_RESERVED = 200 + SPARE_COUNT_MAX + LOCAL_COUNT_MAX
"""Files that are not connections of clients: journal, snapshots, peers, strangers at the peers' port; and
connections for probes and of this machine."""
_BACKLOG_MAX = 1024
"""Connections that the kernel keeps for the node. It accepts them all before it can refuse any."""
_BACKLOG_MIN, _BACKLOG_SHARE = 128, 8
"""Where few files may be open, one of so many is for those, but no fewer than this."""
_FAILED_S = 15
"""Seconds that a node which broke has for closing."""
_CLOSE_S = 2.0
"""Seconds that open calls have when the node is told to stop. A client cut off does not know the outcome."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a node until it is told to stop or breaks; return the exit code."""
    signals.ignore_until_handled()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold the secret and every hold id
    words = sys.argv[1:] if argv is None else argv
    try:
        if words[:1] in (["restore"], ["recover"]):
            return restoring.run(words, os.environ)
        if checking.is_asked(words):
            return checking.run(words, os.environ)
        config = load(words, os.environ)
        logs.set_up(config.log_level, config.log_format)
        _tell_start(config)
        return uvloop.run(_run(config))
    except (StartupError, NodeFailed) as exc:
        _tell_end(exc, exc.exit_code)
        return exc.exit_code
    except Exception as exc:  # noqa: BLE001 - whatever it is, it must not pass for a wrong configuration
        traceback.print_exception(exc)
        return NodeFailed.exit_code


def _tell_start(config: NodeConfig) -> None:
    """Log what starts, and how much it has to read: the first line of a node's log."""
    build = this_build()
    try:
        space = disk_space(config.data_dir)
    except OSError:  # why it cannot be read is said when it is opened
        space = DiskSpace()
    logger.info(
        "event=starting node_id=%s version=%s commit=%s python=%s rules=%d directory=%r snapshot_bytes=%d"
        " journal_bytes=%d",
        config.node_id,
        build.version,
        build.commit or "-",
        build.python,
        build.rules,
        str(config.data_dir.absolute()),
        space.snapshot,
        space.journal,
    )


async def _run(config: NodeConfig) -> int:
    """Run a node until it is told to stop; return the exit code. Raises StartupError, NodeFailed."""
    if not config.state_bytes_max:
        config = dataclasses.replace(config, state_bytes_max=memory.state_bytes_max())
    for warning in config.warnings:
        logger.warning("event=config-warning detail=%r", warning)
    caught = signals.Signals(asyncio.get_running_loop())
    tls, tokens = tls_watch.watch_of(config), tokens_watch.watch_of(config)
    export = starting.export_of(config)
    # Bound first: an address in use is found before the data directory is touched.
    with listeners.bound(config) as doors:
        config = doors.told(config)
        if export is None:
            return await _run_at(doors, config, caught, tls, tokens)
        export.start()
        try:
            return await _run_at(doors, config, caught, tls, tokens, export=export)
        finally:
            await asyncio.to_thread(export.stop)


async def _run_at(
    doors: Listeners,
    config: NodeConfig,
    caught: signals.Signals,
    tls: TlsWatch | None,
    tokens: TokensWatch | None,
    *,
    export: "SpanExport | None" = None,
) -> int:
    """Run a node at these sockets; return the exit code. Raises StartupError, NodeFailed."""
    http_warning = listeners.exposure_warning(config, doors.addresses)
    redis_warning = listeners.exposure_warning(config, doors.redis_addresses, "redis")
    tracer = None if export is None else Tracer(export.take, config.trace_share)
    node = Node(config, child=Child(), build=this_build(), tracer=tracer)
    asyncio.get_running_loop().set_exception_handler(partial(_on_uncaught, node))
    # From here on clients are told how far the start is; nothing else reaches the node.
    gate = StartGate(lambda: node.loading)
    now_s = asyncio.get_running_loop().time
    activity = Activity(lambda: Totals(*node.metrics.contention.grants_and_waits), now_s)
    server, redis, make_redis = _servers_of(
        node, config, tls, tokens, gate=gate, activity=activity, tracer=tracer, export=export
    )
    runner = web.ServerRunner(server, shutdown_timeout=_CLOSE_S)
    await runner.setup()
    await doors.serve(server, runner, _backlog())
    await doors.serve_redis(make_redis, _backlog())
    try:
        has_started = await started(node, caught.stop_asked)
    finally:
        if not node.loading.is_over:
            await doors.stop()
            await redis.stop(_CLOSE_S)
            await runner.cleanup()
    if has_started:
        caught.reload_with(partial(_reload, node, tls, tokens))
        watches = [watch for watch in (tls, tokens) if watch is not None]
        for watch in watches:
            watch.start()
        calm_collector()
        gate.open()
        _tell_readiness(node, config, doors.urls, [http_warning, redis_warning, node.peer_warning], activity)
        await _run_until_stopped(node, doors, runner, redis, caught, watches=watches)
    logger.info("event=stopped node_id=%s", config.node_id)
    return 0


async def _run_until_stopped(
    node: Node,
    doors: Listeners,
    runner: web.ServerRunner,
    redis: RedisServer,
    caught: signals.Signals,
    *,
    watches: Sequence[FileWatch],
) -> None:
    """Let a node that has started run, and stop it when it is told to. Raises NodeFailed, IdentityRefused."""
    freed = FreedMemory()
    freed.begin()
    failure = await _until_stopped(node, caught.stop_asked)
    service_manager.tell("STOPPING=1")
    await doors.stop()
    if failure is None:
        # While this node still answers, so that its clients do not notice the change of leader.
        await node.hand_over()
    else:
        _end_within(_FAILED_S)
    node.begin_shutdown()
    await redis.stop(_CLOSE_S)
    await runner.cleanup()  # open calls get their answers from a node that still runs
    freed.stop()
    for watch in watches:
        await watch.stop()
    if node.failure is None:
        await node.stop()
    # A node may also have broken since it was told to stop.
    if node.failure is not None:
        await _close_failed(node)
        raise _as_failure(node.failure)


def _servers_of(
    node: Node,
    config: NodeConfig,
    tls: TlsWatch | None,
    tokens: TokensWatch | None,
    *,
    gate: StartGate,
    activity: Activity,
    tracer: Tracer | None,
    export: "SpanExport | None",
) -> tuple[HttpServer, RedisServer, Callable[[], asyncio.Protocol]]:
    """Return the servers of `node` for HTTP and for clients of Redis, behind its gate."""
    gateway = Gateway(node, allowed=allowed(config.allow_priority, config.allow_no_deadline))
    authentication = Authentication(gateway, tokens.samples if tokens is not None else tuple)
    if tokens is not None:
        tokens.serve(authentication)
    callers = Callers((*config.hosts, socket.gethostname()), config.allow_origins)
    rates = RequestRates(config.requests_per_second)
    others: list[Callable[[], Iterable[Sample]]] = [] if export is None else [export.samples]
    server = build_server(
        node,
        config.request_timeout_ms,
        _room_limits(config),
        callers,
        tls=tls.door if tls is not None else None,
        authentication=authentication,
        rates=rates,
        gate=gate,
        activity=activity.rates,
        settings=config.shown,
        tracer=tracer,
        others=lambda: chain.from_iterable([samples() for samples in others]),
    )
    redis, make = redis_face.build(
        config.request_timeout_ms,
        server,
        gateway,
        authentication,
        rates,
        starting=lambda: str(node.loading) if gate.is_closed else "",
    )
    if config.redis is not None:
        others.append(redis.samples)
    return server, redis, make


def _reload(node: Node, *watches: FileWatch | None) -> None:
    """Read again what can change while the node runs: the files of secret, TLS and tokens, as it has them."""
    given = [watch for watch in (*watches, node.peer_tls_watch) if watch is not None]
    for watch in given:
        watch.read_now()
    if not given or node.has_secret_file:
        node.read_secret()


def _on_uncaught(node: Node, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what a callback raised and nobody caught. Memory that ran out there left something half done."""
    error = context.get("exception")
    if isinstance(error, MemoryError):
        node.broke(error)
    loop.default_exception_handler(context)


def _end_within(seconds: int) -> None:
    """Let this process end by then whatever happens: what broke may keep it from closing in order."""
    signal.signal(signal.SIGALRM, lambda *_: os._exit(NodeFailed.exit_code))
    signal.alarm(seconds)


def _tell_end(error: BaseException, exit_code: int) -> None:
    """Say in the last line why this node ends and what to do: in a sentence, or in JSON as an event."""
    advice = advice_on(error)
    handlers = logging.getLogger().handlers
    if any(isinstance(handler.formatter, logs.JsonFormatter) for handler in handlers):
        logger.critical("event=ended exit_code=%d reason=%r advice=%r", exit_code, str(error), advice)
    else:
        print(f"holdfast-node: {error}{'. ' if advice else ''}{advice}", file=sys.stderr)


async def _close_failed(node: Node) -> None:
    """Close what is left of a broken node, whatever else goes wrong."""
    try:
        async with asyncio.timeout(_CLOSE_S):
            await node.stop()
    except Exception:
        logger.exception("event=close-failed")


def _as_failure(error: BaseException) -> NodeFailed | IdentityRefused:
    """Return what broke a node as what it ends with."""
    return error if isinstance(error, NodeFailed | IdentityRefused) else NodeFailed(repr(error))


async def _until_stopped(node: Node, stop_asked: asyncio.Event) -> BaseException | None:
    """Wait until the node is told to stop, and return None, or until it breaks, and return the failure."""
    stopping = asyncio.ensure_future(stop_asked.wait())
    failing = asyncio.ensure_future(node.wait_failed())
    await asyncio.wait({stopping, failing}, return_when=asyncio.FIRST_COMPLETED)
    failure = failing.result() if failing.done() else None
    stopping.cancel()
    failing.cancel()
    return failure


def _room_limits(config: NodeConfig) -> PlaceLimits:
    """Return how many connections clients may have, and for how long they may be quiet."""
    return PlaceLimits(
        count_max=_connections_count_max(),
        per_address_max=config.connections_per_address,
        head_s=config.head_timeout_ms / 1000,
        idle_s=config.idle_timeout_ms / 1000,
    )


def _connections_count_max() -> int:
    """Raise the limit of open files as far as allowed; return how many of them clients may take."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max(min(PlaceLimits().count_max, hard - _FILES_RESERVED - _backlog()), 1)


def _backlog() -> int:
    """Return how many connections may wait to be accepted."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(_BACKLOG_MAX, max(_BACKLOG_MIN, hard // _BACKLOG_SHARE))


def calm_collector() -> None:
    """Make full garbage collections rare and cheap: what a node keeps has no cycles, and pauses hurt."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 50)


def _tell_readiness(
    node: Node, config: NodeConfig, urls: str, warnings: Sequence[str], activity: Activity
) -> None:
    """Log where this node listens, and from now on whether it is ready, and what it is warned of.

    As often as that is looked at, `activity` looks at the counters.
    """
    ready_log = ReadyLog(node, config, urls)
    ready_log.listening()
    insecure_log = InsecureLog(asyncio.get_running_loop().time, warnings)

    def look() -> None:
        ready_log.look()
        insecure_log.look()
        activity.look()

    look()
    node.parts.upkeep.on_look = look


if __name__ == "__main__":
    sys.exit(main())
