"""The commands `force` and `revoke`: what operators do to what others have. The cluster keeps the reasons."""

import argparse

from holdfast._errors import Refused
from holdfast.cli import tables
from holdfast.cli.inspector import Inspector
from holdfast.cli.parsing import CommandParser, duration_ms
from holdfast.cli.printing import print_one, table, to_row

NOTHING = "nothing-there"
"""The code of our own failure: there was nothing to end, lift or forget."""


def add_parser(commands: CommandParser) -> None:
    """Describe the commands."""
    force = commands.command(
        "force",
        "end or lift what others have, with a reason that is audited",
        description="End or lift what others have, with a reason that is audited. If there is nothing to end"
        " or to lift, the command says so and fails.",
    )
    release = force.command("release", "end every hold of a name", _release)
    release.add_argument("name", metavar="NAME")
    release.add_argument(
        "--lock-delay",
        metavar="TIME",
        type=duration_ms,
        default=0,
        help="how long it stays closed afterwards",
    )
    end = force.command("end-session", "end a session, with all that it holds and waits for", _end_session)
    end.add_argument("name", metavar="SESSION_NAME", help="its public name, such as s-17")
    lift = force.command("lift-delay", "end the lock-delays of a name early", _lift_delay)
    lift.add_argument("name", metavar="NAME")
    lift.add_argument(
        "--kind", choices=("lock", "semaphore"), default="lock", help="what is delayed (default: lock)"
    )
    forget = force.command("forget-fence", "make a resource accept any token again", _forget_fence)
    forget.add_argument("name", metavar="RESOURCE")
    revoke = commands.command(
        "revoke", "ask holders to release within a grace; then end their holds by force", _revoke
    )
    revoke.add_argument("name", metavar="NAME")
    revoke.add_argument(
        "--grace", metavar="TIME", type=duration_ms, default=30_000, help="how long they have (default: 30s)"
    )
    for parser in (release, revoke):
        parser.add_argument(
            "--kind",
            choices=("lock", "semaphore", "election"),
            default="lock",
            help="what they hold (default: lock)",
        )
        parser.add_argument("--token", metavar="N", type=int, help="only the hold that has this token")
    for parser in (release, end, lift, forget, revoke):
        parser.add_argument("--reason", metavar="TEXT", required=True, help="why; the audit keeps it")
        parser.add_output()


async def _release(client: Inspector, arguments: argparse.Namespace) -> int:
    """End holds, and print those that were ended."""
    released = await client.admin.force_release(
        arguments.name,
        reason=arguments.reason,
        lock_delay=arguments.lock_delay / 1000,
        kind=arguments.kind,
        token=arguments.token,
    )
    if not released:
        raise Refused(NOTHING, f"nobody holds {arguments.kind} {arguments.name!r}; nothing was released")
    rows = [to_row(holder) for holder in released]
    print_one({"released": released}, table(tables.HOLDERS, rows), arguments.output)
    return 0


async def _end_session(client: Inspector, arguments: argparse.Namespace) -> int:
    """End a session, and print what it held."""
    released = await client.admin.force_close_session(arguments.name, reason=arguments.reason)
    text = f"ended {arguments.name}; released {', '.join(released) or 'nothing'}"
    print_one({"released": released}, [text], arguments.output)
    return 0


async def _lift_delay(client: Inspector, arguments: argparse.Namespace) -> int:
    """Lift delays, and print how many there were."""
    lifted = await client.admin.lift_delay(arguments.name, reason=arguments.reason, kind=arguments.kind)
    if not lifted:
        raise Refused(NOTHING, f"{arguments.kind} {arguments.name!r} has no lock-delay; nothing was lifted")
    print_one({"lifted": lifted}, [f"{lifted} lifted"], arguments.output)
    return 0


async def _forget_fence(client: Inspector, arguments: argparse.Namespace) -> int:
    """Forget a token, and print which it was."""
    token = await client.admin.forget_fence(arguments.name, reason=arguments.reason)
    if token is None:
        raise Refused(NOTHING, f"resource {arguments.name!r} has never seen a token; nothing was forgotten")
    print_one({"highest_token": token}, [f"forgot token {token}"], arguments.output)
    return 0


async def _revoke(client: Inspector, arguments: argparse.Namespace) -> int:
    """Ask holders to release, and print who was asked."""
    revoked = await client.admin.revoke(
        arguments.name,
        reason=arguments.reason,
        grace=arguments.grace / 1000,
        kind=arguments.kind,
        token=arguments.token,
    )
    if not revoked:
        raise Refused(NOTHING, f"nobody holds {arguments.kind} {arguments.name!r}; nobody was asked")
    rows = [to_row(holder) for holder in revoked]
    print_one({"revoked": revoked}, table(tables.HOLDERS, rows), arguments.output)
    return 0
