"""The command line: take a lock, give it back, run a command under one, look at and change the cluster.

The exit codes stand in `exit_codes.py`.
"""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence

from holdfast import __version__
from holdfast.cli import (
    audit,
    backups,
    cells,
    certs,
    cluster,
    completion,
    debug,
    exit_codes,
    failures,
    force,
    freezes,
    holding,
    namespaces,
    quotas,
    reading,
    refusals,
    status,
    tokens,
    top,
    versions,
)
from holdfast.cli.inspector import Inspector
from holdfast.cli.parsing import CommandParser, duration_ms
from holdfast.cli.printing import SaidLog
from holdfast.operations.terms import DEFAULT_TIMEOUT_S
from holdfast.values.errors import LockError

_FAMILIES = (
    holding, reading, top, audit, cells, force, freezes, quotas, namespaces, refusals, status, cluster,
    debug, backups, versions, tokens, certs, completion,
)  # fmt: skip
"""The commands, in the order in which help shows them."""


def build_parser() -> CommandParser:
    """Describe the command line."""
    parser = CommandParser(
        prog="holdfast",
        description="Use the locks of a Holdfast cluster.",
        epilog=exit_codes.describe(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"holdfast {__version__}")
    parser.add_argument(
        "--nodes",
        metavar="URL,URL,...",
        help="any nodes of the cluster, unix:/PATH for a Unix socket"
        " (default: $HOLDFAST_NODES, else ports 7700 to 7702 of this machine)",
    )
    parser.add_argument(
        "--timeout",
        metavar="TIME",
        type=duration_ms,
        default=round(DEFAULT_TIMEOUT_S * 1000),
        help="how long to try before giving up, not counting the wait in a queue"
        f" (default: {DEFAULT_TIMEOUT_S:g}s)",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="send the token in this file (default: $HOLDFAST_ACCESS_TOKEN_FILE, or $HOLDFAST_ACCESS_TOKEN)",
    )
    parser.add_argument(
        "--insecure-plain-token",
        action="store_true",
        help="send it to other machines even without TLS: anybody on the path can read it",
    )
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="show on stderr what the command waits for and what the client does",
    )
    parser.set_defaults(takes_command=False)
    for family in _FAMILIES:
        family.add_parser(parser)
    return parser


async def _main(arguments: argparse.Namespace) -> int:
    """Run one command and turn its failure into a sentence that says what to do next, and an exit code."""
    owner = getattr(arguments, "owner", None)
    if arguments.command == "acquire" and not owner:
        owner = holding.user_and_host()  # this process is gone when somebody looks who has the lock
    try:
        async with Inspector(
            arguments.nodes,
            timeout=arguments.timeout / 1000,
            owner=owner,
            token_file=arguments.token_file,
            insecure_plain_token=arguments.insecure_plain_token,
        ) as client:
            code: int = await arguments.run(client, arguments)
            return code
    except (LockError, OSError, ValueError) as error:
        return failures.explained(error, arguments)


def _carried_out(arguments: argparse.Namespace) -> int:
    """Run one command; return its exit code."""
    if arguments.alone is None:
        if arguments.takes_command and os.getpid() == 1:
            from holdfast.cli import process_one  # noqa: PLC0415 - it names signals that Windows has not

            process_one.split()
        return asyncio.run(_main(arguments))
    try:
        code: int = arguments.alone(arguments)
    except (OSError, ValueError) as error:
        return failures.explained(error, arguments)
    return code


def read(words: Sequence[str]) -> argparse.Namespace:
    """Read the command line, or say what is wrong with it and exit."""
    # Split first: argparse would take options that follow NAME for the command's.
    cut = words.index("--") if "--" in words else len(words)
    parser = build_parser()
    parser.refuse_unknown(words[:cut])
    arguments, left = parser.parse_known_args(words[:cut])
    name = arguments.command
    if left and arguments.takes_command:
        parser.error(
            f"the command goes after --, as in: holdfast {name} {arguments.name} -- {' '.join(left)}"
        )
    if left:
        parser.error(f"unexpected argument: {' '.join(left)}")
    arguments.argv = list(words[cut + 1 :])
    if arguments.takes_command != bool(arguments.argv):
        parser.error("run and elect take a command, after --, as in: holdfast run NAME -- make deploy")
    return arguments


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    _open_missing_streams()
    arguments = read(list(sys.argv[1:] if argv is None else argv))
    logging.basicConfig(handlers=[SaidLog()])
    logging.getLogger("holdfast").setLevel(logging.INFO if arguments.verbose else logging.WARNING)
    try:
        code = _carried_out(arguments)
    except KeyboardInterrupt:
        code = exit_codes.INTERRUPTED
    except BrokenPipeError:
        code = exit_codes.BROKEN_PIPE
    sys.exit(_flushed(code))


def _open_missing_streams() -> None:
    """Give this process all three streams, if it was started without any of them.

    Otherwise the next file or socket would get its number, and a command under a lock would write there.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode))


def _flushed(code: int) -> int:
    """Print what is left to be printed; return the exit code."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # What stays in the buffer would be written, and fail, once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return exit_codes.BROKEN_PIPE
        return code or failures.fail(exit_codes.REFUSED, str(error), "the answer could not be printed")
    return code
