"""The commands `force` and `revoke`: what operators do to what others have. The cluster keeps the reasons."""

import argparse
from collections.abc import Callable
from typing import cast

from holdfast.cli.inspector import Inspector
from holdfast.cli.printing import print_json


def add_parser(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", duration_ms: Callable[[str], int]
) -> None:
    """Describe the commands."""
    force = commands.add_parser("force", help="end or lift what others have, with a reason that is audited")
    actions = force.add_subparsers(dest="action", required=True, metavar="ACTION")
    release = actions.add_parser("release", help="end every hold of a name")
    release.add_argument("name", metavar="NAME")
    release.add_argument(
        "--lock-delay", metavar="TIME", type=duration_ms, default=0, help="how long it stays closed then"
    )
    end = actions.add_parser("end-session", help="end a session, with all that it holds and waits for")
    end.add_argument("name", metavar="SESSION_NAME", help="its public name, such as s-17")
    lift = actions.add_parser("lift-delay", help="end the lock-delays of a name before their time")
    lift.add_argument("name", metavar="NAME")
    lift.add_argument(
        "--kind", choices=("lock", "semaphore"), default="lock", help="what is delayed (default: lock)"
    )
    forget = actions.add_parser("forget-fence", help="make a resource accept any token again")
    forget.add_argument("name", metavar="RESOURCE")
    revoke = commands.add_parser(
        "revoke", help="ask holders to give up within a grace; then they are ended by force"
    )
    revoke.add_argument("name", metavar="NAME")
    revoke.add_argument(
        "--grace", metavar="TIME", type=duration_ms, default=30_000, help="until when (default: 30s)"
    )
    for parser in (release, revoke):
        parser.add_argument(
            "--kind",
            choices=("lock", "semaphore", "election"),
            default="lock",
            help="what they hold (default: lock)",
        )
        parser.add_argument("--token", metavar="N", type=int, help="only the holder that has this token")
    for parser in (release, end, lift, forget, revoke):
        parser.add_argument("--reason", metavar="TEXT", required=True, help="why; the audit keeps it")


async def force(client: Inspector, arguments: argparse.Namespace) -> int:
    """Do it, and print what came of it as JSON."""
    name, reason = cast("str", arguments.name), cast("str", arguments.reason)
    match arguments.action:
        case "release":
            released = await client.admin.force_release(
                name,
                reason=reason,
                lock_delay=arguments.lock_delay / 1000,
                kind=arguments.kind,
                token=arguments.token,
            )
            print_json({"released": released})
        case "end-session":
            print_json({"released": await client.admin.force_close_session(name, reason=reason)})
        case "lift-delay":
            print_json({"lifted": await client.admin.lift_delay(name, reason=reason, kind=arguments.kind)})
        case _:
            print_json({"highest_token": await client.admin.forget_fence(name, reason=reason)})
    return 0


async def revoke(client: Inspector, arguments: argparse.Namespace) -> int:
    """Ask, and print who was asked as JSON."""
    asked = await client.admin.revoke(
        arguments.name,
        reason=arguments.reason,
        grace=arguments.grace / 1000,
        kind=arguments.kind,
        token=arguments.token,
    )
    print_json({"revoked": asked})
    return 0
