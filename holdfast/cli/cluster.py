"""The commands of `holdfast cluster`: who belongs to the cluster, and who leads it."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from holdfast import wire
from holdfast._client import Client
from holdfast._clock import now_s
from holdfast._errors import InvalidRequest, LockError, MemberChangeRefused, OutcomeUnknown, Unavailable
from holdfast._values import Member
from holdfast.cli import rotate_secret
from holdfast.cli.printing import print_line

POLL_S: Final = 0.2
"""Seconds between two looks at whether a node has caught up."""
REPLACE_WAIT_MS: Final = 60_000
"""Milliseconds that a new node may take to catch up, unless the command line says otherwise."""

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
            return "the cluster goes on as it is; repeat the command, and it goes on where it was"
        case Unavailable(code=code) if code == STILL_JOINING:
            return "start it, and repeat this command; or take it out again with `holdfast cluster remove`"
        case _:
            return None


def add_parser(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", duration_ms: Callable[[str], int]
) -> None:
    """Describe the commands."""
    cluster = commands.add_parser(
        "cluster",
        help="show and change who belongs to the cluster",
        description="Show and change who belongs to the cluster, one node at a time, while it runs.",
    )
    actions = cluster.add_subparsers(dest="action", required=True, metavar="ACTION")
    members = actions.add_parser("members", help="show all nodes with their peer addresses")
    members.add_argument("--json", action="store_true", help="one JSON document in each line")
    add = actions.add_parser("add", help="add a node and print how to start it")
    add.add_argument("node_id", metavar="ID", help="a new id")
    add.add_argument("peer", metavar="HOST:PORT", help="where the other nodes will reach it")
    move = actions.add_parser("move", help="change the address of a node that keeps its data directory")
    move.add_argument("node_id", metavar="ID")
    move.add_argument("peer", metavar="HOST:PORT", help="where the other nodes will reach it")
    remove = actions.add_parser("remove", help="remove a node, dead or alive; its disk is never let in again")
    remove.add_argument("node_id", metavar="ID")
    replace = actions.add_parser("replace", help="add a node, wait until it counts, remove another one")
    replace.add_argument("old_id", metavar="OLD_ID", help="the node that goes, dead or alive")
    replace.add_argument("node_id", metavar="NEW_ID", help="a new id")
    replace.add_argument("peer", metavar="HOST:PORT", help="where the other nodes will reach the new one")
    waits = {
        add: (0, "return when the node counts, or fail after this long (default: do not wait)"),
        move: (0, "try this long while another change is under way (default: 0s)"),
        remove: (0, "try this long while another change is under way (default: 0s)"),
        replace: (REPLACE_WAIT_MS, "how long the new node may take until it counts (default: 1m)"),
    }
    rotate = actions.add_parser("rotate-secret", help="exchange the secret of the nodes while they run")
    rotate.add_argument("files", metavar="FILE", nargs="+", help="the secret files of the nodes")
    rotate.add_argument(
        "--carry",
        metavar="COMMAND",
        default="",
        help="run this whenever the files have changed, to bring them to the machines of the other nodes",
    )
    waits[rotate] = (rotate_secret.WAIT_MS, "how long the nodes may take for each step (default: 5m)")
    for action, (default_ms, text) in waits.items():
        action.add_argument("--wait", metavar="TIME", type=duration_ms, default=default_ms, help=text)
    transfer = actions.add_parser("transfer", help="hand leadership over")
    transfer.add_argument("to", metavar="ID", nargs="?", default="", help="to this node (default: the best)")


async def run(client: Client, arguments: argparse.Namespace) -> int:
    """Run one of the commands. Raises LockError."""
    match arguments.action:
        case "members":
            await _show(client, as_json=arguments.json)
        case "add":
            await _add(client, arguments.node_id, arguments.peer, arguments.wait)
        case "move":
            await _move(client, arguments.node_id, arguments.peer, arguments.wait)
        case "remove":
            await _remove(client, arguments.node_id, arguments.wait)
        case "replace":
            await _replace(client, arguments)
        case "rotate-secret":
            return await rotate_secret.run(client, arguments.files, arguments.carry, arguments.wait)
        case _:
            print(f"{await client.admin.transfer_leadership(arguments.to)} leads")
    return 0


async def _show(client: Client, *, as_json: bool) -> None:
    """Print the nodes as the answering node sees them."""
    info = await client.cluster()
    for node in info.nodes:
        if as_json:
            print_line(node)
            continue
        print(f"{node.id:<6} {node.state:<12} {node.peer:<22} {node.http}")


async def _add(client: Client, node_id: str, peer: str, wait_ms: int) -> None:
    """Add a node, print how to start it and, if asked to, wait until it counts."""
    deadline_s = now_s() + wait_ms / 1000
    members = await _patiently(lambda: client.admin.add_member(node_id, peer), deadline_s)
    if _counts(members, node_id):
        print(f"{node_id} is a member and counts")
        return
    print(f"{node_id} is joining; it counts when it runs and has caught up. Start it on its machine, with")
    print("its own http address, an empty data directory, the secret of the cluster, and what the other")
    print("nodes are told of TLS and tokens, or by --insecure-http and --insecure-peers:\n")
    print(start_command(members, node_id))
    if not wait_ms:
        return
    print(f"\nwaiting until {node_id} counts", flush=True)
    while not _counts(await client.admin.add_member(node_id, peer), node_id):
        if now_s() >= deadline_s:
            detail = f"{node_id} is still joining: does it run, and do the others reach {peer}?"
            raise Unavailable(detail, STILL_JOINING)
        await asyncio.sleep(POLL_S)
    print(f"{node_id} counts")


async def _move(client: Client, node_id: str, peer: str, wait_ms: int) -> None:
    """Change the address of a node."""
    await _patiently(lambda: client.admin.move_member(node_id, peer), now_s() + wait_ms / 1000)
    print(f"the others reach {node_id} at {peer} from now on; let it run there, on its data directory")


async def _remove(client: Client, node_id: str, wait_ms: int) -> None:
    """Remove a node."""
    left = await _patiently(lambda: client.admin.remove_member(node_id), now_s() + wait_ms / 1000)
    print(f"{node_id} was removed; there are {', '.join(member.id for member in left)}")


async def _replace(client: Client, arguments: argparse.Namespace) -> None:
    """Add the new node, wait until it counts, remove the old one. Repeated, it goes on where it stopped."""
    old_id, new_id = arguments.old_id, arguments.node_id
    if old_id == new_id:
        detail = f"{old_id} cannot take its own place: remove it, then add it again with an empty directory"
        raise InvalidRequest("invalid-request", detail)
    present = {node.id for node in (await client.cluster()).nodes}
    if not {old_id, new_id} & present:
        raise MemberChangeRefused(
            "member-not-found", f"{old_id} is not a member; there are {', '.join(present)}"
        )
    await _add(client, new_id, arguments.peer, arguments.wait)
    await _remove(client, old_id, arguments.wait)


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


def _counts(members: Sequence[Member], node_id: str) -> bool:
    return any(member.id == node_id and member.state != wire.JOINING for member in members)


def start_command(members: Sequence[Member], node_id: str) -> str:
    """Return how to start a node that was added."""
    (own,) = (member.peer for member in members if member.id == node_id)
    peers = ",".join(f"{member.id}={member.peer}" for member in members)
    http = f"{own.rpartition(':')[0]}:7700"
    return (
        f"    holdfast-node --join --node-id {node_id} --http {http} \\\n"
        f"        --peers {peers} \\\n"
        "        --data-dir /var/lib/holdfast --secret-file /etc/holdfast/secret"
    )
