"""The commands of `holdfast token`: lines for the tokens file of nodes, and a look at such a file."""

import argparse
import contextlib
import datetime as dt
import os
import secrets
import stat
import sys
import time
from pathlib import Path

from holdfast import token_lines
from holdfast.cli.parsing import CommandParser
from holdfast.cli.printing import print_lines, print_one, say
from holdfast.token_lines import Line, LinesWrong, Right

_MODE = 0o600
_SOON_S = 14 * 86_400
"""Seconds before the end of a token from which on `check` says so."""


def add_parser(commands: CommandParser) -> None:
    """Describe the commands."""
    token = commands.command(
        "token",
        "make tokens, and lines for the tokens file of nodes",
        description="Make tokens for clients, and their lines for the nodes' tokens file (--tokens FILE)."
        " A token is never shown: it goes from file to file. Needs no node.",
    )
    new = token.command("new", "make a token, write it to a file, and print its line", alone=_new)
    new.add_argument(
        "--out", metavar="FILE", type=Path, required=True, help="write the token here, readable by its owner"
    )
    made = token.command("hash", "print the line for a token read from standard input", alone=_hash)
    for kind in (new, made):
        kind.add_argument("name", metavar="NAME", help="the principal: for logs, and unique in its file")
        kind.add_argument(
            "rights",
            metavar="RIGHTS[@PREFIX]",
            nargs="+",
            help=f"such as read,acquire@jobs; without a prefix for everything. There are {', '.join(Right)}",
        )
        kind.add_argument(
            "--until", metavar="DATE", help="the last day, such as 2027-01-31 (default: no end)"
        )
    check = token.command("check", "explain a tokens file, or say what is wrong with it", alone=_check)
    check.add_argument("file", metavar="FILE", type=Path)
    check.add_output()


def _new(arguments: argparse.Namespace) -> int:
    """Make a token. Raises ValueError and OSError."""
    token = token_lines.TOKEN_PREFIX + secrets.token_urlsafe(token_lines.TOKEN_BYTES)
    line = _line(arguments, token)  # before the file: a wrong call leaves nothing behind
    _write(arguments.out, token)
    print_lines([line])
    return 0


def _hash(arguments: argparse.Namespace) -> int:
    """Print the line of a token. Raises ValueError."""
    token = sys.stdin.readline().strip()
    if not token_lines.is_token(token):
        raise ValueError(
            f"standard input: a token has {token_lines.TOKEN_CHARS_MIN} to {token_lines.TOKEN_CHARS_MAX}"
            " visible ASCII characters, best random ones, as `holdfast token new` makes them"
        )
    print_lines([_line(arguments, token)])
    return 0


def _line(arguments: argparse.Namespace, token: str) -> str:
    """Return the line of a token, which nodes can read. Raises ValueError."""
    digest = token_lines.digest(token.encode("ascii")).hex()
    until = [f"until={arguments.until}"] if arguments.until else []
    words = [arguments.name, f"sha256:{digest}", *arguments.rights, *until]
    if any(not word or any(character.isspace() for character in word) for word in words):
        raise ValueError("no word may be empty or contain white space: %20 stands for a space")
    try:
        (line,) = token_lines.parse(f"{' '.join(words)}\n".encode())
    except LinesWrong as error:
        raise ValueError(str(error).removeprefix("line 1: ")) from None
    return token_lines.written(line)


def _write(path: Path, token: str) -> None:
    """Write a token to a new file. Raises ValueError if it is there already, and OSError."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
    except FileExistsError:
        raise ValueError(f"{path} is there already: name another --out, or remove it") from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{token}\n")
        file.flush()
        os.fsync(file.fileno())


def _check(arguments: argparse.Namespace) -> int:
    """Print who may do what by a file. Raises ValueError if nodes would not take it, and OSError."""
    path: Path = arguments.file
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError(f"{path}: must be a regular file")
    try:
        lines = token_lines.parse(path.read_bytes())
    except LinesWrong as error:
        raise ValueError(f"{path}: {error}") from None
    now_s = time.time()
    text = [f"{line.name}: {_described(line)}{_end(line, now_s)}" for line in lines]
    found = [{"name": line.name, "rights": _rights(line), "ends_at_s": line.ends_at_s} for line in lines]
    with contextlib.suppress(BrokenPipeError):  # as by `head`
        print_one({"principals": found}, [*text, f"{len(lines)} principals"], arguments.output)
    for line in lines:
        for prefix in line.idle_prefixes():
            nothing = f"none@{prefix} takes nothing away: no shorter prefix gives any right there"
            say(f"warning: {line.name}: {nothing}")
    mode = path.stat().st_mode
    if mode & (stat.S_IWGRP | stat.S_IRWXO):
        say(f"warning: other users can read or write {path}: chmod 600 it")
    return 0


def _rights(line: Line) -> dict[str, list[str]]:
    """Return the rights by prefix, the shortest prefix first."""
    return {
        prefix: [right.value for right in Right if right in line.rights[prefix]]
        for prefix in sorted(line.rights)
    }


def _described(line: Line) -> str:
    """Say what somebody may do where, the shortest prefix first."""
    parts = []
    for prefix, rights in sorted(line.rights.items()):
        names = ", ".join([right for right in Right if right in rights]) or "nothing"
        parts.append(f"{names} below {prefix!r}" if prefix else f"{names} everywhere")
    return "; ".join(parts)


def _end(line: Line, now_s: float) -> str:
    if line.ends_at_s is None:
        return ""
    moment = dt.datetime.fromtimestamp(line.ends_at_s, dt.UTC)
    word = "HAS ENDED at" if line.ends_at_s <= now_s else "until"
    soon = ", which is soon" if now_s < line.ends_at_s <= now_s + _SOON_S else ""
    return f"; {word} {moment:%Y-%m-%d %H:%M} UTC{soon}"
