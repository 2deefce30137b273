"""Scripts of Redis' clients run in a sandbox: what they may cost, and the way between Lua and Python.

Each run has a runtime of its own, so that nothing of one script is left for the next one. `sandbox.lua` is
what it runs in, and says what a script sees. This side keeps three rules, without which a script could end
the node:

- `_Host.__call__` never raises. An exception would become an object in Lua.
- Objects of Python have no attributes there, and no object that is one is ever in a script's reach.
- Memory is bounded by the allocator only while Lua runs. An allocation that fails in a call from Python ends
  the process, or keeps its lock for ever; so the host lifts the bound first, and Lua sets it again.
"""

import hashlib
import logging
import random
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module, resources
from types import ModuleType
from typing import Any, Final, NamedTuple

from redis_api.lua import numbers
from redis_api.protocol.errors import CommandRefused, TooMuch
from redis_api.protocol.resp import SPOKEN_AS, Failure, NoList, Reply, Status

SECONDS_MAX: Final = 0.05
"""Seconds of processor time that the scripts of one step may take: the node does nothing else meanwhile."""
INSTRUCTIONS_MAX: Final = 5_000_000
"""Instructions of a script, and what its calls into libraries cost, counted in instructions."""
MEMORY_BYTES_MAX: Final = 2 * 1024 * 1024
"""Bytes of a script, beside those of the runtime."""
_HOOK_COUNT: Final = 100
"""Instructions between two looks at the clock."""

INSTALL: Final = "pip install 'holdfast-node[redis-lua]'"
"""How a node gets what runs scripts."""

logger = logging.getLogger("redis_api")

Call = Callable[[Sequence[bytes]], Reply]
"""Carries out a command. An error is a Failure; what it raises ends the script."""


class Program(NamedTuple):
    """A script that runs in Lua."""

    source: bytes
    digest: str
    """The hash by which clients know it, with its first line "#!lua" if it had one."""
    writes: bool = True
    """Whether it may change anything."""
    says_flags: bool = False
    """Whether its first line says what it may."""


def is_installed() -> bool:
    """Return whether this node can run scripts."""
    return _library() is not None


@cache
def _library() -> Any:
    """Return the library with Lua 5.1, the language of Redis' scripts; None if it is not installed."""
    try:
        return import_module("lupa.lua51")
    except ImportError:
        return None


@cache
def _sandbox() -> tuple[bytes, ...]:
    """Return the program of the sandbox and its two libraries, compiled."""
    compile_: Any = (
        _library()
        .LuaRuntime(encoding=None, unpack_returned_tuples=True)
        .eval(b"function(text) return string.dump(assert(loadstring(text, '=sandbox'))) end")
    )
    folder = resources.files("redis_api.lua")
    return tuple(
        [compile_(folder.joinpath(f"{name}.lua").read_bytes()) for name in ("sandbox", "cjson", "cmsgpack")]
    )


def check(program: Program) -> None:
    """Compile a script. Raises CommandRefused."""
    _run(program.source, -1, (), lambda _: None, SECONDS_MAX)


def run(
    program: Program,
    keys: Sequence[bytes],
    args: Sequence[bytes],
    call: Call,
    seconds: float = SECONDS_MAX,
) -> Reply:
    """Run a script and return what it answers; an error that it raises is a Failure.

    `seconds` are what it may take. Raises CommandRefused, and what `call` raises.
    """
    kind, *found = _run(program.source, len(keys), (*keys, *args), call, seconds)
    if kind == b"done":
        return _Parts(found[0]).reply()
    assert kind == b"failed", kind
    text, line = found
    where = f"@user_script:{line}" if line else "@user_script"
    return _failure(text + f" script: {program.digest}, on {where}.".encode())


def _run(source: bytes, keys_count: int, words: Sequence[bytes], call: Call, seconds: float) -> Any:
    if seconds <= 0:
        raise too_long()
    library = _library()
    host = _Host(call)
    runtime = library.LuaRuntime(
        encoding=None,
        register_eval=False,
        register_builtins=False,
        unpack_returned_tuples=True,
        attribute_handlers=(_no_attribute, _no_attribute),
        max_memory=0,
    )
    host.runtime = runtime
    version = int("".join(f"{int(part):02x}" for part in SPOKEN_AS.split(".")), 16)
    try:
        bounds = (_HOOK_COUNT, INSTRUCTIONS_MAX, seconds, SPOKEN_AS.encode(), version)
        sandbox, *libraries = _sandbox()
        program = runtime.execute(sandbox, host, *bounds, *libraries)
        found = program(source, keys_count, *words)
    except library.LuaError as error:
        # Out of memory, or out of time: then each further instruction raises, also those of the sandbox.
        found = (b"memory" if isinstance(error, MemoryError) else b"time",)
    finally:
        runtime.set_max_memory(0)
        host.runtime = None  # the runtime knows the host: without this a cycle would be left
    if host.raised is not None:
        raise host.raised
    kind, *rest = found if isinstance(found, tuple) else (found,)
    if kind == b"syntax":
        raise CommandRefused(f"Error compiling script (new function): {rest[0].decode(errors='replace')}")
    if kind == b"time":
        raise too_long()
    if kind == b"memory":
        raise TooMuch(f"the script needed more than {MEMORY_BYTES_MAX} bytes of memory")
    return kind, *rest


def too_long() -> TooMuch:
    """Return the refusal of scripts that have taken too much time."""
    return TooMuch(f"the script took more than {SECONDS_MAX * 1000:.0f} ms, or too many instructions")


def _no_attribute(*_: object) -> None:
    raise AttributeError("objects have no attributes here")


class _Host:
    """What a script's sandbox asks of Python. It is called with a name and strings and numbers."""

    def __init__(self, call: Call) -> None:
        self.runtime: Any = None
        self.raised: Exception | None = None
        """What ended the script."""
        self._call = call
        self._random: random.Random | ModuleType = random
        self._nil: object = False

    def __call__(self, *words: Any) -> object:
        """Return a pair of what it is, and a value."""
        try:
            if words[0] == b"limit":
                self.runtime.set_max_memory(MEMORY_BYTES_MAX)
                return None
            self.runtime.set_max_memory(0)
            return self._answer(*words)
        except Exception as error:  # noqa: BLE001 - it is raised where the script was started
            self.raised = error
            return b"over", b""

    def _answer(self, name: bytes, *words: Any) -> object:
        match name:
            case b"call":
                reply = self._call(words)
                if isinstance(reply, Failure):
                    return b"error", _line(reply)
                return b"ok", self._given(reply)
            case b"sha1hex":
                return b"ok", hashlib.sha1(words[0], usedforsecurity=False).hexdigest().encode()
            case b"log":
                logger.debug("event=redis-script-log text=%r", words[0].decode(errors="replace"))
            case b"setresp":
                self._nil = False if words[0] == 2 else None  # noqa: PLR2004 - versions of RESP
            case b"random":
                return b"ok", self._random.random()
            case b"seed":
                self._random = random.Random(numbers.integer(words[0]))  # noqa: S311 - no secret
            case b"unlimit":
                pass
            case _:
                return _calculated(name, words)
        return b"ok", True

    def _given(self, reply: Reply) -> object:
        """Return a reply as a script sees it."""
        match reply:
            case None | NoList():
                return self._nil
            case int() | bytes():
                return reply
            case str():
                return reply.encode()
            case Status(text):
                return self.runtime.table_from({b"ok": text.encode()})
            case Failure():
                return self.runtime.table_from({b"err": _line(reply)})
            case Sequence():
                return self.runtime.table_from([self._given(each) for each in reply])
            case _:
                pairs = [part for key, value in reply.items() for part in (key.encode(), self._given(value))]
                return self.runtime.table_from(pairs)


def _calculated(name: bytes, words: Sequence[Any]) -> tuple[bytes, object]:
    """Return what a library makes of numbers, or that it cannot."""
    try:
        return b"ok", numbers.calculate(name, words)
    except ValueError:
        return b"error", b""


class _Parts:
    """The reply of a script, in parts, as the sandbox has made them."""

    def __init__(self, table: Any) -> None:
        self._parts = [table[at] for at in range(1, len(table) + 1)]
        self._at = 0

    def reply(self) -> Reply:
        kind, value = self._parts[self._at : self._at + 2]
        self._at += 2
        match kind:
            case b"nil":
                return None
            case b"integer":
                return numbers.integer(value)
            case b"bytes":
                found: bytes = value
                return found
            case b"status":
                return Status(value.decode(errors="replace"))
            case b"error":
                return _failure(value)
            case _:
                return [self.reply() for _ in range(value)]


def _line(failure: Failure) -> bytes:
    """Return an error as one line."""
    return f"{failure.code} {failure.text}".rstrip().encode()


def _failure(line: bytes) -> Failure:
    """Return an error of which a script has made a line."""
    code, _, text = line.decode(errors="replace").partition(" ")
    return Failure(code, text)
