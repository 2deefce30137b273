"""Commands about the connection and the node, which change nothing that is replicated."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Final

from lockapi import needs
from lockstate.words.limits import LIST_LIMIT_MAX
from redis_api.protocol.arguments import database_of, subcommand
from redis_api.protocol.errors import SYNTAX, CommandRefused, shown
from redis_api.protocol.resp import OK, SPOKEN_AS, Reply, Status
from redis_api.shared.client import Client

_NAME_CHARS_MAX: Final = 100
"""Characters of the name of a client, or of a library."""
_SETTINGS: Final = {b"LIB-NAME": "library", b"LIB-VER": "library_version"}


async def ping(client: Client, args: list[bytes]) -> Reply:
    """PING [message]."""
    if client.listening.count and client.protocol < 3:  # noqa: PLR2004 - versions of RESP
        return [b"pong", args[0] if args else b""]
    return args[0] if args else Status("PONG")


async def echo(client: Client, args: list[bytes]) -> Reply:
    """ECHO message."""
    del client
    return args[0]


async def hello(client: Client, args: list[bytes]) -> Reply:
    """HELLO [version [AUTH user token] [SETNAME name]]."""
    rest = iter(args)
    first = next(rest, None)
    protocol = client.protocol
    if first is not None:
        if first not in (b"2", b"3"):
            raise CommandRefused("unsupported protocol version", "NOPROTO")
        protocol = int(first)
    name = client.name
    for word in rest:
        match word.upper():
            case b"AUTH":
                _authenticate(client, next(rest, None), next(rest, None))
            case b"SETNAME":
                name = _name("Client names", next(rest, b""))
            case _:
                raise CommandRefused(SYNTAX)
    if client.face.admission.asks_for_tokens:
        client.admit()
    client.protocol, client.name = protocol, name
    return {
        "server": "redis",
        "version": SPOKEN_AS,
        "proto": protocol,
        "id": client.number,
        "mode": "standalone",
        "role": "master",
        "modules": [],
    }


async def auth(client: Client, args: list[bytes]) -> Reply:
    """AUTH [user] token."""
    user, token = (None, args[0]) if len(args) == 1 else (args[0], args[1])
    _authenticate(client, user, token)
    return OK


def _authenticate(client: Client, user: bytes | None, token: bytes | None) -> None:
    """Act as the principal that has the token, and has the user's name if one is given.

    Raises ProblemError, CommandRefused.
    """
    if token is None:
        raise CommandRefused(SYNTAX)
    if not client.face.admission.asks_for_tokens:
        raise CommandRefused(
            "AUTH <password> called without any password configured for the default user. Are you sure your"
            " configuration is correct?"
        )
    before, client.credentials = client.credentials, token
    try:
        gateway = client.admit()
        is_known = user in (None, b"default", gateway.principal.name.encode())
    except Exception as refused:
        client.credentials = before
        client.note(refused, "AUTH")
        raise CommandRefused("invalid username-password pair or user is disabled.", "WRONGPASS") from refused
    if not is_known:
        client.credentials = before
        raise CommandRefused("the token belongs to another user: give its name, or none", "WRONGPASS")


async def select(client: Client, args: list[bytes]) -> Reply:
    """SELECT index."""
    client.database = database_of(args[0])
    return OK


async def quit_(client: Client, args: list[bytes]) -> Reply:
    """QUIT."""
    del args
    client.is_leaving = True
    return OK


async def reset(client: Client, args: list[bytes]) -> Reply:
    """RESET."""
    del args
    client.reset()
    return Status("RESET")


async def time_(client: Client, args: list[bytes]) -> Reply:
    """TIME: by the clock of this node."""
    del client, args
    now_us = time.time_ns() // 1000
    return [str(now_us // 1_000_000), str(now_us % 1_000_000)]


async def role(client: Client, args: list[bytes]) -> Reply:
    """ROLE: every node takes every command, so each is a master."""
    del client, args
    return ["master", 0, []]


async def info(client: Client, args: list[bytes]) -> Reply:
    """INFO [section ...]."""
    asked = {section.lower().decode(errors="replace") for section in args} or {"default"}
    node = client.face.gateway.node.status()
    uptime_s = int(time.monotonic() - client.face.began_s)
    sections: dict[str, dict[str, object]] = {
        "server": {
            "redis_version": SPOKEN_AS,
            "redis_mode": "standalone",
            "arch_bits": 64,
            "server_name": "holdfast",
            "holdfast_version": client.face.version,
            "node_id": node.node_id,
            "uptime_in_seconds": uptime_s,
        },
        "clients": {
            "connected_clients": client.face.clients_count,
            "blocked_clients": client.face.waits.count,
        },
        "persistence": {"loading": 0},
        "stats": {
            "total_connections_received": client.face.came_count,
            "total_commands_processed": client.face.commands.total(),
        },
        "replication": {
            "role": "master",
            "connected_slaves": 0,
            "holdfast_leader": node.leader or "",
            "holdfast_nodes": len(node.nodes),
            "holdfast_revision": node.revision,
        },
        "cluster": {"cluster_enabled": 0},
    }
    shown = [
        f"# {title.capitalize()}\r\n" + "".join([f"{key}:{value}\r\n" for key, value in lines.items()])
        for title, lines in sections.items()
        if asked & {title, "default", "all", "everything"}
    ]
    return "\r\n".join(shown)


# -- CLIENT --------------------------------------------------------------------------------------------------


async def client_(client: Client, args: list[bytes]) -> Reply:
    """CLIENT subcommand."""
    act, rest = subcommand("CLIENT", _OF_CLIENT, args)
    return act(client, rest)


def _set_info(client: Client, args: Sequence[bytes]) -> Reply:
    field = _SETTINGS.get(args[0].upper())
    if field is None:
        raise CommandRefused(f"Unrecognized option '{shown(args[0])}'")
    setattr(client, field, _name(args[0].decode().lower(), args[1]))
    return OK


def _set_name(client: Client, args: Sequence[bytes]) -> Reply:
    client.name = _name("Client names", args[0])
    return OK


def _name(what: str, text: bytes) -> str:
    """Read a name that others are shown. Raises CommandRefused."""
    if len(text) > _NAME_CHARS_MAX or not all(0x20 < byte < 0x7F for byte in text):  # noqa: PLR2004 - visible ASCII
        raise CommandRefused(f"{what} cannot contain spaces, newlines or special characters.")
    return text.decode("ascii")


def _line(client: Client) -> str:
    return (
        f"id={client.number} addr={client.place.address} name={client.name} db={client.database}"
        f" sub={len(client.listening.channels)} psub={len(client.listening.patterns)}"
        f" resp={client.protocol} lib-name={client.library} lib-ver={client.library_version}"
        f" user={client.principal or 'default'}\n"
    )


def _lines(client: Client, args: Sequence[bytes]) -> Reply:
    """CLIENT LIST: the connections of this node that belong to the same principal."""
    del args
    # It looks at all connections of the node: as much as a page of a listing for each thousand.
    client.count(needs.KNOWN, max(math.ceil(client.face.clients_count / LIST_LIMIT_MAX), 1))
    own = [one for one in client.face.clients if one.principal == client.principal]
    return "".join([_line(one) for one in sorted(own, key=lambda one: one.number)])


def _ok(client: Client, args: Sequence[bytes]) -> Reply:
    del client, args
    return OK


_OF_CLIENT: Final[dict[bytes, tuple[int, Callable[[Client, Sequence[bytes]], Reply]]]] = {
    b"SETINFO": (2, _set_info),
    b"SETNAME": (1, _set_name),
    b"GETNAME": (0, lambda client, _: client.name or None),
    b"ID": (0, lambda client, _: client.number),
    b"INFO": (0, lambda client, _: _line(client)),
    b"LIST": (0, _lines),
    b"NO-EVICT": (1, _ok),
    b"NO-TOUCH": (1, _ok),
}
"""The subcommands, with the number of their arguments."""
