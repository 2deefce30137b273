"""What a principal may see of what a read or a refusal found: the rest is left out, and counted.

Whoever may read everything is shown everything, and nothing here looks at it.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Protocol, TypeVar

from holdfast.token_lines import Right
from holdfast.wire.answers import Unset
from lockapi import paging, views
from lockapi.needs import forbidden
from lockapi.rights import Rights
from lockstate.machine import LockMachine
from lockstate.tables.audit import AuditLink, Linked
from lockstate.tables.audit_record import AuditEvent
from lockstate.words import limits
from lockstate.words.ids import SessionId
from lockstate.words.results import Event, HolderView, Refused


class Named(Protocol):
    """What stands under a name."""

    @property
    def name(self) -> str:
        """Return the name."""
        ...


N = TypeVar("N", bound=Named)
Row = TypeVar("Row")
Place = TypeVar("Place", str, bytes)
R = TypeVar("R", bound=views.ReadAnswer)


def seen(rights: Rights, found: Iterable[N]) -> tuple[N, ...]:
    """Return what may be read of what was found."""
    return tuple([one for one in found if rights.covers(Right.READ, one.name)])


def refusal(rights: Rights, refused: Refused) -> tuple[Refused, int]:
    """Return a refusal without those that may not be read, and how many these are."""
    if rights.everywhere(Right.READ) or not (refused.holders or refused.cycle):
        return refused, 0
    holders, cycle = seen(rights, refused.holders), seen(rights, refused.cycle)
    hidden = len(refused.holders) - len(holders) + len(refused.cycle) - len(cycle)
    if not hidden:
        return refused, 0
    # What it says in words names them as well.
    detail = "would wait for ever" if refused.cycle else f"held{_by(holders)}"
    return Refused(
        refused.reason,
        detail,
        holders,
        refused.queue_length,
        refused.retry_after_ms,
        cycle,
        refused.facts,
    ), hidden


def _by(holders: tuple[HolderView, ...]) -> str:
    return f" by {holders[0].owner}" if holders else " by a holder that the caller may not see"


def read(rights: Rights, view: views.ReadAnswer) -> None:
    """Take out of an answer what may not be read beside what was asked for: holders of subtrees above."""
    if rights.everywhere(Right.READ):
        return
    if isinstance(view, views.LockJson):
        _hide(view, view, rights)
    elif isinstance(view, views.LockPageJson):
        for lock in view.locks:
            _hide(view, lock, rights)


def _hide(view: views.ReadAnswer, lock: views.LockJson, rights: Rights) -> None:
    holders, queue = seen(rights, lock.holders), seen(rights, lock.queue)
    _count(view, len(lock.holders) - len(holders) + len(lock.queue) - len(queue))
    lock.holders, lock.queue = holders, queue


def _count(view: views.ReadAnswer, hidden: int) -> None:
    if hidden:
        view.hidden = hidden + (0 if isinstance(view.hidden, Unset) else view.hidden)


# -- listings ------------------------------------------------------------------------------------------------


def listing(
    rights: Rights,
    start: str,
    page: tuple[Place, int],
    find: Callable[[LockMachine, Place, int], paging.Found[Row, Place]],
    show: Callable[[paging.Found[Row, Place]], views.ReadAnswer],
    *,
    shape: paging.Shape[Row, Place],
) -> tuple[paging.Search[Row, Place], Callable[..., views.ReadAnswer]]:
    """Return how a page of what begins with `start` is found and shown: without what may not be read.

    The number of what is left out is told of a page of all there is, from the first name on, and of no other,
    for who can choose where to count finds out letter by letter what is there. Raises ProblemError, whatever
    is there, if nothing that begins with `start` may be read.
    """
    if not rights.reaches_behind(Right.READ, start):
        raise forbidden(Right.READ, start)
    is_whole = rights.gap_behind(Right.READ, start) is None
    tells_hidden = not (start or page[0] or shape.name_of_place)
    search = paging.Search(rights, page, find, shape, is_whole=is_whole, tells_hidden=tells_hidden)
    return search, _counted(show, tells_hidden=tells_hidden)


def _counted(show: Callable[[Any], R], *, tells_hidden: bool) -> Callable[[tuple[Any, int]], R]:
    """Return what shows what was found, and says how much is left out."""

    def shown(found: tuple[Any, int]) -> R:
        view = show(found[0])
        if tells_hidden:
            _count(view, found[1])
        return view

    return shown


def holdings(rights: Rights, page: views.HoldPageJson, *, tells_hidden: bool) -> None:
    """Take out of a page what may not be read. Its `next` stays, and may be the name of what is gone.

    How much that was is told of all holds, and not of those of a caller's choice: see `listing`.
    """
    if rights.everywhere(Right.READ):
        return
    holds, tickets = seen(rights, page.holds), seen(rights, page.tickets)
    if tells_hidden:
        _count(page, len(page.holds) - len(holds) + len(page.tickets) - len(tickets))
    page.holds, page.tickets = holds, tickets


def holdings_to_ask_for(rights: Rights, left: int) -> int:
    """Return how many holdings to look for, if so many are missing on a page; 0 if the page is over.

    Who may not read everything is looked for as many as possible, also when the page is full, until something
    is found for the next one: a page that ended where enough that is hidden was found would tell of it.
    """
    return max(left, 0) if rights.everywhere(Right.READ) else limits.LIST_LIMIT_MAX


def cut_holdings(page: views.HoldPageJson, limit: int) -> bool:
    """Leave what comes behind the name that fills a page for the next one; return whether anything does."""
    rows: list[views.HeldJson | views.TicketJson] = [*page.holds, *page.tickets]
    places = sorted([(row.kind, row.name) for row in rows])
    if len(places) <= limit or places[limit - 1] == places[-1]:
        return False
    last = places[limit - 1]
    page.holds = tuple([row for row in page.holds if (row.kind, row.name) <= last])
    page.tickets = tuple([row for row in page.tickets if (row.kind, row.name) <= last])
    page.next = " ".join(last)
    return True


def end_of_holdings(rights: Rights, page: views.HoldPageJson) -> None:
    """Let a page go on after something that may be read. Raises ProblemError if it has nothing like that."""
    if page.next is None or rights.covers(Right.READ, page.next.partition(" ")[2]):
        return
    rows: list[views.HeldJson | views.TicketJson] = [*page.holds, *page.tickets]
    if not rows:
        raise paging.nothing_seen(page.hidden if isinstance(page.hidden, int) else 0)
    last = max(rows, key=lambda row: (row.kind, row.name))
    page.next = f"{last.kind} {last.name}"


def events(rights: Rights, machine: LockMachine, limit: int, behind: int | None) -> tuple[list[Linked], int]:
    """Return what `LockMachine.audit_records` does, and how much of that is left out.

    What has no name, as the end of a session, is seen by whoever may read everything.
    """
    hidden = 0
    known: dict[str, bool] = {}

    def may_read(event: Event) -> bool:
        nonlocal hidden
        name = event.name
        if name not in known:
            known[name] = bool(name) and rights.covers(Right.READ, name)
        hidden += not known[name]
        return known[name]

    found = list(islice(machine.state.audit.records(may_read, behind), limit))
    return found, hidden


def _links(rights: Rights, records: list[Linked]) -> list[Linked]:
    """Return records as somebody may see them: without hashes, unless all names may be read.

    The hash of a record that may not be read stands in the one behind it, and tells whoever guesses its name
    whether that is right.
    """
    if rights.everywhere(Right.READ):
        return records
    return [(event, AuditLink(link.number)) for event, link in records]


def _own(records: list[Linked], principal: str) -> list[Linked]:
    """Return the records of what was of a principal or of nobody; "" is told of all."""
    return [linked for linked in records if not principal or linked[0].principal in ("", principal)]


def audit(rights: Rights, limit: int, behind: int | None) -> paging.Records:
    """Return how the audit of all names is found."""

    def find(machine: LockMachine) -> tuple[list[Linked], int]:
        if rights.everywhere(Right.READ):
            return machine.audit_records(limit=limit, behind=behind), 0
        records, hidden = events(rights, machine, limit, behind)
        return _links(rights, records), hidden

    return paging.Records(find)


def audit_of_name(rights: Rights, name: str, limit: int, behind: int | None) -> paging.Records:
    """Return how the audit of one name is found, which the caller may read."""
    return paging.Records(
        lambda machine: (_links(rights, machine.audit_records(name, limit=limit, behind=behind)), 0)
    )


def audit_of_session(rights: Rights, asking: str, session_id: SessionId, limit: int) -> paging.Records:
    """Return how the audit of a session is found: of what was the principal's that is asking."""

    def find(machine: LockMachine) -> tuple[list[Linked], int]:
        records = machine.audit_records(session_id=session_id, limit=limit)
        return _links(rights, _own(records, asking)), 0

    return paging.Records(find)


def audit_of(now_ms: Callable[[], int]) -> Callable[[tuple[list[AuditEvent], int]], views.AuditJson]:
    """Return what shows records of the audit, and says how many are left out.

    `now_ms` is cluster time, from which the age of a record can be counted back.
    """

    def show(found: tuple[list[AuditEvent], int]) -> views.AuditJson:
        shown = _counted(views.audit_of, tells_hidden=True)(found)
        shown.now_ms = now_ms()
        return shown

    return show
