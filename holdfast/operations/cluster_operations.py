"""The operations on the cluster and its members. No I/O."""

from holdfast import wire
from holdfast.operations.operation import Operation, TimedAnswer, ask, decode, new_request_id, write
from holdfast.values.answers import ClusterInfo
from holdfast.wire.operators import (
    DebugInfo,
    LeaderPreferredJson,
    LeadershipTransferredJson,
    LogLevelSetJson,
    Member,
    MemberListJson,
    Refusals,
    RulesHeldJson,
)


def cluster() -> Operation[ClusterInfo]:
    """Ask a node how it sees the cluster."""
    return ask(wire.CLUSTER, {}, lambda answer: decode(answer, ClusterInfo))


def refusals(limit: int) -> Operation[Refusals]:
    """Ask a node what it has refused because of who asked."""
    return ask(wire.REFUSALS, {"limit": str(limit)}, lambda answer: decode(answer, Refusals))


def add_member(node_id: str, peer: str, reason: str) -> Operation[tuple[Member, ...]]:
    """Add a node. Repeating it changes nothing."""
    return _change("POST", reason, id=node_id, peer=peer)


def move_member(node_id: str, peer: str, reason: str) -> Operation[tuple[Member, ...]]:
    """Change a node's address. Repeating it changes nothing."""
    return _change("PATCH", reason, id=node_id, peer=peer)


def remove_member(node_id: str, reason: str) -> Operation[tuple[Member, ...]]:
    """Remove a node. Repeating it changes nothing."""
    return _change("DELETE", reason, id=node_id)


def _change(method: str, reason: str, **fields: str) -> Operation[tuple[Member, ...]]:
    said = {**fields, "reason": reason, "request_id": new_request_id()}
    return write(wire.CLUSTER_MEMBERS, said, _members, method=method)


def _members(answer: TimedAnswer) -> tuple[Member, ...]:
    return decode(answer, MemberListJson).members


def debug_info() -> Operation[DebugInfo]:
    """Ask a node for what helps to find a mistake in it."""
    return ask(wire.CLUSTER_DEBUG, {}, lambda answer: decode(answer, DebugInfo))


def metrics() -> Operation[bytes]:
    """Ask a node for its metrics, as text."""
    return ask(wire.METRICS, {}, lambda answer: answer.body)


def set_log_level(node_id: str, level: str, for_ms: int) -> Operation[LogLevelSetJson]:
    """Let the node that is asked log from a level on, for so long."""
    fields = {"node_id": node_id, "level": level, "for_ms": for_ms, "request_id": new_request_id()}
    return write(wire.CLUSTER_LOG_LEVEL, fields, lambda answer: decode(answer, LogLevelSetJson), method="PUT")


def hold_rules(reason: str, *, is_held: bool) -> Operation[RulesHeldJson]:
    """Keep the cluster at its rules, or let it follow newer ones again."""
    return write(
        wire.CLUSTER_RULES_HOLD,
        {"reason": reason, "request_id": new_request_id()},
        lambda answer: decode(answer, RulesHeldJson),
        method="PUT" if is_held else "DELETE",
    )


def prefer_leader(node_id: str, reason: str) -> Operation[LeaderPreferredJson]:
    """Let a node lead whenever it can."""
    return _prefer("PUT", reason, id=node_id)


def prefer_nobody(reason: str) -> Operation[LeaderPreferredJson]:
    """Let whichever node is elected lead."""
    return _prefer("DELETE", reason)


def _prefer(method: str, reason: str, **fields: str) -> Operation[LeaderPreferredJson]:
    said = {**fields, "reason": reason, "request_id": new_request_id()}
    return write(
        wire.CLUSTER_PREFERRED_LEADER, said, lambda answer: decode(answer, LeaderPreferredJson), method=method
    )


def transfer_leadership(to: str, reason: str) -> Operation[str]:
    """Hand leadership over; the answer names the new leader."""
    return write(
        wire.CLUSTER_TRANSFER_LEADERSHIP,
        {"to": to, "reason": reason, "request_id": new_request_id()},
        lambda answer: decode(answer, LeadershipTransferredJson).leader,
    )
