"""EVAL and its like: which script is meant, with which keys, and what it does on an overlay."""

import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from redis_api import lua, meant
from redis_api.arguments import keys_and_args
from redis_api.client import Client
from redis_api.errors import CommandRefused
from redis_api.lua import Program
from redis_api.overlay import Act, Overlay
from redis_api.resp import Failure, Reply, Status
from redis_api.scripts import Act as Meaning
from redis_api.scripts import Script

_NOT_IN_SCRIPTS: Final = frozenset(
    b"AUTH BLPOP BRPOP CLIENT DISCARD EVAL EVALSHA EVALSHA_RO EVAL_RO EXEC HELLO MULTI PSUBSCRIBE QUIT RESET"
    b" SCRIPT SELECT SUBSCRIBE UNWATCH WATCH".split()
)
_NO_WRITES: Final = Failure("ERR", "Write commands are not allowed from read-only scripts.")


class Asked(NamedTuple):
    """What EVAL asks for."""

    script: Script | Program
    keys: Sequence[bytes]
    args: Sequence[bytes]
    writes: bool = True
    """Whether the script may change anything."""


def asked(client: Client, words: Sequence[bytes], *, by_hash: bool, writes: bool) -> Asked:
    """Read script numkeys [key ...] [arg ...]. Raises CommandRefused."""
    script: Script | Program | None
    if by_hash:
        script = client.face.scripts.get(words[0])
    else:
        _, script = client.face.scripts.load(words[0])
    if script is None:
        raise CommandRefused("No matching script. Please use EVAL.", "NOSCRIPT")
    keys, args = keys_and_args(words[1:])
    if isinstance(script, Program):
        if script.says_flags and script.writes and not writes:
            raise CommandRefused("Can not execute a script with write flag using *_ro command.")
        return Asked(script, keys, args, writes and script.writes)
    if len(keys) < script.keys_count or len(args) < script.args_count:
        raise CommandRefused(f"this script needs {script.keys_count} keys and {script.args_count} arguments")
    if not writes and script.act is not Meaning.REMAINING:
        raise CommandRefused(_NO_WRITES.text)
    return Asked(script, keys, args, writes)


def evaluating(*, by_hash: bool, writes: bool) -> Act:
    """Return what EVAL and its like do in a transaction."""

    def evaluate(overlay: Overlay, args: Sequence[bytes]) -> Reply:
        return _run(overlay, asked(overlay.client, args, by_hash=by_hash, writes=writes))

    return evaluate


def program_of(one: Asked) -> Callable[[Overlay], Reply]:
    """Return what a script does as a program, which runs several times if other changes come first."""
    return lambda overlay: _run(overlay, one)


def _run(overlay: Overlay, one: Asked) -> Reply:
    """Do what a script does. Raises CommandRefused, ProblemError; then nothing has changed."""
    script = one.script
    if isinstance(script, Script):
        return meant.run(overlay, script, one.keys, one.args)
    began_us, began_s = time.time_ns() // 1000, time.thread_time()

    def call(words: Sequence[bytes]) -> Reply:
        name = words[0].upper()
        if name in _NOT_IN_SCRIPTS:
            return Failure("ERR", "This Redis command is not allowed from script")
        if name == b"TIME":
            return [str(part).encode() for part in divmod(began_us, 1_000_000)]
        if name == b"PING":
            return words[1] if len(words) > 1 else Status("PONG")
        row = overlay.row(name)
        if row is not None and not row.takes(len(words)):
            return Failure("ERR", "Wrong number of args calling Redis command from script")
        if row is not None and row.writes and not one.writes:
            return _NO_WRITES
        return overlay.call(words)

    try:
        with overlay.all_or_nothing(one.args):
            return lua.run(script, one.keys, one.args, call, lua.SECONDS_MAX - overlay.scripts_s)
    finally:
        took_s = time.thread_time() - began_s
        overlay.scripts_s += took_s
        overlay.client.face.pace.took(took_s)
