"""MULTI, EXEC, DISCARD, WATCH and UNWATCH: commands that wait for EXEC, which applies them in one step.

A watched key is kept as it was when WATCH was answered. EXEC compares it in the same step in which it applies
the commands: so nothing comes between, and nothing is held meanwhile.
"""

from collections.abc import Sequence
from typing import Final

from lockapi import needs
from redis_api.keys import scripting
from redis_api.keys.data_table import DATA
from redis_api.keys.overlay import Overlay, Slot
from redis_api.keys.transact import transact
from redis_api.protocol.arguments import database_of
from redis_api.protocol.errors import CommandRefused, TooMuch
from redis_api.protocol.resp import NO_LIST, OK, Reply, Status
from redis_api.shared.client import Client
from redis_api.shared.multi_queue import Queue, Watched

WATCHED_COUNT_MAX: Final = 1_000
"""Keys that one connection watches."""
ANSWER_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of the answer to one transaction: about what the longest MGET is answered with."""
_ITEM_BYTES: Final = 16
"""What a value counts beside its own bytes."""


async def multi(client: Client, args: list[bytes]) -> Reply:
    """MULTI."""
    del args
    if client.queue is not None:
        raise CommandRefused("MULTI calls can not be nested")
    client.queue = Queue()
    return OK


async def exec_(client: Client, args: list[bytes]) -> Reply:
    """EXEC."""
    del args
    queue, watched = _end(client, "EXEC")
    if queue.has_failed:
        raise CommandRefused("Transaction discarded because of previous errors.", "EXECABORT")
    if not any([words[0].upper() in DATA for words in queue.commands]):  # noqa: C419 - few, and short
        client.count(needs.READ)  # commands about keys were counted as they came; without any this is a read

    def program(overlay: Overlay) -> tuple[Reply, int]:
        if any([_has_changed(overlay, one) for one in watched]):  # noqa: C419 - all are compared
            return NO_LIST, client.database
        return _run_all(overlay, queue.commands), overlay.database

    if any([words[0].upper() in scripting.FORMS for words in queue.commands]):  # noqa: C419 - few, and short
        await scripting.turn(client)
    replies, client.database = await transact(client, program)
    return replies


def _run_all(overlay: Overlay, commands: Sequence[list[bytes]]) -> list[Reply]:
    """Carry out the commands of a transaction. Raises TooMuch."""
    replies: list[Reply] = []
    size_bytes = 0
    for words in commands:
        replies.append(_run(overlay, words))
        size_bytes += _size_of(replies[-1])
        if size_bytes > ANSWER_BYTES_MAX:
            raise TooMuch(f"the answer is larger than {ANSWER_BYTES_MAX} bytes")
    return replies


def _size_of(reply: Reply) -> int:
    if isinstance(reply, list):
        return _ITEM_BYTES + sum(map(_size_of, reply))
    return _ITEM_BYTES + (len(reply) if isinstance(reply, bytes) else 0)


def _run(overlay: Overlay, words: list[bytes]) -> Reply:
    """Carry out one command of a transaction."""
    name, args = words[0].upper(), words[1:]
    if name in DATA:
        return overlay.call(words)
    if name == b"SELECT":
        try:
            overlay.database = database_of(args[0])
        except CommandRefused as refused:
            return refused.failure
    if name in (b"SELECT", b"UNWATCH"):
        return OK
    return args[0] if args else Status("PONG")


ALONGSIDE: Final = frozenset((b"SELECT", b"PING", b"ECHO", b"UNWATCH"))
"""Commands about no key that a transaction may have. `_run` knows what they do."""


async def discard(client: Client, args: list[bytes]) -> Reply:
    """DISCARD."""
    del args
    _end(client, "DISCARD")
    return OK


def note_refused(client: Client, name: bytes) -> None:
    """Let a transaction fail of which a command was refused; a refused EXEC ends it, as in Redis."""
    if client.queue is None:
        return
    client.queue.has_failed = True
    if name == b"EXEC":
        _end(client, "EXEC")


def _end(client: Client, name: str) -> tuple[Queue, Sequence[Watched]]:
    queue, watched = client.queue, client.watched
    if queue is None:
        raise CommandRefused(f"{name} without MULTI")
    client.queue, client.watched = None, []
    return queue, watched


async def watch(client: Client, args: list[bytes]) -> Reply:
    """WATCH key [key ...]."""
    if client.queue is not None:
        raise CommandRefused("WATCH inside MULTI is not allowed")
    if len(client.watched) + len(args) > WATCHED_COUNT_MAX:
        raise CommandRefused(f"a connection watches at most {WATCHED_COUNT_MAX} keys")

    def program(overlay: Overlay) -> list[Watched]:
        return [Watched(overlay.database, key, *_state_of(overlay.look(key))) for key in args]

    known = {(one.database, one.key) for one in client.watched}
    found = await transact(client, program, may_write=False)
    client.watched += [one for one in found if (one.database, one.key) not in known]
    return OK


async def unwatch(client: Client, args: list[bytes]) -> Reply:
    """UNWATCH."""
    del args
    client.watched = []
    return OK


def _has_changed(overlay: Overlay, watched: Watched) -> bool:
    """Whether a key is not what it was; if it is, it is compared again when all is applied."""
    slot = overlay.look(watched.key, watched.database)
    return _state_of(slot) != (watched.mod_revision, watched.tokens)


def _state_of(slot: Slot) -> tuple[int, tuple[int, ...]]:
    cell = slot.cell
    return 0 if cell is None else cell.mod_revision, tuple([hold.token for hold in slot.holds])
