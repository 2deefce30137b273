"""What a principal may see of what a read or a refusal found: the rest is left out, and counted.

Whoever may read everything is shown everything, and nothing here looks at it.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from holdfast.token_lines import Right
from holdfast.wire.held import HoldRow, LockInfo, WaitRow
from holdfast.wire.listings import HoldPageJson, LockPageJson
from holdfast.wire.shape import FRESH, ReadAnswer
from lockapi import paging
from lockapi.needs import forbidden
from lockapi.rights import Rights
from lockapi.views import AuditJson
from lockstate.machine import LockMachine
from lockstate.tables.audit import AuditLink, Linked
from lockstate.tables.audit_record import AuditEvent
from lockstate.words import limits
from lockstate.words.events import Event
from lockstate.words.ids import SessionId
from lockstate.words.refusals import Refused
from lockstate.words.views import HolderView


class Named(Protocol):
    """What stands under a name."""

    @property
    def name(self) -> str:
        """Return the name."""
        ...


N = TypeVar("N", bound=Named)
Row = TypeVar("Row")
Place = TypeVar("Place", str, bytes)
A = TypeVar("A", bound=ReadAnswer)


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


def read(rights: Rights, view: ReadAnswer) -> ReadAnswer:
    """Return an answer without what may not be read beside what was asked for: holders of subtrees above."""
    if rights.everywhere(Right.READ):
        return view
    if isinstance(view, LockInfo):
        shown, hidden = _shown(view, rights)
        return _counted(shown, hidden)
    if isinstance(view, LockPageJson):
        locks = [_shown(lock, rights) for lock in view.locks]
        page = replace(view, locks=tuple([lock for lock, _ in locks]))
        return _counted(page, sum([hidden for _, hidden in locks]))
    return view


def _shown(lock: LockInfo, rights: Rights) -> tuple[LockInfo, int]:
    """Return a lock without what may not be read, and how much that is."""
    holders, queue = seen(rights, lock.holders), seen(rights, lock.queue)
    hidden = len(lock.holders) - len(holders) + len(lock.queue) - len(queue)
    return (replace(lock, holders=holders, queue=queue) if hidden else lock), hidden


def _counted(view: A, hidden: int) -> A:
    return replace(view, hidden=hidden + (view.hidden or 0)) if hidden else view


# -- listings ------------------------------------------------------------------------------------------------


def listing(
    rights: Rights,
    start: str,
    page: tuple[Place, int],
    find: Callable[[LockMachine, Place, int], paging.Found[Row, Place]],
    show: Callable[[paging.Found[Row, Place]], A],
    *,
    shape: paging.Shape[Row, Place],
) -> tuple[paging.Search[Row, Place], Callable[[tuple[Any, int]], A]]:
    """Return how a page of what begins with `start` is found and shown: without what may not be read.

    The number of what is left out is told of a page of all there is, from the first name on, and of no other,
    for who can choose where to count finds out letter by letter what is there. Raises ProblemError, whatever
    is there, if nothing that begins with `start` may be read.
    """
    check_reach(rights, start)
    is_whole = rights.gap_behind(Right.READ, start) is None
    tells_hidden = not (start or page[0] or shape.name_of_place)
    search = paging.Search(rights, page, find, shape, is_whole=is_whole, tells_hidden=tells_hidden)

    def shown(found: tuple[Any, int]) -> A:
        rows, hidden = found
        return _counted(show(rows), hidden if tells_hidden else 0)

    return search, shown


def check_reach(rights: Rights, start: str) -> None:
    """Refuse a listing of what begins with `start` if none of that may be read. Raises ProblemError."""
    if not rights.reaches_behind(Right.READ, start):
        raise forbidden(Right.READ, start)


def holdings(rights: Rights, page: HoldPageJson, *, tells_hidden: bool) -> HoldPageJson:
    """Return a page without what may not be read. Its `next` stays, and may be the name of what is gone.

    How much that was is told of all holds, and not of those of a caller's choice: see `listing`.
    """
    if rights.everywhere(Right.READ):
        return page
    holds, tickets = seen(rights, page.holds), seen(rights, page.tickets)
    hidden = len(page.holds) - len(holds) + len(page.tickets) - len(tickets)
    return _counted(replace(page, holds=holds, tickets=tickets), hidden if tells_hidden else 0)


def holdings_to_ask_for(rights: Rights, left: int) -> int:
    """Return how many holdings to look for, if so many are missing on a page; 0 if the page is over.

    Who may not read everything is looked for as many as possible, also when the page is full, until something
    is found for the next one: a page that ended where enough that is hidden was found would tell of it.
    """
    return max(left, 0) if rights.everywhere(Right.READ) else limits.LIST_LIMIT_MAX


def cut_holdings(page: HoldPageJson, limit: int) -> HoldPageJson:
    """Return a page without what comes behind the name that fills it; the same if nothing does."""
    rows: list[HoldRow | WaitRow] = [*page.holds, *page.tickets]
    places = sorted([(row.kind, row.name) for row in rows])
    if len(places) <= limit or places[limit - 1] == places[-1]:
        return page
    last = places[limit - 1]
    return replace(
        page,
        holds=tuple([row for row in page.holds if (row.kind, row.name) <= last]),
        tickets=tuple([row for row in page.tickets if (row.kind, row.name) <= last]),
        next=" ".join(last),
    )


def end_of_holdings(rights: Rights, page: HoldPageJson) -> str | None:
    """Return the place to go on after: one that may be read. Raises ProblemError if the page has none."""
    if page.next is None or rights.covers(Right.READ, page.next.partition(" ")[2]):
        return page.next
    rows: list[HoldRow | WaitRow] = [*page.holds, *page.tickets]
    if not rows:
        raise paging.nothing_seen(page.hidden or 0)
    last = max(rows, key=lambda row: (row.kind, row.name))
    return f"{last.kind} {last.name}"


class AuditQuery(NamedTuple):
    """Which records of the audit are wanted."""

    limit: int
    behind: int | None = None
    """Only those after the record of this number, the oldest first."""
    by_operators: bool = False
    """Only what operators did to others, or set."""


def events(rights: Rights, machine: LockMachine, query: AuditQuery) -> tuple[list[Linked], int]:
    """Return what `LockMachine.audit_records` does, and how much of that is left out.

    What has no name, as the end of a session, is seen by whoever may read everything.
    """
    hidden = 0
    known: dict[str, bool] = {}

    def may_read(event: Event) -> bool:
        nonlocal hidden
        if query.by_operators and not event.concerns_others:
            return False
        name = event.name
        if name not in known:
            known[name] = bool(name) and rights.covers(Right.READ, name)
        hidden += not known[name]
        return known[name]

    found = list(islice(machine.state.audit.records(may_read, query.behind), query.limit))
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


def audit(rights: Rights, query: AuditQuery) -> paging.Records:
    """Return how the audit of all names is found."""

    def find(machine: LockMachine) -> tuple[list[Linked], int]:
        if rights.everywhere(Right.READ):
            return machine.audit_records(**query._asdict()), 0
        records, hidden = events(rights, machine, query)
        return _links(rights, records), hidden

    return paging.Records(find)


def audit_of_name(rights: Rights, name: str, query: AuditQuery) -> paging.Records:
    """Return how the audit of one name is found, which the caller may read."""
    return paging.Records(lambda machine: (_links(rights, machine.audit_records(name, **query._asdict())), 0))


def audit_of_session(rights: Rights, asking: str, session_id: SessionId, limit: int) -> paging.Records:
    """Return how the audit of a session is found: of what was the principal's that is asking."""

    def find(machine: LockMachine) -> tuple[list[Linked], int]:
        records = machine.audit_records(session_id=session_id, limit=limit)
        return _links(rights, _own(records, asking)), 0

    return paging.Records(find)


def audit_of(now_ms: Callable[[], int]) -> Callable[[tuple[list[AuditEvent], int]], AuditJson]:
    """Return what shows records of the audit, and says how many are left out.

    `now_ms` is cluster time, from which the age of a record can be counted back.
    """

    def show(found: tuple[list[AuditEvent], int]) -> AuditJson:
        events, hidden = found
        return _counted(AuditJson(tuple(events), now_ms(), **FRESH), hidden)

    return show
