"""The table of commands: one row each, of which everything else is derived: COMMAND, its counts and texts."""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from lockapi import needs
from lockapi.needs import Need
from redis_api.commands import (
    basic,
    channels,
    data_handlers,
    multi,
    scanning,
    sentinel,
    settings,
    throttle,
    waiting,
)
from redis_api.keys import scripting
from redis_api.keys.data_table import DATA
from redis_api.keys.overlay import DataCommand
from redis_api.protocol.arguments import fits_arity
from redis_api.protocol.errors import CommandRefused, failure_of, shown, unknown_command, wrong_arity
from redis_api.protocol.resp import Failure, Reply, Status
from redis_api.shared.client import Client

Handler = Callable[[Client, list[bytes]], Awaitable[Reply]]

_ALL: Final = (1, -1, 1)
_NO_KEYS: Final = (0, 0, 0)


class Command(NamedTuple):
    """A command. What `arity` means: `fits_arity`."""

    name: str
    arity: int
    handler: Handler
    summary: str
    flags: tuple[str, ...] = ("fast",)
    keys: tuple[int, int, int] = _NO_KEYS
    """The places of the first and the last key, and the step between two."""
    need: Need | None = None
    """What is counted of it in the caller's requests a second; None if it is free, as what sets a connection
    up and what probes a node, or counts itself."""
    is_open: bool = False
    """Whether a caller may send it that has not said who it is."""
    in_start: bool = False
    """Whether a node answers it that still starts."""


def _of_connection(
    name: str, arity: int, handler: Handler, summary: str, *, is_open: bool = False, in_start: bool = True
) -> Command:
    flags = ("noscript", "loading", "fast", *(("no-auth",) if is_open else ()))
    return Command(name, arity, handler, summary, flags, is_open=is_open, in_start=in_start)


_HANDLERS: Final[dict[str, Handler]] = {
    "SET": data_handlers.set_,
    "SETNX": data_handlers.setnx,
    "DEL": data_handlers.delete,
    "UNLINK": data_handlers.delete,
    **{name.decode(): data_handlers.evaluating(form) for name, form in scripting.FORMS.items()},
    "BLPOP": data_handlers.waiting(DATA[b"BLPOP"]),
    "BRPOP": data_handlers.waiting(DATA[b"BRPOP"]),
}
"""What carries out commands about keys that do more alone than on an overlay."""


def _of_data(row: DataCommand) -> Command:
    flags, need = ("write", needs.ACQUIRE) if row.writes else ("readonly", needs.READ)
    handler = _HANDLERS.get(row.name) or data_handlers.running(row)
    return Command(row.name, row.arity, handler, row.summary, (flags, "fast"), row.keys, need)


def _of_channels(name: str, arity: int, handler: Handler, summary: str, need: Need = needs.READ) -> Command:
    return Command(name, arity, handler, summary, ("pubsub", "noscript", "fast"), need=need)


async def _command(client: Client, args: list[bytes]) -> Reply:
    """COMMAND [COUNT | LIST | INFO [name ...] | DOCS [name ...]]."""
    del client
    if not args:
        return [_row(one) for one in COMMANDS.values()]
    word, names = args[0].upper(), [name.upper() for name in args[1:]]
    if word == b"COUNT" and not names:
        return len(COMMANDS)
    if word == b"LIST" and not names:
        return [one.name.lower() for one in COMMANDS.values()]
    if word == b"INFO":
        return [_row(COMMANDS[name]) if name in COMMANDS else None for name in names or COMMANDS]
    if word == b"DOCS":
        known = [COMMANDS[name] for name in names or COMMANDS if name in COMMANDS]
        return {one.name.lower(): {"summary": one.summary, "group": "holdfast"} for one in known}
    raise CommandRefused("unknown subcommand or wrong number of arguments for 'command'")


def _row(command: Command) -> Reply:
    """Return a command as COMMAND lists it."""
    return [command.name.lower(), command.arity, list(command.flags), *command.keys, [], [], [], []]


COMMANDS: Final = {
    row.name.encode(): row
    for row in (
        # -- the connection -------------------------------------------------------------------------------
        _of_connection(
            "AUTH", -2, basic.auth, "Says who calls: a token, or a user and a token.", is_open=True
        ),
        _of_connection(
            "HELLO", -1, basic.hello, "Chooses the version of RESP, and may log in.", is_open=True
        ),
        _of_connection("QUIT", -1, basic.quit_, "Closes the connection.", is_open=True),
        _of_connection("RESET", 1, basic.reset, "Forgets what the connection has said.", is_open=True),
        _of_connection("MULTI", 1, multi.multi, "Begins a transaction."),
        _of_connection("DISCARD", 1, multi.discard, "Gives a transaction up."),
        _of_connection("UNWATCH", 1, multi.unwatch, "Watches no key any more."),
        _of_connection("CLIENT", -2, basic.client_, "Names the connection, or tells of it."),
        _of_connection("SELECT", 2, basic.select, "Chooses a database: a prefix of names."),
        Command(
            *("COMMAND", -1, _command, "Lists the commands.", ("noscript", "loading", "fast")),
            need=needs.KNOWN,
            in_start=True,
        ),
        _of_connection("PING", -1, basic.ping, "Answers.", in_start=False),
        _of_connection("ECHO", 2, basic.echo, "Answers with its argument.", in_start=False),
        # -- the node -------------------------------------------------------------------------------------
        Command("INFO", -1, basic.info, "Tells of the node and its cluster.", need=needs.KNOWN),
        Command("ROLE", 1, basic.role, "Tells that this node takes writes, as every node does."),
        Command("TIME", 1, basic.time_, "Tells the time of this node's clock."),
        # -- keys -----------------------------------------------------------------------------------------
        *[_of_data(row) for row in DATA.values()],
        Command("WATCH", -2, multi.watch, "Lets EXEC do nothing if a key changes.", (), _ALL, needs.READ),
        Command("EXEC", 1, multi.exec_, "Applies the commands since MULTI in one step.", ()),
        Command("SCAN", -2, scanning.scan, "Tells some keys, and where to go on.", (), need=needs.READ),
        Command("KEYS", 2, scanning.keys, "Tells all keys that match.", (), need=needs.READ),
        Command("DBSIZE", 1, scanning.dbsize, "Counts the keys of the database.", (), need=needs.READ),
        Command("FLUSHDB", -1, data_handlers.flushdb, "Ends all keys of the database.", need=needs.FORCE),
        Command("FLUSHALL", -1, data_handlers.flushall, "Ends all keys.", need=needs.FORCE),
        # -- nodes that serve -----------------------------------------------------------------------------
        Command(
            *("CONFIG", -2, settings.config, "Tells what is true of a node, as settings of Redis."),
            need=needs.KNOWN,
        ),
        Command(
            "WAIT", 3, settings.wait, "Tells how many other nodes have what was answered.", need=needs.KNOWN
        ),
        Command("SENTINEL", -2, sentinel.sentinel, "Tells whether this node serves, and where it is."),
        # -- waiting --------------------------------------------------------------------------------------
        Command(
            *("HF.ACQUIRE", 5, waiting.acquire, "Takes a lock, and waits for it: key value ms wait_ms."),
            *(("write",), (1, 1, 1), needs.ACQUIRE),
        ),
        # -- rate limits ----------------------------------------------------------------------------------
        Command(
            *("CL.THROTTLE", -5, throttle.throttle, "Takes from a rate limit: key max_burst count period."),
            *(("write",), (1, 1, 1), needs.ACQUIRE),
        ),
        # -- channels -------------------------------------------------------------------------------------
        _of_channels("PUBLISH", 3, channels.publish, "Tells who listens to a channel.", needs.ACQUIRE),
        _of_channels("SUBSCRIBE", -2, channels.subscribe, "Listens to channels."),
        _of_channels("PSUBSCRIBE", -2, channels.psubscribe, "Listens to channels by patterns."),
        _of_channels("UNSUBSCRIBE", -1, channels.unsubscribe, "Listens to channels no more."),
        _of_channels("PUNSUBSCRIBE", -1, channels.punsubscribe, "Listens by patterns no more."),
        _of_channels("PUBSUB", -2, channels.pubsub, "Tells who listens on this node."),
        # -- scripts --------------------------------------------------------------------------------------
        Command("SCRIPT", -2, scripting.script, "Loads scripts, or forgets all.", (), need=needs.READ),
    )
}
"""All commands by their names in capitals."""

_WITH_SUBCOMMANDS: Final = frozenset((b"CLIENT", b"CONFIG", b"PUBSUB", b"SCRIPT"))
_AT_ONCE: Final = frozenset((b"MULTI", b"EXEC", b"DISCARD", b"WATCH", b"RESET", b"QUIT"))
"""Commands that are carried out at once, also in a transaction."""
_QUEUED: Final = frozenset(DATA) | multi.ALONGSIDE
"""Commands that a transaction may have."""
_WHILE_LISTENING: Final = frozenset(
    (b"SUBSCRIBE", b"PSUBSCRIBE", b"UNSUBSCRIBE", b"PUNSUBSCRIBE", b"PING", b"QUIT", b"RESET")
)
"""What a client that listens may ask for with version 2 of RESP, which has no other place for messages."""


async def answer(client: Client, words: list[bytes]) -> Reply:
    """Carry out a command; what goes wrong is an answer, too. Raises EndConnection if nobody knows it."""
    name = words[0].upper()
    row = COMMANDS.get(name)
    label = row.name if row is not None else "unknown"
    client.face.commands[label] += 1
    try:
        reply = await _answer(client, row, name, words)
    except Exception as error:  # noqa: BLE001 - what is unforeseen ends the connection
        client.note(error, label)
        reply = failure_of(error)
    finally:
        client.is_counted = False
    if isinstance(reply, Failure):
        client.face.errors[reply.code] += 1
    return reply


async def _answer(client: Client, row: Command | None, name: bytes, words: list[bytes]) -> Reply:
    try:
        checked = _checked(client, row, name, words)
        if client.queue is not None and name not in _AT_ONCE:
            client.queue.add(words, is_possible=name in _QUEUED)
            return Status("QUEUED")
    except Exception:
        multi.note_refused(client, name)
        raise
    return await checked.handler(client, words[1:])


def _full_name(name: bytes, words: list[bytes]) -> str:
    """Return a command as Redis names it, with its subcommand if it has some."""
    parts = [name, words[1]] if name in _WITH_SUBCOMMANDS and len(words) > 1 else [name]
    return shown(b"|".join(parts)).lower()


def _checked(client: Client, row: Command | None, name: bytes, words: list[bytes]) -> Command:
    """Return a command that may be carried out, or queued. Raises ProblemError, CommandRefused."""
    if row is None or not row.is_open:
        client.admit()
        if client.place.refused is not None:
            client.is_leaving = True
            raise CommandRefused("max number of clients reached")
    if client.listening.count and client.protocol < 3 and name not in _WHILE_LISTENING:  # noqa: PLR2004 - RESP
        raise CommandRefused(
            f"Can't execute '{_full_name(name, words)}': only (P|S)SUBSCRIBE /"
            " (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
        )
    if row is None:
        raise unknown_command(name)
    if not fits_arity(row.arity, len(words)):
        raise wrong_arity(row.name)
    if not row.in_start and (how_far := client.face.starting()):
        raise CommandRefused(f"Holdfast is loading: {how_far}", "LOADING")
    if row.need is not None and not client.is_counted:
        client.count(row.need, _keys_count(row.keys, len(words)))
    return row


def _keys_count(keys: tuple[int, int, int], words_count: int) -> int:
    """Return how many keys a command of so many words has; one for a command that names none."""
    first, last, step = keys
    return max(len(range(first, (last if last >= 0 else words_count + last) + 1, step or 1)), 1)
