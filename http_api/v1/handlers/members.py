"""Members: add, move and remove nodes of the cluster. All calls are safe to repeat."""

from http_api.server.call import Call, Reply
from http_api.v1 import schema
from lockapi import answers
from lockapi.gateway import Gateway
from lockapi.requests.service import AddMemberRequest, MoveMemberRequest, RemoveMemberRequest


async def add_member(gateway: Gateway, call: Call) -> Reply:
    """Add a node, which joins and then counts."""
    act = (await schema.read(call, AddMemberRequest)).command()
    members, revision = await gateway.change_members(act, call.timeout_s)
    return Reply(answers.encode(answers.member_list(members, revision)))


async def move_member(gateway: Gateway, call: Call) -> Reply:
    """Change the address at which the others reach a node."""
    act = (await schema.read(call, MoveMemberRequest)).command()
    members, revision = await gateway.change_members(act, call.timeout_s)
    return Reply(answers.encode(answers.member_list(members, revision)))


async def remove_member(gateway: Gateway, call: Call) -> Reply:
    """Remove a node; leadership is handed over first if it leads."""
    request = await schema.read(call, RemoveMemberRequest)
    node_id = schema.body_or_query(call, "id", request.id)
    reason = schema.body_or_query(call, "reason", request.reason)
    members, revision = await gateway.change_members(request.command(node_id, reason), call.timeout_s)
    return Reply(answers.encode(answers.member_list(members, revision)))
