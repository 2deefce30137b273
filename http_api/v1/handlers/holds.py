"""Holds and waits of all kinds: what somebody has and waits for, one waiter, and ending waits by force."""

import time
from typing import Final

import msgspec

from holdfast.token_lines import Right
from holdfast.wire.answers import WaitsForcedJson
from holdfast.wire.held import TicketInfo
from holdfast.wire.listings import HoldPageJson
from holdfast.wire.shape import ABSENT, FRESH
from http_api.server.call import Call, Reply
from http_api.v1 import reads, schema
from lockapi import answers, sight, views
from lockapi.gateway import Gateway
from lockapi.problems import ProblemError
from lockapi.requests.fields import invalid
from lockapi.requests.overrides import ForceWaitsRequest
from lockstate.reads import listings
from lockstate.reads.listings import Whose
from lockstate.words.results import WaitsForced
from lockstate.words.views import Holdings, TicketView

_SLICES_MAX: Final = 100
"""Reads that one call makes, each of a limited number of names: together a million names."""


_CONDITIONS: Final = {
    "owner", "label", "principal", "held_longer_than_ms", "no_deadline", "prefix", "after", "limit",
}  # fmt: skip
"""What may be said of the holds that are to be listed, unless it is those of one session."""

_UNCONDITIONAL: Final = {"prefix", "after", "limit", "consistency"}
"""What may stand in the query of a listing of all there is, the first two empty."""

_ENDED: Final = "no request waits with this number: it was granted, was given up, or never existed"


async def list_holds(gateway: Gateway, call: Call) -> Reply:
    """Return what an owner, a session or those with a label hold and wait for, of all kinds.

    A cluster with very many names is looked through a slice at a time, others have their turn in between.
    """
    prefix, after, limit = schema.page(call)
    whose, name = schema.whose(call), schema.session_name_in_query(call)
    if name is not None:
        if call.query_values.keys() & _CONDITIONS:
            raise invalid("session_name: cannot be combined with other conditions")
        return await reads.answer(
            gateway,
            call,
            lambda machine: machine.holdings_of(name),
            lambda found: sight.holdings(gateway.rights, _of_session(found), tells_hidden=True),
            name=None,
        )
    sight.check_reach(gateway.rights, prefix)
    page = HoldPageJson((), (), after, **FRESH)
    began_s = time.monotonic()
    tells_hidden = not (prefix or after or call.query_values.keys() - _UNCONDITIONAL)
    left = sight.holdings_to_ask_for(gateway.rights, limit)
    for _ in range(_SLICES_MAX):
        place = (prefix, page.next or "", left)
        found = await _slice(gateway, call, whose, place, tells_hidden=tells_hidden)
        page = _together(page, found, time.monotonic() - began_s)
        began_s = time.monotonic()
        left = sight.holdings_to_ask_for(gateway.rights, limit - len(page.holds) - len(page.tickets))
        whole, page = page, sight.cut_holdings(page, limit)
        if page is not whole or page.next is None or not left:
            break
    page = msgspec.structs.replace(page, next=sight.end_of_holdings(gateway.rights, page))
    return Reply(answers.encode(page))


def _together(page: HoldPageJson, found: HoldPageJson, later_s: float) -> HoldPageJson:
    """Return a page with the next slice of it, which was found so much later."""
    if isinstance(page.revision, int):
        # Nothing in a stale answer is older than it says: so it says what is true of the first slice.
        lag_ms = page.lag_ms + int(later_s * 1000) if isinstance(page.lag_ms, int) else page.lag_ms
        found = msgspec.structs.replace(found, revision=page.revision, lag_ms=lag_ms)
    return msgspec.structs.replace(
        found,
        holds=page.holds + found.holds,
        tickets=page.tickets + found.tickets,
        hidden=(page.hidden or 0) + (found.hidden or 0) or ABSENT,
    )


async def _slice(
    gateway: Gateway, call: Call, whose: Whose, page: tuple[str, str, int], *, tells_hidden: bool
) -> HoldPageJson:
    """Return one page as a new read, in its own turn, so that the loop of this node is free before it."""
    view = await gateway.view(
        lambda machine: listings.holdings(machine.state, whose, *page),
        lambda found: sight.holdings(gateway.rights, views.holds_of(found), tells_hidden=tells_hidden),
        call.timeout_s,
        name=None,
        is_stale=schema.is_stale(call),
        is_large=True,
    )
    assert isinstance(view, HoldPageJson), "that is what it is shown as"
    return view


def _of_session(found: Holdings | None) -> HoldPageJson:
    if found is None:
        raise ProblemError("session-expired", "the session has expired or never existed")
    return views.holds_of(found)


async def get_ticket(gateway: Gateway, call: Call) -> Reply:
    """Return how far a waiter is."""
    number = schema.ticket_number(call)
    return await reads.answer(
        gateway,
        call,
        lambda machine: listings.ticket(machine.state, number),
        lambda found: _ticket_shown(gateway, found),
        name=None,
    )


def _ticket_shown(gateway: Gateway, found: TicketView | None) -> TicketInfo:
    # The number is public: nobody shall find out by it who waits for what they may not read.
    if found is None or not all(gateway.rights.covers(Right.READ, name) for name in found.names):
        raise ProblemError("ticket-ended", _ENDED)
    return views.ticket_status_of(found)


async def force_waits(gateway: Gateway, call: Call) -> Reply:
    """End the waits for a name, or one of them."""
    request = await schema.read(call, ForceWaitsRequest)
    result, revision, is_repeated = await gateway.submit(request.command(), WaitsForced, call.timeout_s)
    answer = WaitsForcedJson(views.waiters_of(result.waits), revision, result.left)
    return Reply(answers.told(answer, is_repeated=is_repeated))
