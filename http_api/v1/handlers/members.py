"""Calls that change who belongs to the cluster. Both are safe to repeat."""

from api import answers
from api.node import ServingNode
from api.problems import ProblemError
from api.requests.service import AddMemberRequest, RemoveMemberRequest
from cluster.config import check_member, check_node_id
from cluster.config_sources import WrongValueError
from cluster.consensus.member_list import Members
from http_api.server.call import Call, Reply
from http_api.v1 import schema


async def add_member(node: ServingNode, call: Call) -> Reply:
    """Add a node, which joins and then counts."""
    request = await schema.read(call, AddMemberRequest)
    try:
        check_member(request.id, request.peer)
    except WrongValueError as wrong:
        raise _invalid(wrong) from None
    members = await node.add_member(request.id, request.peer, call.timeout_s)
    return _reply(node, members)


async def remove_member(node: ServingNode, call: Call) -> Reply:
    """Remove a node; leadership is handed over first if it leads."""
    request = await schema.read(call, RemoveMemberRequest)
    try:
        node_id = check_node_id("id", request.node_id(call.query_values.get("id")))
    except WrongValueError as wrong:
        raise _invalid(wrong) from None
    members = await node.remove_member(node_id, call.timeout_s)
    return _reply(node, members)


def _reply(node: ServingNode, members: Members) -> Reply:
    return Reply(answers.encode(answers.member_list(members, node.machine.revision)))


def _invalid(wrong: WrongValueError) -> ProblemError:
    return ProblemError("invalid-request", f"{wrong.setting}: {wrong.value!r}; {wrong.allowed}")
