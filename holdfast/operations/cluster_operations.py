"""The operations on the cluster and its members. No I/O."""

from holdfast import wire
from holdfast.operations.operation import Operation, TimedAnswer, ask, decode, write
from holdfast.values.answers import ClusterInfo
from holdfast.wire.operators import LeadershipTransferredJson, Member, MemberListJson, Refusals


def cluster() -> Operation[ClusterInfo]:
    """Ask a node how it sees the cluster."""
    return ask(wire.CLUSTER, {}, lambda answer: decode(answer, ClusterInfo))


def refusals(limit: int) -> Operation[Refusals]:
    """Ask a node what it has refused because of who asked."""
    return ask(wire.REFUSALS, {"limit": str(limit)}, lambda answer: decode(answer, Refusals))


def add_member(node_id: str, peer: str) -> Operation[tuple[Member, ...]]:
    """Add a node. Repeating it is harmless, so it needs no request id."""
    return write(wire.CLUSTER_MEMBERS, {"id": node_id, "peer": peer}, _members)


def move_member(node_id: str, peer: str) -> Operation[tuple[Member, ...]]:
    """Change a node's address. Repeating it is harmless, so it needs no request id."""
    return write(wire.CLUSTER_MEMBERS, {"id": node_id, "peer": peer}, _members, method="PATCH")


def remove_member(node_id: str) -> Operation[tuple[Member, ...]]:
    """Remove a node. Repeating it is harmless, so it needs no request id."""
    return write(wire.CLUSTER_MEMBERS, {"id": node_id}, _members, method="DELETE")


def _members(answer: TimedAnswer) -> tuple[Member, ...]:
    return decode(answer, MemberListJson).members


def transfer_leadership(to: str) -> Operation[str]:
    """Hand leadership over; the answer names the new leader."""
    return write(
        wire.CLUSTER_TRANSFER_LEADERSHIP,
        {"to": to},
        lambda answer: decode(answer, LeadershipTransferredJson).leader,
    )
