"""What helps to find a mistake in a node: its newest log lines, where it is, and more lines for a while."""

import asyncio
import importlib.metadata
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any, Final

from cluster.build import this_build
from holdfast.wire.operators import DebugInfo, DebugStack, LogLevelSetJson
from http_api.server import logs
from http_api.server.call import Call, Reply
from http_api.server.log_level import LogLevel
from http_api.server.routes import Handler
from http_api.v1 import schema
from lockapi import answers
from lockapi.gateway import Gateway
from lockapi.requests.service import LogLevelRequest
from lockapi.turns import Turns

_LIBRARIES: Final = ("aiohttp", "jinja2", "msgspec", "pysyncobj", "uvloop")
_TASKS_MAX: Final = 500
"""Tasks that are looked at: a node that serves thousands of clients must not stand still for them."""
_CALLS_MAX: Final = 50
"""Calls of one stack, the innermost ones."""
_NAMES_MAX: Final = 10
"""Threads or tasks that are named of those that are at the same place."""
_PARTS_SHOWN: Final = 3
"""Parts of the path of a source file."""


def debug_handler(log_level: LogLevel, settings: Mapping[str, str]) -> Handler:
    """Return the handler of /v1/cluster/debug, of a node with these settings."""
    turns = Turns()

    async def get_debug(gateway: Gateway, call: Call) -> Reply:
        """Return what this node has for those that look for a mistake in it."""
        build, loop = this_build(), asyncio.get_running_loop()
        async with turns.turn(loop.time() + call.timeout_s) as turn:
            tasks = asyncio.all_tasks()
            task_stacks = _grouped(
                (task.get_name(), _of_task(task)) for task in islice(tasks, _TASKS_MAX) if not task.done()
            )
            info = DebugInfo(
                node_id=gateway.node.status().node_id,
                version=build.version,
                commit=build.commit,
                python=build.python,
                libraries={name: _version(name) for name in _LIBRARIES},
                settings=dict(settings),
                log_level=log_level.now,
                log_lines=logs.kept.count,
                log=logs.kept.shown(),
                threads=_grouped(_of_threads()),
                tasks_count=len(tasks),
                tasks=task_stacks,
            )
            await turn.rest()
            return Reply(answers.encode(info))

    return get_debug


def log_level_handler(log_level: LogLevel) -> Handler:
    """Return the handler of /v1/cluster/log-level."""

    async def set_log_level(gateway: Gateway, call: Call) -> Reply:
        """Log from another level on, for a while."""
        request, node_id = await schema.read(call, LogLevelRequest), gateway.node.status().node_id
        request.check(node_id)
        before = log_level.set(request.level, request.for_ms, gateway.principal.name)
        answer = LogLevelSetJson(
            node_id=node_id, level=log_level.now, before=before, ends_in_ms=log_level.ends_in_ms()
        )
        return Reply(answers.encode(answer))

    return set_log_level


@cache
def _version(library: str) -> str:
    """Return the version of a library that a node uses, empty if it is not installed."""
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _of_threads() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the threads of this process, and where they are."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():  # noqa: SLF001 - as documented; there is nothing else
        yield names.get(ident, str(ident)), _calls(frame)


def _of_task(task: "asyncio.Task[object]") -> tuple[str, ...]:
    """Return where a task waits: of each coroutine that it awaits, its line."""
    calls: list[str] = []
    awaited: Any = task.get_coro()
    # Not task.get_stack(), which knows the outermost coroutine alone.
    while (frame := getattr(awaited, "cr_frame", None)) is not None and len(calls) < _CALLS_MAX:
        calls.append(_call(frame))
        awaited = awaited.cr_await
    if awaited is not None and frame is None:
        calls.append(f"awaits {type(awaited).__name__}")
    return tuple(calls)


def _calls(frame: FrameType | None) -> tuple[str, ...]:
    """Return the calls that led to a frame, the innermost last. Names and lines only: no value is shown."""
    calls: list[str] = []
    while frame is not None and len(calls) < _CALLS_MAX:
        calls.append(_call(frame))
        frame = frame.f_back
    return tuple(reversed(calls))


def _call(frame: FrameType) -> str:
    code = frame.f_code
    file = "/".join(Path(code.co_filename).parts[-_PARTS_SHOWN:])
    return f"{file}:{frame.f_lineno} {code.co_qualname}"


def _grouped(found: Iterable[tuple[str, tuple[str, ...]]]) -> tuple[DebugStack, ...]:
    """Return what is at the same place once, the most crowded places first."""
    places: dict[tuple[str, ...], list[str]] = {}
    for name, calls in found:
        places.setdefault(calls, []).append(name)
    stacks = [
        DebugStack(tuple(sorted(names)[:_NAMES_MAX]), len(names), calls) for calls, names in places.items()
    ]
    return tuple(sorted(stacks, key=lambda stack: (-stack.count, stack.names)))
