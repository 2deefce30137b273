"""The command line: take a lock, give it back, run a command under one, look at and change the cluster.

The exit codes stand in `exit_codes.py`.
"""

import argparse
import asyncio
import getpass
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import quote

import msgspec

from holdfast import __version__, _errors
from holdfast._client import Client
from holdfast._wanted import DEFAULT_PRIORITY
from holdfast.cli import (
    audit,
    cells,
    certs,
    cluster,
    completion,
    exit_codes,
    force,
    guardian,
    namespaces,
    quotas,
    reading,
    refusals,
    tokens,
    top,
)
from holdfast.cli.ending import Ending
from holdfast.cli.inspector import ITEMS, Inspector
from holdfast.cli.printing import print_json
from holdfast.cli.run import run_under_lock

HOLD_ID_VARIABLE = "HOLDFAST_HOLD_ID"
"""The environment variable with the hold to release: other users can see arguments, but not this."""


GRACE_MAX_MS = 86_400_000
"""The longest time for which a command may go on without its lock."""

_MODES = ("exclusive", "shared", "update", "concurrent-read", "concurrent-write")
"""The modes of locks, the usual one first."""


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(
        prog="holdfast",
        description="Use the locks of a Holdfast cluster.",
        epilog=exit_codes.describe(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"holdfast {__version__}")
    parser.add_argument(
        "--nodes",
        metavar="URL,URL,...",
        help="any nodes of the cluster (default: $HOLDFAST_NODES, else ports 7700 to 7702 of this machine)",
    )
    parser.add_argument(
        "--timeout",
        metavar="TIME",
        type=duration_ms,
        default=10_000,
        help="how long to try before giving up (default: 10s); time in a queue is added to it",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="send the token in this file (default: $HOLDFAST_ACCESS_TOKEN_FILE, or $HOLDFAST_ACCESS_TOKEN)",
    )
    parser.add_argument(
        "--insecure-plain-token",
        action="store_true",
        help="send it to other machines without TLS, too: whoever is on the path can read it",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    acquire = commands.add_parser("acquire", help="take a lock and print the hold as JSON; nothing renews it")
    _add_lock_arguments(acquire, ttl_default="30s", owner="this user and host")

    release = commands.add_parser("release", help="give a lock back")
    release.add_argument(
        "hold_id",
        metavar="HOLD_ID",
        nargs="?",
        help="the hold_id that acquire printed; - reads it, or all that acquire printed, from standard input "
        f"(default: ${HOLD_ID_VARIABLE}). It is a secret, and what stands here is shown by ps",
    )

    _add_renew(commands)
    run = commands.add_parser(
        "run",
        usage="holdfast run NAME [--ttl TIME] [--wait TIME] [option ...] -- COMMAND [ARGUMENT ...]",
        help="run a command under a lock",
        description="Run a command under a lock: renewed while it runs, released when it ends. The "
        "command is stopped if the lock is lost, see --on-lost and --grace. Its environment has "
        "HOLDFAST_TOKEN, the fencing token, and HOLDFAST_LOCK, the name.",
    )
    _add_lock_arguments(run, ttl_default="10s", owner="this host and process")
    run.add_argument(
        "--semaphore",
        metavar="N",
        type=reading.count,
        help="not a lock but one of N permits: so many of these commands run at a time, on all machines",
    )
    run.add_argument(
        "--priority",
        metavar="N",
        type=int,
        default=DEFAULT_PRIORITY,
        help="0 to 9, the highest goes first, where the nodes allow it (default: 5)",
    )
    _add_ending(run)

    _add_elect(commands)
    get = commands.add_parser("get", help="show who holds a lock and who waits, as JSON")
    get.add_argument("name", metavar="NAME")
    get.add_argument("--kind", choices=list(ITEMS), default="lock", help="or something else (default: lock)")
    reading.add_parser(commands, duration_ms)
    audit.add_parser(commands)
    refusals.add_parser(commands)
    quotas.add_parser(commands)
    namespaces.add_parser(commands, duration_ms)
    top.add_parser(commands, duration_ms)
    cells.add_parser(commands, duration_ms)
    force.add_parser(commands, duration_ms)

    status = commands.add_parser(
        "status", help="show the nodes and what hinders them; exit 0 when there is a leader"
    )
    status.add_argument("--json", action="store_true", help="as one JSON document")
    cluster.add_parser(commands, duration_ms)
    certs.add_parser(commands)
    shells = commands.add_parser("completion", help="print what completes commands in a shell")
    shells.add_argument("shell", choices=list(completion.SHELLS))
    commands.add_parser("man", help="print the manual page; see it with `holdfast man | man -l -`")
    tokens.add_parser(commands)
    return parser


def _add_renew(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Describe renew."""
    renew = commands.add_parser("renew", help="start the lease of a hold anew")
    renew.add_argument(
        "hold_id", metavar="HOLD_ID", nargs="?", help=f"as for release (default: ${HOLD_ID_VARIABLE})"
    )
    renew.add_argument("--ttl", metavar="TIME", type=duration_ms, help="another length from now on")


def _add_elect(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Describe elect."""
    elect = commands.add_parser(
        "elect",
        usage="holdfast elect NAME [--value TEXT] [--wait TIME] [option ...] -- COMMAND [ARGUMENT ...]",
        help="run a command while leading an election",
        description="Campaign, for as long as it takes, and run a command as the leader. It is stopped if"
        " leadership is lost; start holdfast again to campaign again. Its environment has HOLDFAST_TOKEN, the"
        " fencing token, and HOLDFAST_ELECTION, the name.",
    )
    elect.add_argument("name", metavar="NAME")
    elect.add_argument("--value", metavar="TEXT", default="", help="told to everybody, such as an address")
    elect.add_argument(
        "--ttl",
        metavar="TIME",
        type=duration_ms,
        default=duration_ms("15s"),
        help="others wait so long after this machine has died (default: 15s)",
    )
    elect.add_argument(
        "--wait",
        metavar="TIME",
        type=duration_ms,
        help="campaign this long (default: for as long as it takes)",
    )
    elect.add_argument("--owner", metavar="NAME", help="shown to others (default: this host and process)")
    _add_conflict_exit_code(elect)
    _add_ending(elect)


def _add_ending(parser: argparse.ArgumentParser) -> None:
    """Describe how run and elect end a command that may run no longer."""
    parser.add_argument(
        "--on-lost",
        metavar="LINE",
        type=_shell_line,
        help="run this line of the shell once, before SIGTERM, when what was held is lost while the command "
        "runs. It has half the grace, and the command's environment with HOLDFAST_LOST_REASON and "
        "HOLDFAST_COMMAND_PID",
    )
    parser.add_argument(
        "--grace",
        metavar="TIME",
        type=_grace_ms,
        default=round(guardian.GRACE_S * 1000),
        help="SIGKILL comes so long after the loss, and SIGTERM at once, or when --on-lost has ended "
        f"(default: {guardian.GRACE_S:g}s)",
    )


def _add_lock_arguments(parser: argparse.ArgumentParser, ttl_default: str, owner: str) -> None:
    """Describe what acquire and run have in common."""
    parser.add_argument("name", metavar="NAME", help="the lock; '/' separates the parts of a path")
    parser.add_argument(
        "--ttl",
        metavar="TIME",
        type=duration_ms,
        default=duration_ms(ttl_default),
        help=f"length of the lease, such as 500ms, 10s, 5m (default: {ttl_default})",
    )
    parser.add_argument(
        "--wait",
        metavar="TIME",
        type=duration_ms,
        default=0,
        help="wait in the queue this long (default: 0s)",
    )
    parser.add_argument("--mode", choices=_MODES, default=_MODES[0], help="beside whom it is held")
    parser.add_argument(
        "--shared",
        dest="mode",
        action="store_const",
        const="shared",
        help="hold it together with other shared holders: --mode shared",
    )
    parser.add_argument("--owner", metavar="NAME", help=f"shown to others (default: {owner})")
    parser.add_argument("--note", metavar="TEXT", default="", help="shown to others, too")
    _add_conflict_exit_code(parser)


def _add_conflict_exit_code(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--conflict-exit-code",
        metavar="CODE",
        type=int,
        choices=range(256),
        default=exit_codes.CONFLICT,
        help=f"exit so when somebody else has the lock (default: {exit_codes.CONFLICT})",
    )


def duration_ms(text: str) -> int:
    """Read a length of time such as 500ms, 10s, 5m, 1h or 1d; a bare number means seconds."""
    units = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
    unit = next((unit for unit in units if text.endswith(unit)), "")
    try:
        value = round(float(text.removesuffix(unit)) * units.get(unit, 1000))
    except (ValueError, OverflowError):
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a length of time; write it like 500ms, 10s or 5m")
    return value


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


async def _ending(arguments: argparse.Namespace) -> Ending:
    """Return how to end a command that may run no longer. Raises ValueError."""
    ending = Ending(grace_s=arguments.grace / 1000, on_lost=arguments.on_lost or "")
    await ending.check()
    return ending


def _user() -> str:
    """Return who runs this, and where."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run with a user id that has no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


async def _acquire(client: Client, arguments: argparse.Namespace) -> int:
    """Take a lock and print the hold."""
    hold = await client.acquire(
        arguments.name,
        ttl=arguments.ttl / 1000,
        timeout=arguments.wait / 1000,
        mode=arguments.mode,
        note=arguments.note,
    )
    try:
        print_json(
            {
                "hold_id": hold.hold_id,
                "token": hold.token,
                "name": hold.name,
                "mode": hold.mode,
                "expires_in_ms": int(hold.remaining * 1000),
            }
        )
        sys.stdout.flush()
    except OSError:
        await hold.give_up()  # nobody could release what nobody knows
        raise
    return 0


async def _renew(client: Inspector, arguments: argparse.Namespace) -> int:
    """Start a lease anew and print how long it lasts."""
    lease = await client.renew_by_id(_hold_id(arguments.hold_id), arguments.ttl)
    print_json({"expires_in_ms": lease.expires_in_ms})
    return 0


async def _release(client: Client, arguments: argparse.Namespace) -> int:
    """Give a hold back."""
    await client.release(_hold_id(arguments.hold_id))
    print("released")
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
        raise ValueError(f"give the hold_id, or - to read it, or set {HOLD_ID_VARIABLE}")
    return hold_id


class _Printed(msgspec.Struct, frozen=True):
    """What `acquire` has printed, as far as `release` needs it."""

    hold_id: str


async def _run(client: Client, arguments: argparse.Namespace) -> int:
    """Run a command under a lock, or under a permit, and return its exit code."""
    ttl, timeout = arguments.ttl / 1000, arguments.wait / 1000
    ending = await _ending(arguments)
    if arguments.semaphore is not None:
        if arguments.mode != _MODES[0]:
            raise ValueError("--mode and --shared are for locks, and --semaphore has none")
        permit = client.semaphore(
            arguments.name,
            limit=arguments.semaphore,
            ttl=ttl,
            timeout=timeout,
            note=arguments.note,
            priority=arguments.priority,
        )
        return await run_under_lock(permit, arguments.argv, ending)
    lock = client.lock(
        arguments.name,
        ttl=ttl,
        timeout=timeout,
        mode=arguments.mode,
        note=arguments.note,
        priority=arguments.priority,
    )
    return await run_under_lock(lock, arguments.argv, ending)


async def _elect(client: Client, arguments: argparse.Namespace) -> int:
    """Run a command while leading and return its exit code."""
    election = client.election(
        arguments.name,
        value=arguments.value,
        ttl=arguments.ttl / 1000,
        timeout=None if arguments.wait is None else arguments.wait / 1000,
    )
    ending = await _ending(arguments)
    return await run_under_lock(election, arguments.argv, ending, "HOLDFAST_ELECTION")


async def _get(client: Inspector, arguments: argparse.Namespace) -> int:
    """Print one lock, or what else has a name."""
    if arguments.kind == "lock":
        print_json(await client.get_lock(arguments.name))
    else:
        print_json(await client.read(ITEMS[arguments.kind].format(name=quote(arguments.name, safe="")), {}))
    return 0


async def _status(client: Client, arguments: argparse.Namespace) -> int:
    """Print the nodes as the answering node sees them."""
    info = await client.cluster()
    if arguments.json:
        print_json(info)
        return 0 if info.leader else exit_codes.UNAVAILABLE
    print(f"asked {info.node_id}: leader {info.leader or 'none'}, term {info.term}, revision {info.revision}")
    for node in info.nodes:
        print(f"  {node.id:<6} {node.state:<12} revision {node.revision:<10} {node.http}")
    for obstacle in info.obstacles:
        print(f"{obstacle.kind} for {obstacle.for_ms / 1000:.0f} s: {obstacle.detail}")
        print(f"    {obstacle.advice}")
    return 0 if info.leader else exit_codes.UNAVAILABLE


_COMMANDS: Mapping[str, Callable[[Inspector, argparse.Namespace], Awaitable[int]]] = {
    "acquire": _acquire,
    "renew": _renew,
    "release": _release,
    "run": _run,
    "elect": _elect,
    "get": _get,
    "list": reading.list_,
    "session": reading.session,
    "watch": reading.watch,
    "audit": audit.run,
    "refusals": refusals.run,
    "quota": quotas.run,
    "namespace": namespaces.run,
    "top": top.run,
    "cell": cells.cell,
    "take": cells.take,
    "force": force.force,
    "revoke": force.revoke,
    "status": _status,
    "cluster": cluster.run,
}


def _make(arguments: argparse.Namespace) -> int:
    """Make certificates, or tokens, for which no node is asked."""
    made = certs.run if arguments.command == "cert" else tokens.run
    try:
        return made(arguments)
    except ValueError as error:
        return _fail(exit_codes.USAGE, str(error), f"see `holdfast {arguments.command} --help`")
    except OSError as error:
        what = f"{error.filename}: {error.strerror}"
        return _fail(exit_codes.REFUSED, what, "nothing was replaced; put that right and repeat the command")


def _describe_self(arguments: argparse.Namespace) -> int:
    """Print what is made from the parser, for which no node is asked."""
    root = completion.read(build_parser())
    if arguments.command == "man":
        print(completion.manual(root, __version__, exit_codes.MEANINGS))
    else:
        print(completion.SHELLS[arguments.shell](root))
    return 0


_UNDER_LOCK = ("run", "elect")
"""The commands that run another one."""
_WITHOUT_NODES: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "cert": _make,
    "token": _make,
    "completion": _describe_self,
    "man": _describe_self,
}


async def _main(arguments: argparse.Namespace) -> int:
    """Run one command and turn its failure into a sentence that says what to do next, and an exit code."""
    owner = getattr(arguments, "owner", None)
    if arguments.command == "acquire" and not owner:
        owner = _user()  # this process is gone when somebody looks who has the lock
    try:
        async with Inspector(
            arguments.nodes,
            timeout=arguments.timeout / 1000,
            owner=owner,
            token_file=arguments.token_file,
            insecure_plain_token=arguments.insecure_plain_token,
        ) as client:
            return await _COMMANDS[arguments.command](client, arguments)
    except _errors.LockError as error:
        code, hint = next(row[1:] for row in _FAILURES if isinstance(error, row[0]))
        if arguments.command == "cluster":
            hint = cluster.hint(error) or hint
        if isinstance(error, _errors.LockHeld | _errors.RateLimited):
            code = getattr(arguments, "conflict_exit_code", code)
        return _fail(code, _describe(error), hint)
    except OSError as error:
        if arguments.command not in _UNDER_LOCK:
            if isinstance(error, BrokenPipeError):
                raise
            return _fail(exit_codes.REFUSED, str(error), "the answer could not be printed")
        is_missing = isinstance(error, FileNotFoundError)
        code = exit_codes.NOT_FOUND if is_missing else exit_codes.NOT_RUNNABLE
        return _fail(code, str(error), "the command could not be started; the lock is released")
    except ValueError as error:
        return _fail(exit_codes.USAGE, str(error), "see `holdfast --help` and `holdfast COMMAND --help`")


_FAILURES: tuple[tuple[type[_errors.LockError], int, str], ...] = (
    (_errors.LockHeld, exit_codes.CONFLICT, "wait for it with --wait 1m"),
    (_errors.RateLimited, exit_codes.CONFLICT, "wait for it with --wait 1m"),
    (
        _errors.Compacted,
        exit_codes.REFUSED,
        "look at what there is now, and watch from now on, without --since",
    ),
    (
        _errors.LeaseExpired,
        exit_codes.REFUSED,
        "the hold was over already; what must last longer goes under `run`",
    ),
    (
        _errors.AccessDenied,
        exit_codes.REFUSED,
        "nothing was changed; look at HOLDFAST_ACCESS_TOKEN_FILE, and at the tokens file of the nodes",
    ),
    (_errors.Refused, exit_codes.REFUSED, "correct the call; see `holdfast COMMAND --help`"),
    (
        _errors.TlsRefused,
        exit_codes.UNAVAILABLE,
        "nothing was changed; look at HOLDFAST_CA, HOLDFAST_CERT, HOLDFAST_KEY and the nodes' files",
    ),
    (
        _errors.Unavailable,
        exit_codes.UNAVAILABLE,
        "nothing was changed; are these nodes running? (--nodes, HOLDFAST_NODES)",
    ),
    (_errors.OutcomeUnknown, exit_codes.UNKNOWN, "it may have been done; look with `holdfast get NAME`"),
    (
        _errors.LeaseLost,
        exit_codes.LOST,
        "somebody else may hold the lock now; check what the command has done",
    ),
)
"""The exit code of each failure, and what to do next. The first row that fits counts."""


def _describe(error: _errors.LockError) -> str:
    """Say what happened; for a held lock, who has it."""
    holders = error.problem.get("holders") if isinstance(error, _errors.LockHeld) else None
    if not isinstance(holders, list):
        return str(error)
    owners = ", ".join(str(holder.get("owner")) for holder in holders if isinstance(holder, dict))
    return f"the lock is held by {owners}"


def _fail(code: int, what: str, hint: str) -> int:
    print(f"holdfast: {what}\nholdfast: {hint}", file=sys.stderr)
    return code


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    _open_missing_streams()
    # Split first: argparse would take options that follow NAME for the command's.
    words = list(sys.argv[1:] if argv is None else argv)
    cut = words.index("--") if "--" in words else len(words)
    parser = build_parser()
    arguments, unknown = parser.parse_known_args(words[:cut])
    name = arguments.command
    if unknown and name in _UNDER_LOCK:
        parser.error(
            f"the command goes after --, as in: holdfast {name} {arguments.name} -- {' '.join(unknown)}"
        )
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    arguments.argv = words[cut + 1 :]
    if (name in _UNDER_LOCK) != bool(arguments.argv):
        parser.error("run and elect take a command, after --, as in: holdfast run NAME -- make deploy")
    try:
        code = _WITHOUT_NODES[name](arguments) if name in _WITHOUT_NODES else asyncio.run(_main(arguments))
    except KeyboardInterrupt:
        code = exit_codes.INTERRUPTED
    except BrokenPipeError:
        code = exit_codes.BROKEN_PIPE
    sys.exit(_flushed(code))


def _open_missing_streams() -> None:
    """Give this process all three streams, if whoever started it has closed any.

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
        return code or _fail(exit_codes.REFUSED, str(error), "the answer could not be printed")
    return code
