"""EVAL and SCRIPT: which script is meant, with which keys, and what it does on an overlay."""

import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from redis_api.keys import known_scripts
from redis_api.keys.overlay import Act, Overlay
from redis_api.lua import sandbox
from redis_api.lua.sandbox import Program
from redis_api.lua.scripts import Meaning, Script
from redis_api.protocol.arguments import fits_arity, keys_and_args
from redis_api.protocol.errors import CommandRefused, not_supported, shown, wrong_arity
from redis_api.protocol.resp import OK, Failure, Reply, Status
from redis_api.shared.client import Client


class Form(NamedTuple):
    """A command that runs a script."""

    by_hash: bool = False
    writes: bool = True
    """Whether the script may change anything."""


FORMS: Final = {
    b"EVAL": Form(), b"EVALSHA": Form(by_hash=True),
    b"EVAL_RO": Form(writes=False), b"EVALSHA_RO": Form(by_hash=True, writes=False),
}  # fmt: skip
"""The commands that run scripts."""
_NOT_IN_SCRIPTS: Final = FORMS.keys() | (
    b"AUTH BLPOP BRPOP CLIENT DISCARD EXEC HELLO MULTI PSUBSCRIBE QUIT RESET SCRIPT SELECT SUBSCRIBE UNWATCH"
    b" WATCH".split()
)
_NO_WRITES: Final = Failure("ERR", "Write commands are not allowed from read-only scripts.")


class Asked(NamedTuple):
    """What EVAL asks for."""

    script: Script | Program
    keys: Sequence[bytes]
    args: Sequence[bytes]
    writes: bool = True
    """Whether the script may change anything."""


async def script(client: Client, args: list[bytes]) -> Reply:
    """SCRIPT LOAD | EXISTS | FLUSH."""
    scripts = client.face.scripts
    match args[0].upper(), args[1:]:
        case b"LOAD", [source]:
            return await load(client, source)
        case b"EXISTS", [_, *_] as digests:
            return [int(scripts.get(digest) is not None) for digest in digests]
        case b"FLUSH", [] | [_]:
            scripts.flush()
            return OK
        case (b"LOAD" | b"EXISTS" | b"FLUSH") as word, _:
            raise wrong_arity(f"script|{word.decode()}")
    raise not_supported(f"SCRIPT {shown(args[0])}")


async def load(client: Client, source: bytes) -> str:
    """Know a script from now on, and return its hash. One that has to be compiled waits for its turn.

    Raises CommandRefused.
    """
    if client.face.scripts.is_new(source):
        await turn(client)
    return _loaded(client, source)[0]


async def turn(client: Client) -> None:
    """Wait until a script may run. Raises CommandRefused if that would take too long."""
    await client.face.pace.wait(client.timeout_s / 2)


def _loaded(client: Client, source: bytes) -> tuple[str, Script | Program]:
    """Know a script from now on; to compile it is a part of the time of scripts. Raises CommandRefused."""
    began_s = time.thread_time()
    try:
        return client.face.scripts.load(source)
    finally:
        client.face.pace.took(time.thread_time() - began_s)


def asked(client: Client, words: Sequence[bytes], form: Form) -> Asked:
    """Read script numkeys [key ...] [arg ...]. Raises CommandRefused."""
    script: Script | Program | None
    if form.by_hash:
        script = client.face.scripts.get(words[0])
    else:
        script = client.face.scripts.of(words[0]) or _loaded(client, words[0])[1]
    if script is None:
        raise CommandRefused("No matching script. Please use EVAL.", "NOSCRIPT")
    keys, args = keys_and_args(words[1:])
    if isinstance(script, Program):
        if script.says_flags and script.writes and not form.writes:
            raise CommandRefused("Can not execute a script with write flag using *_ro command.")
        return Asked(script, keys, args, form.writes and script.writes)
    if len(keys) < script.keys_count or len(args) < script.args_count:
        raise CommandRefused(f"this script needs {script.keys_count} keys and {script.args_count} arguments")
    if not form.writes and script.act is not Meaning.REMAINING:
        raise CommandRefused(_NO_WRITES.text)
    return Asked(script, keys, args, form.writes)


def evaluating(form: Form) -> Act:
    """Return what EVAL and its like do in a transaction."""

    def evaluate(overlay: Overlay, args: Sequence[bytes]) -> Reply:
        if overlay.scripts_s > sandbox.SECONDS_MAX:
            raise sandbox.too_long()
        began_s = time.thread_time()
        try:
            one = asked(overlay.client, args, form)
        finally:
            overlay.scripts_s += time.thread_time() - began_s
        return _run(overlay, one)

    return evaluate


def program_of(one: Asked) -> Callable[[Overlay], Reply]:
    """Return what a script does as a program, which runs several times if other changes come first."""
    return lambda overlay: _run(overlay, one)


def _run(overlay: Overlay, one: Asked) -> Reply:
    """Do what a script does. Raises CommandRefused, ProblemError; then nothing has changed."""
    script = one.script
    if isinstance(script, Script):
        return known_scripts.run(overlay, script, one.keys, one.args)
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
        if row is not None and not fits_arity(row.arity, len(words)):
            return Failure("ERR", "Wrong number of args calling Redis command from script")
        if row is not None and row.writes and not one.writes:
            return _NO_WRITES
        return overlay.call(words)

    try:
        with overlay.all_or_nothing(one.args):
            return sandbox.run(script, one.keys, one.args, call, sandbox.SECONDS_MAX - overlay.scripts_s)
    finally:
        took_s = time.thread_time() - began_s
        overlay.scripts_s += took_s
        overlay.client.face.pace.took(took_s)
