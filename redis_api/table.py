"""The table of commands: one row each, of which everything else is derived: COMMAND, its counts and texts."""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from lockapi import needs
from lockapi.needs import Need
from redis_api import basic, channels, keyed, sentinel, settings, waiting
from redis_api.arguments import TimeUnit
from redis_api.client import Client
from redis_api.errors import MANUAL, CommandRefused, failure_of
from redis_api.resp import Failure, Reply
from redis_api.scripts import UnknownScript

Handler = Callable[[Client, list[bytes]], Awaitable[Reply]]

_FIRST: Final = (1, 1, 1)
_ALL: Final = (1, -1, 1)
_NO_KEYS: Final = (0, 0, 0)


class Command(NamedTuple):
    """A command. `arity` counts its name; if it is negative, that many words or more are needed."""

    name: str
    arity: int
    handler: Handler
    summary: str
    flags: tuple[str, ...] = ("fast",)
    keys: tuple[int, int, int] = _NO_KEYS
    """The places of the first and the last key, and the step between two."""
    need: Need | None = None
    """What is counted of it in the caller's requests a second; None if it asks the cluster nothing."""
    is_open: bool = False
    """Whether a caller may send it that has not said who it is."""
    in_start: bool = False
    """Whether a node answers it that still starts."""

    def takes(self, count: int) -> bool:
        """Whether it can have so many words, its name included."""
        return count == self.arity if self.arity > 0 else count >= -self.arity


def _of_connection(
    name: str, arity: int, handler: Handler, summary: str, *, is_open: bool = False, in_start: bool = True
) -> Command:
    flags = ("noscript", "loading", "fast", *(("no-auth",) if is_open else ()))
    return Command(name, arity, handler, summary, flags, is_open=is_open, in_start=in_start)


def _read(
    name: str, arity: int, handler: Handler, summary: str, keys: tuple[int, int, int] = _FIRST
) -> Command:
    return Command(name, arity, handler, summary, ("readonly", "fast"), keys, needs.READ)


def _write(
    name: str, arity: int, handler: Handler, summary: str, keys: tuple[int, int, int] = _FIRST
) -> Command:
    return Command(name, arity, handler, summary, ("write", "fast"), keys, needs.ACQUIRE)


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


_SECONDS: Final = TimeUnit(1000)
_MS: Final = TimeUnit()
_AT_S: Final = TimeUnit(1000, is_moment=True)
_AT_MS: Final = TimeUnit(is_moment=True)

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
        _of_connection("MULTI", 1, basic.multi, "Begins a transaction that can only be discarded."),
        _of_connection("EXEC", 1, basic.exec_, "Is refused: nothing of a transaction is carried out."),
        _of_connection("DISCARD", 1, basic.discard, "Ends a transaction."),
        _of_connection("CLIENT", -2, basic.client_, "Names the connection, or tells of it."),
        _of_connection("SELECT", 2, basic.select, "Chooses a database: a prefix of names."),
        _of_connection("COMMAND", -1, _command, "Lists the commands."),
        _of_connection("PING", -1, basic.ping, "Answers.", in_start=False),
        _of_connection("ECHO", 2, basic.echo, "Answers with its argument.", in_start=False),
        # -- the node -------------------------------------------------------------------------------------
        Command("INFO", -1, basic.info, "Tells of the node and its cluster."),
        Command("ROLE", 1, basic.role, "Tells that this node takes writes, as every node does."),
        Command("TIME", 1, basic.time_, "Tells the time of this node's clock."),
        # -- locks ----------------------------------------------------------------------------------------
        _write("SET", -3, keyed.set_, "Takes a lock: SET key value NX [PX ms]."),
        _write("SETNX", 3, keyed.setnx, "Takes a lock without a deadline."),
        _write("DEL", -2, keyed.delete, "Ends holds of this connection, or anybody's by force.", _ALL),
        _write("UNLINK", -2, keyed.delete, "The same as DEL.", _ALL),
        _write("EXPIRE", -3, keyed.expiring(_SECONDS), "Sets how many seconds a lock lasts."),
        _write("PEXPIRE", -3, keyed.expiring(_MS), "Sets how many milliseconds a lock lasts."),
        _write("EXPIREAT", -3, keyed.expiring(_AT_S), "Sets the second until which a lock lasts."),
        _write("PEXPIREAT", -3, keyed.expiring(_AT_MS), "Sets the millisecond until which a lock lasts."),
        _write("PERSIST", 2, keyed.persist, "Is refused where there is a lease."),
        _read("GET", 2, keyed.get, "Tells the value of a lock."),
        _read("MGET", -2, keyed.mget, "Tells the values of locks.", _ALL),
        _read("EXISTS", -2, keyed.exists, "Counts the locks that are held.", _ALL),
        _read("TYPE", 2, keyed.type_, "Tells whether a lock is held."),
        _read("TTL", 2, keyed.remaining(1000), "Tells how many seconds a lock lasts."),
        _read("PTTL", 2, keyed.remaining(1), "Tells how many milliseconds a lock lasts."),
        _read("EXPIRETIME", 2, keyed.remaining(1000, is_moment=True), "Tells in which second a lock ends."),
        _read("PEXPIRETIME", 2, keyed.remaining(1, is_moment=True), "Tells in which millisecond it ends."),
        _read("HF.TOKEN", -2, keyed.token, "Tells the fencing token of a lock."),
        # -- nodes that serve -----------------------------------------------------------------------------
        Command("CONFIG", -2, settings.config, "Tells what is true of a node, as settings of Redis."),
        Command("WAIT", 3, settings.wait, "Tells how many other nodes have what was answered."),
        Command("SENTINEL", -2, sentinel.sentinel, "Tells whether this node serves, and where it is."),
        # -- waiting --------------------------------------------------------------------------------------
        Command(
            *("HF.ACQUIRE", 5, waiting.acquire, "Takes a lock, and waits for it: key value ms wait_ms."),
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
        Command("EVAL", -3, keyed.eval_, "Does what a known script means.", ("write",), need=needs.ACQUIRE),
        Command("EVALSHA", -3, keyed.evalsha, "The same, by its hash.", ("write",), need=needs.ACQUIRE),
        Command("SCRIPT", -2, basic.script, "Loads scripts of lock clients."),
    )
}
"""All commands by their names in capitals."""

_REASONS: Final = {
    **dict.fromkeys((b"WATCH", b"UNWATCH"), "it has no transactions"),
    **dict.fromkeys((b"BLPOP", b"BRPOP", b"LPUSH", b"RPUSH", b"LPOP", b"LLEN"), "it has no lists: poll"),
    **dict.fromkeys((b"SSUBSCRIBE", b"SUNSUBSCRIBE", b"SPUBLISH"), "it has no shards: SUBSCRIBE"),
    **dict.fromkeys((b"SETEX", b"PSETEX", b"GETSET", b"MSET"), "a lock is taken by SET key value NX PX ms"),
}
"""Why commands are missing that lock clients use."""
_ENDS_MULTI: Final = frozenset((b"EXEC", b"DISCARD", b"RESET", b"QUIT"))


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
        return await _answer(client, row, name, words)
    except UnknownScript as unknown:
        return Failure("ERR", str(unknown))
    except Exception as error:  # noqa: BLE001 - what is unforeseen ends the connection
        client.note(error, label)
        failure = failure_of(error)
        client.face.errors[failure.code] += 1
        return failure


async def _answer(client: Client, row: Command | None, name: bytes, words: list[bytes]) -> Reply:
    if row is None or not row.is_open:
        client.admit()
        if client.place.refused is not None:
            client.is_leaving = True
            raise CommandRefused("max number of clients reached")
    if client.is_in_multi and name not in _ENDS_MULTI:
        raise CommandRefused(f"not carried out: {basic.NO_TRANSACTIONS}")
    if client.listening.count and client.protocol < 3 and name not in _WHILE_LISTENING:  # noqa: PLR2004 - RESP
        raise CommandRefused(
            f"Can't execute '{name[:100].decode(errors='replace').lower()}': only (P|S)SUBSCRIBE /"
            " (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
        )
    if row is None:
        shown = name[:100].decode(errors="replace")
        reason = _REASONS.get(name)
        raise CommandRefused(
            f"unknown command '{shown}': Holdfast is a lock service{f', and {reason}' if reason else ''}; see"
            f" {MANUAL}"
        )
    if not row.takes(len(words)):
        raise CommandRefused(f"wrong number of arguments for '{row.name.lower()}' command")
    if not row.in_start and (how_far := client.face.starting()):
        raise CommandRefused(f"Holdfast is loading: {how_far}", "LOADING")
    if row.need is not None:
        count = len(words) - 1 if row.keys == _ALL else 1
        client.face.rates.take(client.principal or client.place.origin, row.need, count)
    return await row.handler(client, words[1:])
