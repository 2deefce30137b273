"""Holds and waits of all kinds: what somebody has and waits for, and how far one waiter is."""

from typing import Final

from api import answers, views
from api.gateway import Gateway
from api.problems import ProblemError
from api.requests.fields import invalid
from http_api.server.call import Call, Reply
from http_api.v1 import reads, schema
from lockstate import listings
from lockstate.listings import Whose
from lockstate.results import Holdings, TicketView

_SLICES_MAX: Final = 100
"""Reads that one call makes, each of a limited number of names: together a million names."""


_ENDED: Final = "nobody waits with this number: it was granted or has given up, or never was"


async def list_holds(gateway: Gateway, call: Call) -> Reply:
    """Return what an owner, a session or those with a label hold and wait for, of all kinds.

    A cluster with very many names is looked through a slice at a time, others have their turn in between.
    """
    prefix, after, limit = schema.page(call)
    whose, name = schema.whose(call), schema.session_name_in_query(call)
    if name is not None:
        if call.query_values.keys() & {"owner", "label", "held_longer_than_ms", "prefix", "after", "limit"}:
            raise invalid("session_name: goes with no other condition")
        return await reads.answer(gateway, call, lambda machine: machine.holdings_of(name), _of_session)
    page = views.HoldPage((), (), after)
    for _ in range(_SLICES_MAX):
        left = limit - len(page.holds) - len(page.tickets)
        found = await _slice(gateway, call, whose, (prefix, page.next or "", left))
        found.holds, found.tickets = page.holds + found.holds, page.tickets + found.tickets
        page = found
        if page.next is None or len(page.holds) + len(page.tickets) >= limit:
            break
    return Reply(answers.encode(page))


async def _slice(gateway: Gateway, call: Call, whose: Whose, page: tuple[str, str, int]) -> views.HoldPage:
    """Return one page as a new read, so that the loop of this node is free before it."""
    view = await gateway.view(
        lambda machine: listings.holdings(machine.state, whose, *page),
        views.holds_of,
        call.timeout_s,
        is_stale=schema.is_stale(call),
    )
    assert isinstance(view, views.HoldPage), "that is what it is shown as"
    return view


def _of_session(found: Holdings | None) -> views.HoldPage:
    if found is None:
        raise ProblemError("session-expired", "the session has expired or never was")
    return views.holds_of(found)


async def get_ticket(gateway: Gateway, call: Call) -> Reply:
    """Return how far a waiter is."""
    number = schema.ticket_number(call)
    return await reads.answer(
        gateway, call, lambda machine: listings.ticket(machine.state, number), _ticket_shown
    )


def _ticket_shown(found: TicketView | None) -> views.TicketStatus:
    if found is None:
        raise ProblemError(
            "ticket-ended", "nobody waits with this number: granted, given up, or never given out"
        )
    return views.ticket_status_of(found)
