"""Elections: campaign, proclaim, resign, look at one, list."""

from holdfast.wire.answers import ProclaimedJson
from http_api.server.call import Call, Reply
from http_api.v1 import reads, schema, waiting
from http_api.v1.handlers import locks
from lockapi import answers, paging, views
from lockapi.gateway import Gateway
from lockapi.requests.locks import DeposeRequest
from lockapi.requests.primitives import ProclaimRequest
from lockstate.reads import listings
from lockstate.words import results
from lockstate.words.kinds import HoldKind


async def campaign(gateway: Gateway, call: Call) -> Reply:
    """Ask to lead an election, waiting in its queue if asked to."""
    return await waiting.CAMPAIGN.reply(gateway, call)


async def proclaim(gateway: Gateway, call: Call) -> Reply:
    """Change the value of an election, as its leader."""
    request = await schema.read(call, ProclaimRequest)
    result, revision, is_repeated = await gateway.submit(
        request.command(), results.Proclaimed, call.timeout_s
    )
    return Reply(answers.told(ProclaimedJson(result.token, revision), is_repeated=is_repeated))


async def resign(gateway: Gateway, call: Call) -> Reply:
    """Stop leading an election."""
    return await locks.release_whole(gateway, call, HoldKind.ELECTION)


async def depose(gateway: Gateway, call: Call) -> Reply:
    """End the leadership of an election, for the next candidate to lead."""
    request = await schema.read(call, DeposeRequest)
    return await locks.force_end(gateway, call, request, HoldKind.ELECTION)


async def revoke_leader(gateway: Gateway, call: Call) -> Reply:
    """Ask the leader of an election to resign."""
    return await locks.revoke_of(gateway, call, HoldKind.ELECTION)


async def withdraw_leader_revocation(gateway: Gateway, call: Call) -> Reply:
    """Take back what the leader of an election was asked."""
    return await locks.withdraw_revocation_of(gateway, call, HoldKind.ELECTION)


async def put_off_resigning(gateway: Gateway, call: Call) -> Reply:
    """Lead for the grace once more, although asked to resign."""
    return await locks.put_off_of(gateway, call, HoldKind.ELECTION)


async def get_election(gateway: Gateway, call: Call) -> Reply:
    """Return an election: its leader with its value, and its candidates."""
    name = schema.name(call)
    return await reads.answer(
        gateway, call, lambda machine: machine.election(name), views.election_of, name=name
    )


async def list_elections(gateway: Gateway, call: Call) -> Reply:
    """Return a page of elections that have a leader or candidates."""
    return await reads.page(
        gateway,
        call,
        lambda machine, *page: listings.elections(machine.state, *page),
        views.election_page_of,
        paging.named(lambda election: election.name),
    )
