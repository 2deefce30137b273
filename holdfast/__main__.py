"""The command line: take a lock, give it back, run a command under one, look at and change the cluster.

Exit codes: 0 done; 1 refused (the lock is held, the lease is over); 2 wrong usage; 3 no node could do it;
4 the outcome is not known; 5 the lock was lost while the command ran. `run` else exits as its command did.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence

import msgspec

from holdfast import _cluster_commands, _errors
from holdfast._client import Client
from holdfast._run import run_under_lock

EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_UNAVAILABLE = 3
EXIT_UNKNOWN = 4
EXIT_LOST = 5
EXIT_NOT_RUNNABLE = 126

DEFAULT_NODES = "http://127.0.0.1:7701,http://127.0.0.1:7702,http://127.0.0.1:7703"

EPILOG = """\
exit codes: 0 done; 1 refused; 2 wrong usage; 3 no node could do it; 4 the outcome is not known;
5 the lock was lost while the command ran. `run` exits as its command did otherwise.
"""


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(
        prog="holdfast",
        description="Use the locks of a Holdfast cluster.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--nodes",
        metavar="URL,URL,...",
        default=os.environ.get("HOLDFAST_NODES", DEFAULT_NODES),
        help="any nodes of the cluster (default: $HOLDFAST_NODES, else three on this machine)",
    )
    parser.add_argument(
        "--timeout",
        metavar="TIME",
        type=duration_ms,
        default=10_000,
        help="how long to try before giving up (default: 10s); time in a queue is added to it",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    acquire = commands.add_parser("acquire", help="take a lock and print the hold as JSON; nothing renews it")
    _add_lock_arguments(acquire, ttl_default="30s")

    release = commands.add_parser("release", help="give a lock back")
    release.add_argument("hold_id", metavar="HOLD_ID", help="the hold_id that acquire printed")

    run = commands.add_parser(
        "run",
        usage="holdfast run NAME [--ttl TIME] [--wait TIME] [option ...] -- COMMAND [ARGUMENT ...]",
        help="run a command under a lock",
        description="Run a command under a lock: renewed while it runs, released when it ends. The "
        "command is stopped if the lock is lost. Its environment has HOLDFAST_TOKEN, the fencing token, "
        "and HOLDFAST_LOCK, the name.",
    )
    _add_lock_arguments(run, ttl_default="10s")

    get = commands.add_parser("get", help="show who holds a lock and who waits, as JSON")
    get.add_argument("name", metavar="NAME")

    commands.add_parser("status", help="show the nodes; exit 0 when the cluster has a leader")
    _cluster_commands.add_parser(commands, duration_ms)
    return parser


def _add_lock_arguments(parser: argparse.ArgumentParser, ttl_default: str) -> None:
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
    parser.add_argument("--shared", action="store_true", help="hold it together with other shared holders")
    parser.add_argument("--owner", metavar="NAME", help="shown to others (default: this host and process)")
    parser.add_argument("--note", metavar="TEXT", default="", help="shown to others, too")


def duration_ms(text: str) -> int:
    """Read a length of time such as 500ms, 10s, 5m or 1h; a bare number means seconds."""
    units = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
    unit = next((unit for unit in units if text.endswith(unit)), "")
    try:
        value = round(float(text.removesuffix(unit)) * units.get(unit, 1000))
    except (ValueError, OverflowError):
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a length of time; write it like 500ms, 10s or 5m")
    return value


async def _acquire(client: Client, arguments: argparse.Namespace) -> int:
    """Take a lock and print the hold."""
    hold = await client.acquire(
        arguments.name,
        ttl_ms=arguments.ttl,
        wait_ms=arguments.wait,
        mode="shared" if arguments.shared else "exclusive",
        note=arguments.note,
    )
    _print_json(
        {
            "hold_id": hold.hold_id,
            "token": hold.token,
            "name": hold.name,
            "mode": hold.mode,
            "expires_in_ms": hold.remaining_ms,
        }
    )
    return 0


async def _release(client: Client, arguments: argparse.Namespace) -> int:
    """Give a hold back."""
    await client.release(arguments.hold_id)
    print("released")
    return 0


async def _run(client: Client, arguments: argparse.Namespace) -> int:
    """Run a command under a lock and return its exit code."""
    lock = client.lock(
        arguments.name,
        ttl_ms=arguments.ttl,
        wait_ms=arguments.wait,
        mode="shared" if arguments.shared else "exclusive",
        note=arguments.note,
    )
    return await run_under_lock(lock, arguments.argv)


async def _get(client: Client, arguments: argparse.Namespace) -> int:
    """Print one lock."""
    _print_json(await client.get_lock(arguments.name))
    return 0


async def _status(client: Client, _: argparse.Namespace) -> int:
    """Print the nodes as the answering node sees them."""
    info = await client.cluster()
    print(f"asked {info.node_id}: leader {info.leader or 'none'}, term {info.term}, revision {info.revision}")
    for node in info.nodes:
        print(f"  {node.id:<6} {node.state:<12} revision {node.revision:<10} {node.http}")
    return 0 if info.leader else EXIT_UNAVAILABLE


_COMMANDS = {
    "acquire": _acquire,
    "release": _release,
    "run": _run,
    "get": _get,
    "status": _status,
    "cluster": _cluster_commands.run,
}


def _print_json(value: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


async def _main(arguments: argparse.Namespace) -> int:
    """Run one command and turn its failure into a sentence that says what to do next, and an exit code."""
    nodes = [node.strip() for node in arguments.nodes.split(",") if node.strip()]
    owner = getattr(arguments, "owner", None)
    try:
        async with Client(nodes, timeout_s=arguments.timeout / 1000, owner=owner) as client:
            return await _COMMANDS[arguments.command](client, arguments)
    except _errors.LockError as error:
        code, hint = next(row[1:] for row in _FAILURES if isinstance(error, row[0]))
        if arguments.command == "cluster":
            hint = _cluster_commands.hint(error) or hint
        return _fail(code, _describe(error), hint)
    except OSError as error:
        return _fail(EXIT_NOT_RUNNABLE, str(error), "the command could not be started; the lock is released")
    except ValueError as error:
        return _fail(EXIT_USAGE, str(error), "see --nodes in `holdfast --help`")


_FAILURES: tuple[tuple[type[_errors.LockError], int, str], ...] = (
    (_errors.LockHeld, EXIT_REFUSED, "wait for it with --wait 1m"),
    (_errors.LeaseExpired, EXIT_REFUSED, "the hold was over already; what must last longer goes under `run`"),
    (_errors.Refused, EXIT_REFUSED, "correct the call; see `holdfast COMMAND --help`"),
    (
        _errors.Unavailable,
        EXIT_UNAVAILABLE,
        "nothing was changed; are these nodes running? (--nodes, HOLDFAST_NODES)",
    ),
    (_errors.OutcomeUnknown, EXIT_UNKNOWN, "it may have been done; look with `holdfast get NAME`"),
    (_errors.LeaseLost, EXIT_LOST, "somebody else may hold the lock now; check what the command has done"),
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
    # Split first: argparse would take options that follow NAME for the command's.
    words = list(sys.argv[1:] if argv is None else argv)
    cut = words.index("--") if "--" in words else len(words)
    parser = build_parser()
    arguments = parser.parse_args(words[:cut])
    arguments.argv = words[cut + 1 :]
    if (arguments.command == "run") != bool(arguments.argv):
        parser.error("only run takes a command, after --, as in: holdfast run NAME -- make deploy")
    try:
        sys.exit(asyncio.run(_main(arguments)))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
