"""The commands that take a lock and give it away: `acquire`, `renew`, `release`, `hand-over`, `run`, ..."""

import argparse
import getpass
import os
import socket
import sys
from typing import Any, Final

import msgspec

from holdfast.cli import guardian
from holdfast.cli.ending import CommandEnding
from holdfast.cli.inspector import Inspector
from holdfast.cli.parsing import CommandParser, add_conflict_exit_code, count, duration_ms, wait_s
from holdfast.cli.printing import field, length_of, print_one, table
from holdfast.cli.run import run_under_lock
from holdfast.cli.waiting import Waiting
from holdfast.client.acquiring import Acquirable
from holdfast.operations import hold_operations
from holdfast.operations.terms import DEFAULT_GRACE_S, DEFAULT_SESSION_TTL_S, DEFAULT_TTL_S
from holdfast.wire.words import PRIORITY_DEFAULT

HOLD_ID_VARIABLE: Final = "HOLDFAST_HOLD_ID"
"""The environment variable with the hold to release: other users can see arguments, but not this."""
GRACE_MAX_MS: Final = 86_400_000
"""The longest time for which a command may go on without its lock."""
_MODES: Final = ("exclusive", "shared", "update", "concurrent-read", "concurrent-write")
"""The modes of locks, the usual one first."""
_HELD: Final = {
    "HOLD_ID": field("hold_id"),
    "NAME": field("name"),
    "MODE": field("mode"),
    "TOKEN": field("token"),
    "ENDS IN": length_of("expires_in_ms"),
}


def add_parser(commands: CommandParser) -> None:
    """Describe the commands."""
    acquire = commands.command("acquire", "take a lock and print the hold, which is not renewed", _acquire)
    _add_lock_arguments(acquire, owner="this user and host")
    acquire.add_output()

    release = commands.command("release", "release a hold", _release)
    release.add_argument(
        "hold_id",
        metavar="HOLD_ID",
        nargs="?",
        help="the hold_id that acquire printed; - reads it, or what `acquire -o json` printed, from standard "
        f"input (default: ${HOLD_ID_VARIABLE}). It is a secret, and `ps` shows arguments",
    )
    release.add_output()
    renew = commands.command("renew", "restart the lease of a hold", _renew)
    renew.add_argument(
        "hold_id", metavar="HOLD_ID", nargs="?", help=f"as for release (default: ${HOLD_ID_VARIABLE})"
    )
    renew.add_argument("--ttl", metavar="TIME", type=duration_ms, help="give it another length")
    renew.add_argument("--exact", action="store_true", help="with --ttl: let it end earlier than it was to")
    renew.add_output()
    hand_over = commands.command("hand-over", "give a held lock to a waiter or a session", _hand_over)
    hand_over.add_argument(
        "hold_id", metavar="HOLD_ID", nargs="?", help=f"as for release (default: ${HOLD_ID_VARIABLE})"
    )
    hand_over.add_argument("--to-ticket", metavar="N", type=int, help="a waiter, by its number in the queue")
    hand_over.add_argument("--to-session", metavar="NAME", help="a session, by its public name, such as s-17")
    hand_over.add_output()
    _add_run(commands)
    _add_elect(commands)


def _add_run(commands: CommandParser) -> None:
    """Describe run."""
    run = commands.command(
        "run",
        "run a command under a lock",
        _run,
        usage="holdfast run NAME [--ttl TIME] [--wait TIME] [option ...] -- COMMAND [ARGUMENT ...]",
        description="Run a command under a lock that is renewed while the command runs and released when it "
        "ends. If the lock is lost, the command is stopped: see --on-lost and --grace. Its environment has "
        "HOLDFAST_TOKEN, the fencing token, and HOLDFAST_LOCK, the name. As process 1 of a container it also "
        "reaps orphans.",
    )
    _add_lock_arguments(run, owner="this host and process")
    run.add_argument(
        "--semaphore",
        metavar="N",
        type=count,
        help="take one of N permits of a semaphore instead: up to N of these commands run at a time, on all"
        " machines together",
    )
    run.add_argument(
        "--priority",
        metavar="N",
        type=int,
        default=PRIORITY_DEFAULT,
        help="0 to 9, the highest goes first, where the nodes allow it (default: 5)",
    )
    run.add_argument(
        "--ask-after",
        metavar="TIME",
        type=duration_ms,
        help="after waiting this long, ask holders of your own or of a lower priority to give up, where a"
        " namespace allows it",
    )
    run.add_argument(
        "--ask-grace",
        metavar="TIME",
        type=duration_ms,
        help=f"how long they have then (default: {DEFAULT_GRACE_S:g}s)",
    )
    _add_ending(run)


def _add_elect(commands: CommandParser) -> None:
    """Describe elect."""
    elect = commands.command(
        "elect",
        "run a command while leading an election",
        _elect,
        usage="holdfast elect NAME [--value TEXT] [--wait TIME] [option ...] -- COMMAND [ARGUMENT ...]",
        description="Campaign until elected, and run a command as the leader. It is stopped if leadership is"
        " lost; start holdfast again to campaign again. Its environment has HOLDFAST_TOKEN, the fencing"
        " token, and HOLDFAST_ELECTION, the name.",
    )
    elect.add_argument("name", metavar="NAME", help="the election")
    elect.add_argument("--value", metavar="TEXT", default="", help="shown to everybody, such as an address")
    elect.add_argument(
        "--ttl",
        metavar="TIME",
        type=duration_ms,
        default=round(DEFAULT_SESSION_TTL_S * 1000),
        help=f"how long others wait after this machine has died (default: {DEFAULT_SESSION_TTL_S:g}s)",
    )
    elect.add_argument(
        "--wait", metavar="TIME", type=wait_s, help="give up campaigning after this long (default: forever)"
    )
    elect.add_argument("--owner", metavar="NAME", help="shown to others (default: this host and process)")
    add_conflict_exit_code(elect, "somebody else leads")
    _add_ending(elect)


def _add_ending(parser: CommandParser) -> None:
    """Describe how run and elect end a command that may run no longer."""
    parser.add_argument(
        "--on-lost",
        metavar="LINE",
        type=_shell_line,
        help="a shell command line to run once, before SIGTERM, if the lock is lost while the command runs. "
        "It has half the grace, and the command's environment with HOLDFAST_LOST_REASON and "
        "HOLDFAST_COMMAND_PID",
    )
    parser.add_argument(
        "--grace",
        metavar="TIME",
        type=_grace_ms,
        default=round(guardian.GRACE_S * 1000),
        help="how long after the loss SIGKILL is sent; SIGTERM is sent at once, or when --on-lost has ended "
        f"(default: {guardian.GRACE_S:g}s)",
    )
    parser.set_defaults(takes_command=True)


def _add_lock_arguments(parser: CommandParser, owner: str) -> None:
    """Describe what acquire and run have in common."""
    parser.add_argument("name", metavar="NAME", help="the lock; '/' separates the parts of a path")
    parser.add_argument(
        "--ttl",
        metavar="TIME",
        type=duration_ms,
        default=round(DEFAULT_TTL_S * 1000),
        help=f"length of the lease, such as 500ms, 10s, 5m (default: {DEFAULT_TTL_S:g}s)",
    )
    parser.add_argument(
        "--wait",
        metavar="TIME",
        type=wait_s,
        default=0.0,
        help="how long to wait in the queue, or forever (default: 0s, so that a job fails and does not hang)",
    )
    parser.add_argument(
        "--mode",
        choices=_MODES,
        default=_MODES[0],
        help="what others may hold meanwhile (default: exclusive)",
    )
    parser.add_argument(
        "--shared", dest="mode", action="store_const", const="shared", help="short for --mode shared"
    )
    parser.add_argument("--owner", metavar="NAME", help=f"shown to others as the holder (default: {owner})")
    parser.add_argument("--note", metavar="TEXT", default="", help="shown to others, too")
    add_conflict_exit_code(parser, "somebody else has the lock")


def _grace_ms(text: str) -> int:
    """Read the time that a command has to end."""
    grace_ms = duration_ms(text)
    if grace_ms > GRACE_MAX_MS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is too long: without its lock a command runs for 1d at most"
        )
    return grace_ms


def _shell_line(text: str) -> str:
    """Read a line for the shell."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty; write a line for the shell, such as 'touch lost'")
    return text


def user_and_host() -> str:
    """Return who runs this, and where: the owner of what outlives this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run with a user id that has no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


async def _acquire(client: Inspector, arguments: argparse.Namespace) -> int:
    """Take a lock and print the hold."""
    with Waiting(client, "lock", arguments.name, is_verbose=arguments.verbose):
        hold = await client.acquire(
            arguments.name,
            ttl=arguments.ttl / 1000,
            wait=arguments.wait,
            mode=arguments.mode,
            note=arguments.note,
            renew=False,  # it outlives this program
        )
    row = {
        "hold_id": hold.hold_id,
        "token": hold.token,
        "name": hold.name,
        "mode": hold.mode,
        "expires_in_ms": int(hold.remaining * 1000),
    }
    try:
        print_one(row, table(_HELD, [row]), arguments.output)
        sys.stdout.flush()
    except OSError:
        await hold.give_up()  # nobody could release what nobody knows
        raise
    return 0


async def _renew(client: Inspector, arguments: argparse.Namespace) -> int:
    """Restart a lease and print how long it lasts. Raises ValueError."""
    if arguments.exact and arguments.ttl is None:
        raise ValueError("--exact needs --ttl")
    operation = hold_operations.renew(
        "lock", _hold_id(arguments.hold_id), arguments.ttl, exact=arguments.exact
    )
    answer = await client.told(operation)
    print_one(answer, [f"renewed; ends in {length_of('expires_in_ms')(answer)}"], arguments.output)
    return 0


async def _hand_over(client: Inspector, arguments: argparse.Namespace) -> int:
    """Give a lock to somebody else, and print with which token that has it. Raises ValueError."""
    if (arguments.to_ticket is None) == (arguments.to_session is None):
        raise ValueError("say who gets the lock: --to-ticket N or --to-session NAME, one of them")
    operation = hold_operations.hand_over(
        _hold_id(arguments.hold_id), to_ticket=arguments.to_ticket, to_session=arguments.to_session
    )
    answer = await client.told(operation)
    print_one(answer, [f"handed over to {answer['owner']}; token {answer['token']}"], arguments.output)
    return 0


async def _release(client: Inspector, arguments: argparse.Namespace) -> int:
    """Release a hold."""
    answer = await client.told(hold_operations.release("lock", _hold_id(arguments.hold_id)))
    text = (
        "released" if answer.get("released") else f"not released: {answer.get('depth')} more releases end it"
    )
    print_one(answer, [text], arguments.output)
    return 0


def _hold_id(given: str | None) -> str:
    """Return the hold id that is given, that stands in the environment, or that comes from standard input.

    Raises ValueError.
    """
    hold_id = os.environ.get(HOLD_ID_VARIABLE, "") if given is None else given
    if hold_id == "-":
        hold_id = sys.stdin.read().strip()
    if hold_id.startswith("{"):
        hold_id = msgspec.json.decode(hold_id, type=_Printed).hold_id
    if not hold_id:
        raise ValueError(
            f"give the hold_id, or - to read it or what `acquire -o json` printed, or set {HOLD_ID_VARIABLE}"
        )
    if hold_id.split() != [hold_id]:
        raise ValueError("a hold_id has no spaces; give what `holdfast acquire -o json` printed, not a table")
    return hold_id


class _Printed(msgspec.Struct, frozen=True):
    """What `acquire -o json` has printed, as far as `release` needs it."""

    hold_id: str


async def _run(client: Inspector, arguments: argparse.Namespace) -> int:
    """Run a command under a lock, or under a permit, and return its exit code."""
    terms: dict[str, Any] = {
        "ttl": arguments.ttl / 1000,
        "wait": arguments.wait,
        "note": arguments.note,
        "priority": arguments.priority,
    }
    if arguments.ask_after is not None:
        terms["ask_after"] = arguments.ask_after / 1000
    if arguments.ask_grace is not None:
        terms["grace"] = arguments.ask_grace / 1000
    if arguments.semaphore is None:
        lock = client.lock(arguments.name, mode=arguments.mode, **terms)
        return await _under(client, lock, "lock", arguments)
    if arguments.mode != _MODES[0]:
        raise ValueError("--mode and --shared are for locks, and --semaphore has none")
    permit = client.semaphore(arguments.name, limit=arguments.semaphore, **terms)
    return await _under(client, permit, "semaphore", arguments)


async def _elect(client: Inspector, arguments: argparse.Namespace) -> int:
    """Run a command while leading and return its exit code."""
    election = client.election(
        arguments.name, value=arguments.value, ttl=arguments.ttl / 1000, wait=arguments.wait
    )
    return await _under(client, election, "election", arguments)


async def _under(client: Inspector, lock: Acquirable[Any], kind: str, arguments: argparse.Namespace) -> int:
    """Run the command while it is held: a lock, a permit, or leadership. Raises ValueError."""
    if not hasattr(os, "killpg"):
        raise ValueError("run and elect end commands by their process group, which this system does not have")
    ending = CommandEnding(grace_s=arguments.grace / 1000, on_lost=arguments.on_lost or "")
    await ending.check()
    waiting = Waiting(client, kind, arguments.name, is_verbose=arguments.verbose)
    variable = "HOLDFAST_ELECTION" if kind == "election" else "HOLDFAST_LOCK"
    return await run_under_lock(lock, arguments.argv, ending, waiting, name_variable=variable)
