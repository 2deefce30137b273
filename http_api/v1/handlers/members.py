"""Members: add, move and remove nodes of the cluster. All calls are safe to repeat."""

from http_api.server.call import Call, Reply
from http_api.v1 import schema
from lockapi import answers
from lockapi.gateway import Gateway
from lockapi.requests.service import AddMemberRequest, MoveMemberRequest, RemoveMemberRequest


async def add_member(gateway: Gateway, call: Call) -> Reply:
    """Add a node, which joins and then counts."""
    request = await schema.read(call, AddMemberRequest)
    request.checked_id()
    members, revision = await gateway.add_member(request.id, request.peer, call.timeout_s)
    return Reply(answers.encode(answers.member_list(members, revision)))


async def move_member(gateway: Gateway, call: Call) -> Reply:
    """Change the address at which the others reach a node."""
    request = await schema.read(call, MoveMemberRequest)
    request.checked_id()
    members, revision = await gateway.move_member(request.id, request.peer, call.timeout_s)
    return Reply(answers.encode(answers.member_list(members, revision)))


async def remove_member(gateway: Gateway, call: Call) -> Reply:
    """Remove a node; leadership is handed over first if it leads."""
    request = await schema.read(call, RemoveMemberRequest)
    request.checked_id()
    node_id = schema.body_or_query(call, "id", request.id)
    members, revision = await gateway.remove_member(node_id, call.timeout_s)
    return Reply(answers.encode(answers.member_list(members, revision)))
