"""The command `status`: every node asked by itself, what is wrong, and how many failures it can bear."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from holdfast import wire
from holdfast.cli import exit_codes
from holdfast.cli.held_rules import rules_lines
from holdfast.cli.inspector import Inspector
from holdfast.cli.parsing import CommandParser
from holdfast.cli.printing import Columns, Row, field, length, print_one, printable, say, table
from holdfast.operations import cluster_operations
from holdfast.operations.reasons import NEXT_STEPS
from holdfast.values.answers import ClusterInfo, NodeInfo, Obstacle
from holdfast.values.errors import LockError, TlsRefused, Unavailable

ASK_S: Final = 1.0
"""How long each node may take to answer, in seconds. All are asked at once."""
_DOWN: Final = frozenset({"unreachable", "starting"})
"""States of nodes that cannot be part of a majority."""
_NOT_DONE: Final = "not done: "
"""How a failure begins, which says nothing of a look."""
_STRANGE: Final = ", and {} knows no such member: correct --nodes, unless its address has just changed"
"""What is said of a node that is left out."""
_LEADER: Final = "leader"
"""The state of the node that leads."""
_MIB: Final = 1 << 20
_UNITS: Final = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", _MIB), ("KiB", 1 << 10))

_COLUMNS: Final[Columns] = {
    "ID": field("id"),
    "STATE": field("state"),
    "VERSION": field("version"),
    "TERM": field("term"),
    "BEHIND": field("behind"),
    "HEARD": field("heard"),
    "UP": field("up"),
    "MEMORY": field("memory"),
    "DISK": field("disk"),
    "SNAPSHOT": field("snapshot"),
    "CONNECTIONS": field("connections"),
}


def add_parser(commands: CommandParser) -> None:
    """Describe the command."""
    commands.command(
        "status",
        "show all nodes and what is wrong; exit 0 if all is well, 3 if the cluster serves nevertheless",
        _status,
    ).add_output()


async def _status(client: Inspector, arguments: argparse.Namespace) -> int:
    """Ask all nodes at once, and print a line for each."""
    answers, failures = await client.told_by_each(cluster_operations.cluster(), ASK_S)
    if not answers:
        return _say_why_none_answers(failures)
    seen = Seen.of(answers)
    shown = next(answer for answer in answers if msgspec.convert(answer, ClusterInfo) == seen.best)
    text = table(_COLUMNS, [_row(seen, node) for node in seen.nodes])
    unanswered = [] if seen.has_told_all else [seen.named(str(failure)) for failure in failures]
    text += sorted(printable(why) for why in unanswered)
    text += [f"{who}{_STRANGE.format(seen.best.node_id)}" for who in seen.strangers]
    for about, obstacle in seen.obstacles:
        who = f"{about}: " if about and obstacle.peer is None else ""
        text.append(f"{who}{obstacle.kind} for {obstacle.for_ms / 1000:.0f} s: {obstacle.detail}")
        text.append(f"    {obstacle.advice}")
    text += rules_lines(seen.best)
    text += _preference(seen.best)
    text += [
        f"{info.node_id}: logs {info.own.log_level} and above for {length(info.own.log_level_ms)} more"
        for info in seen.views.values()
        if info.own is not None and info.own.log_level_ms is not None
    ]
    text.append(seen.verdict)
    print_one(
        {
            **shown,
            "serves": seen.serves,
            "survives": seen.survives,
            "views": answers,
            "unanswered": unanswered,
            "strangers": seen.strangers,
        },
        text,
        arguments.output,
    )
    if not seen.serves:
        return exit_codes.UNAVAILABLE
    return exit_codes.DONE if seen.is_well else exit_codes.DEGRADED


def _say_why_none_answers(failures: Sequence[LockError]) -> int:
    """Say why no node tells anything, and what to look at. Raises LockError if one has refused to tell."""
    for failure in failures:
        if not isinstance(failure, Unavailable) or isinstance(failure, TlsRefused):
            raise failure
    say(*sorted(printable(_reason_of(failure)) for failure in failures))
    if any(isinstance(failure, Unavailable) and failure.code == "not-ready" for failure in failures):
        say("no node serves yet; look again when one has started")
    else:
        say("no node answers; start them (their logs say why they stopped), or correct --nodes")
    return exit_codes.UNAVAILABLE


def _reason_of(failure: LockError) -> str:
    """Return why one node gave no answer, without what is said once for all of them."""
    return str(failure).removeprefix(_NOT_DONE).removesuffix(f". {NEXT_STEPS['unavailable']}")


class Seen(NamedTuple):
    """What the nodes that answered say together."""

    views: Mapping[str, ClusterInfo]
    """By the node that answered."""
    best: ClusterInfo
    """What the leader says, or else the node that knows most."""
    strangers: Sequence[str]
    """Who answered and is no member of its cluster: what it says is left out."""

    @classmethod
    def of(cls, answers: Iterable[Row]) -> "Seen":
        """Return what these answers say."""
        infos = [msgspec.convert(answer, ClusterInfo) for answer in answers]
        best = max(infos, key=lambda info: (info.term, info.leader == info.node_id, info.revision))
        members = {(node.id, node.peer) for node in best.nodes}
        views: dict[str, ClusterInfo] = {}
        strangers: list[str] = []
        for info in infos:
            peer = next((node.peer for node in info.nodes if node.id == info.node_id), None)
            if peer is None or (info.node_id, peer) in members:
                views[info.node_id] = info
            else:
                strangers.append(printable(f"{peer} says that it is {info.node_id}"))
        return cls(views, best, strangers)

    @property
    def nodes(self) -> Sequence[NodeInfo]:
        """The members, each as it says itself if it has answered."""
        return [self._as_told(node) for node in self.best.nodes]

    def _as_told(self, node: NodeInfo) -> NodeInfo:
        own = self.views.get(node.id)
        return next((told for told in own.nodes if told.id == node.id), node) if own is not None else node

    @property
    def has_told_all(self) -> bool:
        """Whether every member has answered: then a URL that gave no answer is none of theirs."""
        return all(node.id in self.views for node in self.best.nodes)

    def named(self, why: str) -> str:
        """Return why a node gave no answer, with its id in the place of its URL if that is known."""
        why = why.removeprefix(_NOT_DONE)
        for node in self.best.nodes:
            _, _, address = node.http.partition("://")
            for url in (f"http://{address}: ", f"https://{address}: "):
                if address and why.startswith(url):
                    return f"{node.id}: {why.removeprefix(url)}"
        return why

    @property
    def obstacles(self) -> list[tuple[str, Obstacle]]:
        """What the nodes say is wrong, each thing once, and the node it is about: empty for the cluster.

        What several say is as the best informed node says it, if that is one of them.
        """
        order = sorted(self.views.values(), key=lambda info: info.node_id != self.best.node_id)
        found: dict[tuple[str, str], Obstacle] = {}
        for info in order:
            for obstacle in info.obstacles:
                about = obstacle.peer or (info.node_id if obstacle.kind not in _OF_ALL else "")
                found.setdefault((obstacle.kind, about), obstacle)
        return [(about, obstacle) for (_, about), obstacle in found.items()]

    @property
    def _voters(self) -> list[NodeInfo]:
        return [node for node in self.nodes if node.state != wire.JOINING]

    @property
    def _up_count(self) -> int:
        return sum(node.state not in _DOWN for node in self._voters)

    @property
    def serves(self) -> bool:
        """Whether there is a leader that a majority can reach."""
        return self.best.leader is not None and any(info.ready for info in self.views.values())

    @property
    def survives(self) -> int:
        """How many more voters may fail while a majority is left; 0 without a leader."""
        if not self.serves:
            return 0
        return max(0, self._up_count - (len(self._voters) // 2 + 1))

    @property
    def is_well(self) -> bool:
        """Whether all voters are there, no node says that anything is wrong, and none is a stranger."""
        is_clear = not (self.obstacles or self.strangers)
        return self.serves and self._up_count == len(self._voters) and is_clear

    @property
    def verdict(self) -> str:
        """What it comes to, in one line."""
        if not self.serves:
            return "serves nothing: no leader is known"
        return f"survives {self.survives} more failure{'' if self.survives == 1 else 's'}"


def _preference(info: ClusterInfo) -> list[str]:
    """Return who should lead, and why that node does not as far as the leader knows; or nothing."""
    wish = info.preferred
    if wish is None:
        return []
    by = f" by {wish.by}" if wish.by else ""
    lines = [f"prefers {wish.id}, as asked{by} {length(wish.for_ms)} ago: {wish.reason}"]
    if info.leader != wish.id:
        lines.append(f"    {wish.id} does not lead{': ' if wish.why_not else ''}{wish.why_not}")
    return lines


_OF_ALL: Final = frozenset({"founding", "founding-refused", "no-quorum", "no-leader"})
"""Obstacles that are about the whole cluster, whoever tells them."""


def _row(seen: Seen, node: NodeInfo) -> Row:
    """Return what is shown of a node; of one that was not asked, or has not answered, what others know."""
    own = seen.views.get(node.id)
    row: Row = {"id": node.id, "state": node.state, "version": node.version or None}
    entries = max(0, seen.best.revision - node.revision)
    if own is None:
        # The leader has gone on since a follower heard of its revision: it is behind nobody.
        row["behind"] = None if node.state in _DOWN | {_LEADER} else str(entries)
        return row
    age = length(max(0, seen.best.now_ms - own.now_ms))
    row |= {
        "term": own.term,
        "behind": f"{entries} ({age})" if entries else "0",
        "heard": "leads" if own.leader == node.id else length(own.lag_ms),
    }
    if own.own is not None:
        told = own.own
        row |= {
            "up": length(told.uptime_ms),
            "memory": f"{_bytes(told.state_bytes)} of {_bytes(told.state_bytes_max)}",
            "disk": _disk(told.directory_bytes, told.free_bytes),
            "snapshot": None if told.snapshot_age_ms is None else length(told.snapshot_age_ms),
            "connections": f"{told.connections} of {told.connections_max}",
        }
    return row


def _disk(used: int | None, free: int | None) -> str | None:
    return None if used is None or free is None else f"{_bytes(used)}, {_bytes(free)} free"


def _bytes(count: int) -> str:
    """Return a number of bytes for people."""
    for unit, size in _UNITS:
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
