"""Why a node does not serve, or the cluster does not do what it should, and what to do about it.

An operator who asks a node finds here what the node knows: whom it cannot reach, since when, and why; what
the founding or an election waits for; what is wrong with its disk, its log, its clock or its state.
"""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from cluster.consensus.member_list import Members, has_majority
from cluster.observing.observed import Observed
from cluster.observing.troubles import Trouble, troubles
from cluster.peers.absences import Absence
from cluster.peers.objections_met import Met

NO_LEADER_S: Final = 1.0
"""The time, in seconds, without a leader from which on that is told: an election takes less."""


class Obstacle(msgspec.Struct, frozen=True):
    """Something that keeps a node from serving, or the cluster from doing what it should.

    `for_ms` is for how long, as far as the asked node knows; `peer` is the node it is about, None if it is
    the asked node or the whole cluster. `detail` and `advice` are for people, `kind` is for programs.
    """

    kind: str
    peer: str | None
    for_ms: int
    detail: str
    advice: str


def obstacles(node: Observed, *, now_s: float, monotonic_s: float) -> tuple[Obstacle, ...]:
    """Return what a node meets, the gravest first, none if all is well.

    `now_s` is the time of the event loop, `monotonic_s` that of the process: two clocks only in tests.
    """
    peering, membership = node.peering, node.replica.membership
    absences, uptime_s = node.links.absences.all(), now_s - node.started_s
    found: list[Obstacle] = []
    if not peering.is_established:
        found += of_founding(peering.founding.missing(), peering.founding.waits_for(), uptime_s)
    elif node.node_id not in membership.voters:
        is_member = node.node_id in membership.latest.nodes
        found.append(of_joining(node.node_id, uptime_s, is_member=is_member))
    elif node.leadership.leader_id() is None:
        lag_s = min(node.replica.prevote.lag_s, uptime_s)
        found += of_no_leader(node.node_id, membership.voters, absences, now_s, lag_s)
    if not membership.latest.serves:
        found.append(of_forming(membership.latest, uptime_s))
    if peering.shut_out.reason:
        found.append(of_shut_out(peering.shut_out.reason))
    objections = peering.objections_met.standing()
    found += of_objections(node.node_id, objections, monotonic_s)
    unexplained = {peer_id: absences[peer_id] for peer_id in absences.keys() - objections.keys()}
    has_leader = node.leadership.leader_id() is not None
    found += of_absences(unexplained, now_s, has_leader=has_leader)
    wrong = troubles(node.replica.engine, node.clocks, node.divergence, node.disk, now_s, room=node.space)
    found += map(of_trouble, wrong)
    return tuple(found)


def of_founding(missing: Iterable[str], waits: Iterable[str], uptime_s: float) -> Iterator[Obstacle]:
    """Yield what the founding of the cluster, or the first meeting of its nodes, waits for."""
    yield Obstacle(
        "founding",
        None,
        _ms(uptime_s),
        f"the cluster has not begun: this node waits for {', '.join(missing) or 'messages of the others'}",
        "start all nodes that `peers` names, and let them reach each other; no node serves before all have"
        " met once (see 'The first start' in docs/operating.md)",
    )
    for why in waits:
        advice = "follow this message (see 'The first start' in docs/operating.md)"
        yield Obstacle("founding-refused", None, _ms(uptime_s), why, advice)


def of_joining(node_id: str, uptime_s: float, *, is_member: bool) -> Obstacle:
    """Return what keeps a node from counting that has not joined yet."""
    if is_member:
        detail, advice = (
            f"{node_id} is joining: it has not caught up with the log yet",
            "wait; if it takes longer than a minute, look at what this answer says of its peers",
        )
    else:
        detail, advice = (
            f"{node_id} is not a member, according to its log",
            f"add it with `holdfast cluster add {node_id} HOST:PORT`, the address where others reach it",
        )
    return Obstacle("joining", None, _ms(uptime_s), detail, advice)


def of_forming(members: Members, uptime_s: float) -> Obstacle:
    """Return what a restored cluster waits for before it serves."""
    needed = len(members.nodes) // 2 + 1
    return Obstacle(
        "forming",
        None,
        _ms(uptime_s),
        f"the cluster was restored on {', '.join(sorted(members.voters))} and serves nobody before"
        f" {needed} of {len(members.nodes)} nodes vote",
        f"start {' or '.join(sorted(members.learners))} with --join and an empty data directory; take out"
        " those that will never come back with `holdfast cluster remove` (see 'Restoring a backup' in"
        " docs/operating.md)",
    )


def of_no_leader(
    node_id: str, voters: AbstractSet[str], absences: Mapping[str, Absence], now_s: float, lag_s: float
) -> Iterator[Obstacle]:
    """Yield why there is no leader: too many voters cannot be reached, or none was elected."""
    absent = sorted((absences[peer_id].since_s, peer_id) for peer_id in voters & absences.keys())
    reached = voters - absences.keys() | {node_id}
    if not has_majority(voters, reached):
        # The quorum was lost with the first absence that was one too many.
        since_s = absent[len(voters) - len(voters) // 2 - 1][0]
        yield Obstacle(
            "no-quorum",
            None,
            _ms(now_s - since_s),
            f"no majority: of {len(voters)} nodes that vote, {node_id} reaches {', '.join(sorted(reached))}",
            f"bring back {' or '.join(peer_id for _, peer_id in absent)}, or the network between them and"
            " this node; restarting nodes that run does not help. If too many directories are gone for good,"
            " see 'A lost majority' in docs/operating.md",
        )
    elif lag_s >= NO_LEADER_S:
        yield Obstacle(
            "no-leader",
            None,
            _ms(lag_s),
            f"{node_id} reaches a majority, and none of them leads",
            "wait for some election timeouts; if it lasts, ask the other nodes as well: their disks may hang,"
            " or they may not reach each other",
        )


def of_shut_out(reason: str) -> Obstacle:
    """Return why this process takes no part."""
    return Obstacle(
        "shut-out",
        None,
        0,
        f"this node does not vote, lead or serve: {reason}",
        "decide which of the two is to live, stop the other one, then start this one again (see 'Copies of a"
        " data directory' in docs/operating.md)",
    )


def of_objections(node_id: str, objections: Mapping[str, Met], monotonic_s: float) -> Iterator[Obstacle]:
    """Yield who does not let whom in. The reason of an objection says what to do."""
    for peer_id, met in sorted(objections.items()):
        who, whom = (node_id, peer_id) if met.is_ours else (peer_id, node_id)
        yield Obstacle(
            "refuses-peer" if met.is_ours else "refused-by-peer",
            peer_id,
            _ms(monotonic_s - met.since_s),
            f"{who} does not let {whom} in, for {met.objection.kind or 'a reason'}: {met.objection.reason}",
            "follow the reason; see 'A node is refused' in docs/operating.md",
        )


def of_absences(absences: Mapping[str, Absence], now_s: float, *, has_leader: bool) -> Iterator[Obstacle]:
    """Yield who cannot be reached. Without a leader no node can be replaced, so that is not advised then."""
    replace = "; if it is lost for good, replace it with `holdfast cluster replace`" if has_leader else ""
    for peer_id, absence in sorted(absences.items()):
        yield Obstacle(
            "unreachable",
            peer_id,
            _ms(now_s - absence.since_s),
            f"{peer_id} is not connected: {absence.reason or 'there was no connection yet'}",
            f"see that {peer_id} runs, that its port for peers can be reached from here, and that both have"
            f" the same secret{replace}",
        )


_ADVICE: Final = {
    "snapshots-failing": "free space on the disk of the data directory, or replace the disk; the log says"
    " `event=snapshot-failing` (see 'Snapshots cannot be written' in docs/operating.md)",
    "log-full": "find out why this node writes no snapshots (see 'Snapshots cannot be written' in"
    " docs/operating.md)",
    "disk-hangs": "look at the disk and the kernel's log; stop the node if it lasts (see 'A disk hangs' in"
    " docs/operating.md)",
    "disk-nearly-full": "make room on the disk of the data directory before the node stops (see 'A disk is"
    " full, or fails' in docs/operating.md)",
    "disk-slow": "check what else uses the disk, or use a faster one; a slow leader hands over by itself",
    "clock-off": "correct the clock of this machine (see 'Clocks' in docs/operating.md)",
    "state-differs": "see 'Nodes that differ' in docs/operating.md",
    "in-doubt": "bring back a third node, so that there is a majority (see 'Nodes that differ' in"
    " docs/operating.md)",
}
"""What to do, by the kind of trouble."""


def of_trouble(trouble: Trouble) -> Obstacle:
    """Return what is wrong with this node, with advice."""
    return Obstacle(trouble.kind, None, _ms(trouble.for_s), trouble.detail, _ADVICE[trouble.kind])


def _ms(seconds: float) -> int:
    return max(0, int(1000 * seconds))
