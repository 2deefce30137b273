"""The commands `force` and `revoke`: what operators do to what others have. The cluster keeps the reasons."""

import argparse
from typing import Any, Final

import msgspec

from holdfast.cli.inspector import Inspector
from holdfast.cli.parsing import CommandParser, duration_ms
from holdfast.cli.printing import Columns, field, length_of, print_one, table
from holdfast.operations import override_operations
from holdfast.operations.terms import DEFAULT_GRACE_S
from holdfast.values.errors import Refused

NOTHING: Final = "nothing-there"
"""The code of our own failure: there was nothing to end, lift or forget."""
NOT_FINISHED: Final = "not-finished"
"""The code of our own failure: what was ended was not all, for more has come."""


def add_parser(commands: CommandParser) -> None:
    """Describe the commands."""
    force = commands.command(
        "force",
        "end holds, waits and sessions of others, with an audited reason",
        description="End holds, waits, sessions and lock-delays of others, with an audited reason. If there"
        " is nothing to end, to lift or to forget, the command says so and fails.",
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
    waits = force.command("end-waits", "end every wait for a name", _end_waits)
    waits.add_argument("name", metavar="NAME")
    waits.add_argument("--ticket", metavar="N", type=int, help="only the wait that has this number")
    end = force.command("end-session", "end a session, with all its holds and waits", _end_session)
    end.add_argument("name", metavar="SESSION_NAME", help="its public name, such as s-17")
    principal = force.command("principal", "end all sessions, holds and waits of a principal", _end_principal)
    principal.add_argument("name", metavar="PRINCIPAL", help="as in the tokens file")
    principal.add_argument("--waits-only", action="store_true", help="leave its sessions and holds")
    lift = force.command("lift-delay", "end the lock-delays of a name early", _lift_delay)
    lift.add_argument("name", metavar="NAME")
    lift.add_argument(
        "--kind", choices=("lock", "semaphore"), default="lock", help="what is delayed (default: lock)"
    )
    forget = force.command("forget-fence", "make a resource accept any token again", _forget_fence)
    forget.add_argument("name", metavar="NAME")
    rates = force.command("forget-rate-limits", "make rate limits as new", _forget_rate_limits)
    rates.add_argument("name", metavar="NAME", nargs="?")
    rates.add_argument("--prefix", metavar="PREFIX", help="all whose names begin with this")
    rates.add_argument("--all", action="store_true", help="all there are")
    revoke = commands.command(
        "revoke", "ask holders to release within a grace; then end their holds by force", _revoke
    )
    revoke.add_argument("name", metavar="NAME")
    revoke.add_argument(
        "--grace",
        metavar="TIME",
        type=duration_ms,
        help=f"how long they have (default: {DEFAULT_GRACE_S:g}s)",
    )
    revoke.add_argument("--withdraw", action="store_true", help="take back what they were asked")
    for parser, what in ((release, "hold"), (waits, "wait for"), (revoke, "hold")):
        parser.add_argument(
            "--kind",
            choices=("lock", "semaphore", "election"),
            default="lock",
            help=f"what they {what} (default: lock)",
        )
    for parser in (release, revoke):
        parser.add_argument("--token", metavar="N", type=int, help="only the hold that has this token")
    for parser in (release, waits, end, principal, lift, forget, rates, revoke):
        parser.add_reason()
        parser.add_output()


async def _release(client: Inspector, arguments: argparse.Namespace) -> int:
    """End holds, and print those that were ended."""
    answer = await client.told(
        override_operations.force_release(
            arguments.kind, arguments.name, arguments.reason, arguments.lock_delay, token=arguments.token
        )
    )
    forced = answer.get("forced")
    if not forced:
        raise Refused(NOTHING, f"nobody holds {arguments.kind} {arguments.name!r}; nothing was ended")
    print_one(answer, table(_ENDED, forced), arguments.output)
    return 0


async def _end_waits(client: Inspector, arguments: argparse.Namespace) -> int:
    """End waits, as many calls as that takes, and print them."""
    ended: list[dict[str, Any]] = []
    answer: dict[str, Any] = {"left": 1}
    while answer.get("left"):
        answer = await client.told(
            override_operations.force_waits(
                arguments.kind, arguments.name, arguments.reason, ticket=arguments.ticket
            )
        )
        ended += answer.get("ended", ())
    if not ended:
        raise Refused(NOTHING, f"nobody waits for {arguments.kind} {arguments.name!r}; nothing was ended")
    print_one({**answer, "ended": ended}, table(_WAITED, ended), arguments.output)
    return 0


async def _end_session(client: Inspector, arguments: argparse.Namespace) -> int:
    """End a session, and print what it held."""
    answer = await client.told(override_operations.force_close_session(arguments.name, arguments.reason))
    text = f"ended {arguments.name}; released {', '.join(answer.get('names', ())) or 'nothing'}"
    print_one(answer, [text], arguments.output)
    return 0


async def _end_principal(client: Inspector, arguments: argparse.Namespace) -> int:
    """End what a principal has, and print how much that was."""
    name = arguments.name
    ended = await client.admin.force_principal(name, reason=arguments.reason, waits_only=arguments.waits_only)
    if not (ended.sessions or ended.holds or ended.waits):
        raise Refused(NOTHING, f"principal {name!r} has nothing; nothing was ended")
    text = f"ended {ended.sessions} sessions, {ended.holds} other holds and {ended.waits} waits"
    print_one(msgspec.to_builtins(ended), [text], arguments.output)
    if not ended.is_finished:
        raise Refused(NOT_FINISHED, f"principal {name!r} makes more: take it out of the tokens files first")
    return 0


async def _lift_delay(client: Inspector, arguments: argparse.Namespace) -> int:
    """Lift delays, and print how many there were."""
    lift = override_operations.lift_delay(arguments.kind, arguments.name, arguments.reason)
    answer = await client.told(lift)
    if not answer.get("lifted"):
        raise Refused(NOTHING, f"{arguments.kind} {arguments.name!r} has no lock-delay; nothing was lifted")
    text = f"{answer.get('lifted')} lifted, {length_of('left_ms')(answer)} early"
    print_one(answer, [text], arguments.output)
    return 0


async def _forget_fence(client: Inspector, arguments: argparse.Namespace) -> int:
    """Forget a token, and print which it was."""
    answer = await client.told(override_operations.forget_fence(arguments.name, arguments.reason))
    if answer.get("highest_token") is None:
        raise Refused(NOTHING, f"fence {arguments.name!r} has never seen a token; nothing was forgotten")
    print_one(answer, [f"forgot token {answer.get('highest_token')}"], arguments.output)
    return 0


async def _forget_rate_limits(client: Inspector, arguments: argparse.Namespace) -> int:
    """Forget rate limits, and print how many there were."""
    name, prefix, reason = arguments.name, arguments.prefix, arguments.reason
    if [name is not None, prefix is not None, arguments.all].count(True) != 1:
        raise ValueError("name a rate limit, a --prefix, or --all")
    if prefix == "":
        raise ValueError("the --prefix is empty; --all forgets all rate limits")
    if name is not None:
        forgotten = await client.admin.forget_rate_limit(name, reason=reason)
    elif prefix is not None:
        forgotten = await client.admin.forget_rate_limits(prefix, reason=reason)
    else:
        forgotten = await client.admin.forget_all_rate_limits(reason=reason)
    if not forgotten:
        raise Refused(NOTHING, "nothing has been taken from any of these rate limits; nothing was forgotten")
    print_one({"forgotten": forgotten}, [f"{forgotten} forgotten"], arguments.output)
    return 0


async def _revoke(client: Inspector, arguments: argparse.Namespace) -> int:
    """Ask holders to release, and print who was asked."""
    if arguments.withdraw:
        return await _withdraw(client, arguments)
    grace_ms = round(DEFAULT_GRACE_S * 1000) if arguments.grace is None else arguments.grace
    answer = await client.told(
        override_operations.revoke(
            arguments.kind,
            arguments.name,
            arguments.reason,
            grace_ms,
            token=arguments.token,
            ticket=None,
        )
    )
    asked = answer.get("revoked")
    if not asked:
        raise Refused(NOTHING, f"nobody holds {arguments.kind} {arguments.name!r}; nobody was asked")
    print_one(answer, table(_ASKED, asked), arguments.output)
    return 0


async def _withdraw(client: Inspector, arguments: argparse.Namespace) -> int:
    """Take back what holders were asked, as many calls as that takes, and print how much that was."""
    if arguments.grace is not None:
        raise ValueError("--withdraw gives no grace: leave out --grace")
    kind, name = arguments.kind, arguments.name
    withdrawn = await client.admin.withdraw_revocation(
        name, reason=arguments.reason, kind=kind, token=arguments.token
    )
    if not withdrawn:
        raise Refused(NOTHING, f"no holder of {kind} {name!r} was asked to release; nothing was withdrawn")
    print_one({"withdrawn": withdrawn}, [f"{withdrawn} withdrawn"], arguments.output)
    return 0


_ENDED: Final[Columns] = {
    "OWNER": field("owner"),
    "TOKEN": field("token"),
    "NOTE": lambda row: row.get("note") or "-",
}
_WAITED: Final[Columns] = {
    "OWNER": field("owner"),
    "TICKET": field("ticket"),
    "WAITED": length_of("waited_ms"),
}
_ASKED: Final[Columns] = {**_ENDED, "GRACE": lambda row: length_of("ends_in_ms")(row.get("revocation") or {})}
