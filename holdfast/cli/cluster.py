"""The command `cluster`: which nodes belong to it, and how that is changed."""

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from holdfast import wire
from holdfast.cli import rotate_secret
from holdfast.cli.inspector import Inspector
from holdfast.cli.parsing import CommandParser, duration_ms
from holdfast.cli.printing import (
    TABLE,
    Columns,
    asked,
    field,
    print_lines,
    print_one,
    print_rows,
    say,
    to_row,
)
from holdfast.operations import cluster_operations
from holdfast.values.clock import now_s
from holdfast.values.errors import InvalidRequest, LockError, MemberChangeRefused, OutcomeUnknown, Unavailable
from holdfast.wire.operators import Member

POLL_S: Final = 0.2
"""Seconds between two looks at whether a node has caught up."""
REPLACE_WAIT_MS: Final = 60_000
"""Milliseconds that a new node may take to catch up, unless the command line says otherwise."""

VOTERS_MIN: Final = 3
"""How many voters a cluster needs to bear the failure of one."""

STILL_JOINING: Final = "still-joining"
"""The code of our own failure: the new node did not catch up in time."""


def hint(error: LockError) -> str | None:
    """Return what to do after a change of the members failed, None for the usual advice."""
    match error:
        case OutcomeUnknown():
            return (
                "it may have been done; look with `holdfast cluster members`, or repeat it: that does no harm"
            )
        case MemberChangeRefused():
            return "this change was not made; look with `holdfast cluster members`"
        case Unavailable(code=code) if code == rotate_secret.STUCK:
            return "the cluster goes on as it is; repeat the command, and it continues where it stopped"
        case Unavailable(code=code) if code == STILL_JOINING:
            return "start it, and repeat this command; or take it out again with `holdfast cluster remove`"
        case _:
            return None


_NODES: Final[Columns] = {
    "ID": field("id"),
    "STATE": field("state"),
    "PEER": field("peer"),
    "HTTP": field("http"),
    "REVISION": field("revision"),
}


def add_parser(commands: CommandParser) -> None:
    """Describe the commands."""
    cluster = commands.command(
        "cluster",
        "show and change the nodes that belong to the cluster",
        description="Show and change the nodes that belong to the cluster, one at a time, while it runs.",
    )
    members = cluster.command("members", "show all nodes with their addresses", _members)
    add = cluster.command("add", "add a node and print how to start it", _add)
    add.add_argument("node_id", metavar="ID", help="a new id")
    add.add_argument("peer", metavar="HOST:PORT", help="where the other nodes will reach it")
    move = cluster.command("move", "change the address of a node that keeps its data directory", _move)
    move.add_argument("node_id", metavar="ID")
    move.add_argument("peer", metavar="HOST:PORT", help="where the other nodes will reach it")
    remove = cluster.command("remove", "remove a node, dead or alive; its disk can never rejoin", _remove)
    remove.add_argument("node_id", metavar="ID")
    remove.add_argument(
        "--yes", action="store_true", help=f"do not ask, even if fewer than {VOTERS_MIN} voters are left"
    )
    replace = cluster.command("replace", "add a node, wait until it votes, and remove another one", _replace)
    replace.add_argument("old_id", metavar="OLD_ID", help="the node to remove, dead or alive")
    replace.add_argument("node_id", metavar="NEW_ID", help="a new id")
    replace.add_argument("peer", metavar="HOST:PORT", help="where the other nodes will reach the new one")
    rotate = cluster.command(
        "rotate-secret", "replace the secret of the nodes while they run", rotate_secret.run
    )
    rotate.add_argument("files", metavar="FILE", nargs="+", help="the secret files of the nodes")
    rotate.add_argument(
        "--carry",
        metavar="COMMAND",
        default="",
        help="run this whenever the files have changed, to copy them to the machines of the other nodes",
    )
    _add_rules_parser(cluster)
    transfer = cluster.command("transfer", "hand leadership to another node", _transfer)
    transfer.add_argument(
        "to", metavar="ID", nargs="?", default="", help="to this node (default: the most up-to-date one)"
    )
    prefer = cluster.command("prefer", "let one node lead whenever it can, or whichever is elected", _prefer)
    prefer.add_argument("node_id", metavar="ID", nargs="?", help="the node that should lead")
    prefer.add_argument("--nobody", action="store_true", help="whichever is elected, as at first")
    waits = {
        add: (0, "wait this long until the node votes, and fail if it does not (default: do not wait)"),
        move: (0, "retry this long while another change is in progress (default: 0s)"),
        remove: (0, "retry this long while another change is in progress (default: 0s)"),
        replace: (REPLACE_WAIT_MS, "how long the new node may take until it votes (default: 1m)"),
        rotate: (rotate_secret.WAIT_MS, "how long the nodes may take for each step (default: 5m)"),
    }
    for action, (default_ms, text) in waits.items():
        action.add_argument("--wait", metavar="TIME", type=duration_ms, default=default_ms, help=text)
    for parser in (add, move, remove, replace, transfer, prefer):
        parser.add_reason()
    for parser in (members, add, move, remove, replace, transfer, prefer):
        parser.add_output()


def _add_rules_parser(cluster: CommandParser) -> None:
    """Describe the commands about the rules."""
    rules = cluster.command(
        "rules",
        "decide when the cluster follows newer rules, after which there is no way back",
        description="Decide when the cluster follows newer rules. It does so by itself once all nodes know"
        " them, and from then on no older release can run in it. See also `holdfast version`.",
    )
    hold = rules.command("hold", "keep to the rules of now, even when all nodes know newer ones", _hold_rules)
    release = rules.command("release", "follow newer rules once all nodes know them", _release_rules)
    for parser in (hold, release):
        parser.add_reason()
        parser.add_output()


async def _members(client: Inspector, arguments: argparse.Namespace) -> int:
    """Print the nodes as the answering node sees them."""
    shown = await client.told(cluster_operations.cluster())
    print_rows(shown.get("nodes", []), _NODES, arguments.output)
    return 0


async def _add(client: Inspector, arguments: argparse.Namespace) -> int:
    """Add a node, print how to start it and, if asked to, wait until it votes."""
    members = await _added(client, arguments)
    if arguments.output != TABLE:
        print_rows([to_row(member) for member in members], _NODES, arguments.output)
    return 0


async def _added(client: Inspector, arguments: argparse.Namespace) -> tuple[Member, ...]:
    """Add a node and return the members. What is said meanwhile is the answer, unless that is JSON."""
    tell = print_lines if arguments.output == TABLE else _say_all
    node_id, peer, reason = arguments.node_id, arguments.peer, arguments.reason
    deadline_s = now_s() + arguments.wait / 1000
    members = await _patiently(lambda: client.admin.add_member(node_id, peer, reason=reason), deadline_s)
    if _votes(members, node_id):
        tell([f"{node_id} is a member and votes"])
        return members
    tell(
        [
            f"{node_id} is joining; it votes when it runs and has caught up. Start it on its machine, with",
            "its own http address, an empty data directory, the secret of the cluster, and the options for",
            "TLS and tokens that the other nodes have, or --insecure-http and --insecure-peers:",
            "",
            *start_command(members, node_id),
        ]
    )
    if not arguments.wait:
        return members
    tell(["", f"waiting until {node_id} votes"])
    while not _votes(members := await client.admin.add_member(node_id, peer, reason=reason), node_id):
        if now_s() >= deadline_s:
            detail = f"{node_id} is still joining: does it run, and do the others reach {peer}?"
            raise Unavailable(detail, STILL_JOINING)
        await asyncio.sleep(POLL_S)
    tell([f"{node_id} votes"])
    return members


async def _move(client: Inspector, arguments: argparse.Namespace) -> int:
    """Change the address of a node."""
    node_id, deadline_s = arguments.node_id, now_s() + arguments.wait / 1000
    peer, reason = arguments.peer, arguments.reason
    members = await _patiently(lambda: client.admin.move_member(node_id, peer, reason=reason), deadline_s)
    (reached_at,) = (member.peer for member in members if member.id == node_id)
    text = f"the others reach {node_id} at {reached_at} from now on; let it run there, on its data directory"
    _print(members, text, arguments.output)
    return 0


async def _remove(client: Inspector, arguments: argparse.Namespace) -> int:
    """Remove a node; ask before that if the cluster could bear no failure afterwards."""
    if not arguments.yes:
        await _confirm(client, arguments.node_id)
    await _removed(client, arguments.node_id, arguments)
    return 0


async def _confirm(client: Inspector, node_id: str) -> None:
    """Ask whether it is meant that too few voters are left. Raises LockError if not, or without an answer."""
    voters = {node.id for node in (await client.cluster()).nodes if node.state != wire.JOINING}
    left = sorted(voters - {node_id})
    if node_id not in voters or len(left) >= VOTERS_MIN:
        return
    why = f"without {node_id} only {', '.join(left) or 'nobody'} would vote, and no node may fail"
    if not sys.stdin.isatty():
        detail = f"{why}; to replace a node use `holdfast cluster replace`, or repeat this command with --yes"
        raise InvalidRequest("invalid-request", detail)
    if not await asked(f"{why}. Remove {node_id}?"):
        raise MemberChangeRefused("member-change-refused", f"{node_id} was not removed")


async def _removed(client: Inspector, node_id: str, arguments: argparse.Namespace) -> None:
    """Remove a node and print the members that are left."""
    deadline_s = now_s() + arguments.wait / 1000
    reason = arguments.reason
    left = await _patiently(lambda: client.admin.remove_member(node_id, reason=reason), deadline_s)
    text = f"{node_id} was removed; the members are {', '.join(member.id for member in left)}"
    _print(left, text, arguments.output)


async def _replace(client: Inspector, arguments: argparse.Namespace) -> int:
    """Add the new node, wait until it votes, remove the old one. Repeated, it goes on where it stopped."""
    old_id, new_id = arguments.old_id, arguments.node_id
    if old_id == new_id:
        detail = f"{old_id} cannot replace itself: remove it, then add it again with an empty directory"
        raise InvalidRequest("invalid-request", detail)
    present = {node.id for node in (await client.cluster()).nodes}
    if not {old_id, new_id} & present:
        raise MemberChangeRefused(
            "member-not-found", f"{old_id} is not a member; the members are {', '.join(present)}"
        )
    await _added(client, arguments)
    await _removed(client, old_id, arguments)
    return 0


ASK_S: Final = 3.0
"""Seconds that are waited for what is only told beside an answer."""
_SOON: Final = "once it has been well for 30 s"
"""When the preferred node is handed leadership."""


async def _transfer(client: Inspector, arguments: argparse.Namespace) -> int:
    """Hand leadership over, and print who leads."""
    leader = await client.admin.transfer_leadership(arguments.to, reason=arguments.reason)
    print_one({"leader": leader}, [f"{leader} leads"], arguments.output)
    with contextlib.suppress(LockError, TimeoutError):  # it is done, whether the rest is known or not
        async with asyncio.timeout(ASK_S):
            wish = (await client.cluster()).preferred
        if wish is not None and wish.id != leader:
            say(
                f"{wish.id} is preferred, and takes over again {_SOON}: to keep {leader}, say `holdfast"
                f" cluster prefer {leader} --reason WHY`, or `cluster prefer --nobody --reason WHY`"
            )
    return 0


async def _prefer(client: Inspector, arguments: argparse.Namespace) -> int:
    """Say who should lead, and print that."""
    node_id, reason = arguments.node_id, arguments.reason
    if bool(node_id) == arguments.nobody:
        raise ValueError("name the node that should lead, or say --nobody")
    if arguments.nobody:
        answer = await client.told(cluster_operations.prefer_nobody(reason))
        was = answer["was_preferred"]
        text = f"{was} is not preferred any more" if was else "no node was preferred"
    else:
        answer = await client.told(cluster_operations.prefer_leader(node_id, reason))
        text = f"prefers {node_id}, which takes over {_SOON}; see `holdfast status`"
    print_one(answer, [text], arguments.output)
    return 0


async def _hold_rules(client: Inspector, arguments: argparse.Namespace) -> int:
    """Hold the rules, and print which these are."""
    answer = await client.told(cluster_operations.hold_rules(arguments.reason, is_held=True))
    still = "still " if answer["was_held"] else ""
    text = f"rules {answer['rules']} are {still}held, until `holdfast cluster rules release`"
    print_one(answer, [text], arguments.output)
    return 0


async def _release_rules(client: Inspector, arguments: argparse.Namespace) -> int:
    """Release the rules, and print which these are; newer ones follow by themselves."""
    answer = await client.told(cluster_operations.hold_rules(arguments.reason, is_held=False))
    said = "are released" if answer["was_held"] else "were not held"
    print_one(answer, [f"rules {answer['rules']} {said}; see `holdfast version`"], arguments.output)
    return 0


def _print(members: Sequence[Member], text: str, output: str) -> None:
    """Print a sentence, or the members that the cluster has told."""
    if output == TABLE:
        print_lines([text])
    else:
        print_rows([to_row(member) for member in members], _NODES, output)


def _say_all(lines: Sequence[str]) -> None:
    say(*lines)


async def _patiently(
    change: Callable[[], Awaitable[tuple[Member, ...]]], deadline_s: float
) -> tuple[Member, ...]:
    """Make a change; try again while another one is under way."""
    while True:
        try:
            return await change()
        except MemberChangeRefused as error:
            if error.code != "member-change-pending" or now_s() >= deadline_s:
                raise
            await asyncio.sleep(POLL_S)


def _votes(members: Sequence[Member], node_id: str) -> bool:
    return any(member.id == node_id and member.state != wire.JOINING for member in members)


def start_command(members: Sequence[Member], node_id: str) -> list[str]:
    """Return the lines of how to start a node that was added."""
    (own,) = (member.peer for member in members if member.id == node_id)
    peers = ",".join(f"{member.id}={member.peer}" for member in members)
    http = f"{own.rpartition(':')[0]}:7700"
    return [
        f"    holdfast-node --join --node-id {node_id} --http {http} \\",
        f"        --peers {peers} \\",
        "        --data-dir /var/lib/holdfast --secret-file /etc/holdfast/secret",
    ]
