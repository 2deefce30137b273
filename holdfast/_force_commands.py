"""The command `force`: what operators do to what others have. The cluster keeps the reason of each."""

import argparse
from typing import cast

from holdfast._inspector import Inspector
from holdfast._printing import print_json


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Describe the command."""
    force = commands.add_parser("force", help="end or lift what others have, with a reason that is audited")
    actions = force.add_subparsers(dest="action", required=True, metavar="ACTION")
    release = actions.add_parser("release", help="end every hold of a lock")
    release.add_argument("name", metavar="NAME")
    end = actions.add_parser("end-session", help="end a session, with all that it holds and waits for")
    end.add_argument("name", metavar="SESSION_NAME", help="its public name, such as s-17")
    lift = actions.add_parser("lift-delay", help="end the lock-delays of a name before their time")
    lift.add_argument("name", metavar="NAME")
    lift.add_argument(
        "--kind", choices=("lock", "semaphore"), default="lock", help="what is delayed (default: lock)"
    )
    forget = actions.add_parser("forget-fence", help="make a resource accept any token again")
    forget.add_argument("name", metavar="RESOURCE")
    for parser in (release, end, lift, forget):
        parser.add_argument("--reason", metavar="TEXT", required=True, help="why; the audit keeps it")


async def force(client: Inspector, arguments: argparse.Namespace) -> int:
    """Do it, and print what came of it as JSON."""
    name, reason = cast("str", arguments.name), cast("str", arguments.reason)
    match arguments.action:
        case "release":
            print_json({"released": await client.force_release(name, reason=reason)})
        case "end-session":
            print_json({"released": await client.force_close_session(name, reason=reason)})
        case "lift-delay":
            print_json({"lifted": await client.lift_delay(name, reason=reason, kind=arguments.kind)})
        case _:
            print_json({"highest_token": await client.forget_fence(name, reason=reason)})
    return 0
