"""Elections: campaign, proclaim, resign, look at one."""

from api import answers, views
from api.node import ServingNode
from api.problems import expect
from api.requests.primitives import CampaignRequest, ProclaimRequest
from http_api.server.call import Call, Reply
from http_api.v1 import reads, schema
from http_api.v1.handlers import locks
from lockstate import results


async def campaign(node: ServingNode, call: Call) -> Reply:
    """Ask to lead an election, waiting in its queue if asked to."""
    request = await schema.read(call, CampaignRequest)
    answer = await node.acquire(request.command(), call.timeout_s)
    granted = expect(answer.result, results.Granted)
    leader = views.Leader(granted.owner, request.value, granted.token)
    made = answers.Elected(granted.hold_id, granted.token, leader, granted.expires_in_ms, answer.revision)
    return Reply(answers.encode(made))


async def proclaim(node: ServingNode, call: Call) -> Reply:
    """Say something else as the leader of an election."""
    request = await schema.read(call, ProclaimRequest)
    answer = await node.submit(request.command(), call.timeout_s)
    proclaimed = expect(answer.result, results.Proclaimed)
    return Reply(answers.encode(answers.Proclaimed(proclaimed.token, answer.revision)))


async def resign(node: ServingNode, call: Call) -> Reply:
    """Lead an election no longer."""
    return await locks.release_whole(node, call)


async def get_election(node: ServingNode, call: Call) -> Reply:
    """Return an election: who leads and what it says, and who wants to."""
    name = schema.name(call)
    return await reads.answer(node, call, lambda machine: machine.election(name), views.election_of)
