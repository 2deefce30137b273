"""Sentences about what principals and namespaces are counted as having."""

from collections import Counter

from lockstate.tables.cells import size_of
from lockstate.tables.namespaces import NamespaceUsage
from lockstate.tables.principals import Usage
from lockstate.tables.records import Delay, Hold, Ticket, each_lock, permits_in
from lockstate.tables.state import State
from lockstate.words.kinds import HoldKind


def principals_are_counted(state: State) -> None:
    """Whose something is is known of what is there and of nothing else, and how much each has."""
    of = state.principals.rows
    own = {
        record.hold_id for record in (*state.holds.values(), *state.tickets.values()) if not record.session_id
    }
    assert of.keys() <= state.sessions.keys() | own, "what is gone still belongs to somebody"
    assert all(key in state.cells for key in state.principals.cells), "a cell that is gone counts"
    assert state.principals.fences.keys() <= state.fences.keys(), "a fence that is gone counts"
    assert not state.principals.asking, "a command is over, and somebody is still asking"
    sessions = Counter(of[session_id] for session_id in state.sessions if session_id in of)
    holds = Counter(who for who, _ in _names_of_principals(state))
    waits = Counter(state.principals.of(ticket) for ticket in state.tickets.values())
    waits.update(place.principal for place in state.rates.places.values())
    cells, fences = (Counter(table.values()) for table in (state.principals.cells, state.principals.fences))
    rates = Counter(limiter.principal for limiter in state.rates.all())
    size_bytes = _bytes_of_principals(state)
    known = {principal for principal in (*sessions, *holds, *waits, *cells, *fences, *rates) if principal}
    counted = {
        who: Usage(
            sessions[who], holds[who], waits[who], cells[who], fences[who], rates[who], size_bytes[who]
        )
        for who in known
    }
    assert state.principals.usage == counted, "what principals have is miscounted"


def namespaces_are_counted(state: State) -> None:
    """A namespace counts what lies in it and was made since it was set, and nothing else."""
    table = state.namespaces
    assert table.fences.keys() <= state.fences.keys(), "a fence that is gone counts in a namespace"
    assert table.usage.keys() == table.rows.keys(), "what is in no namespace is counted"
    for prefix, namespace in table.rows.items():
        has = {
            hold.hold_id
            for hold in state.holds.values()
            if hold.token >= namespace.since_token and _lies_in(prefix, hold)
        }
        waits = [
            ticket
            for ticket in state.tickets.values()
            if ticket.order >= namespace.since_order and _lies_in(prefix, ticket)
        ]
        wanted = [one for one in waits if not one.is_conversion]
        entering = [one for one in wanted if one.changes not in has]
        delays = [
            delay
            for delay in _delays(state)
            if delay.order >= namespace.since_order and f"{delay.name}/".startswith(f"{prefix}/")
        ]
        cells = [
            cell
            for cell in state.cells.all()
            if cell.create_revision >= namespace.since_cells_revision
            and (cell.key + b"/").startswith(f"{prefix}/".encode())
        ]
        fences = [
            resource
            for resource, order in table.fences.items()
            if order >= namespace.since_order and f"{resource}/".startswith(f"{prefix}/")
        ]
        held: list[Hold | Ticket] = [state.holds[hold_id] for hold_id in has]
        names = [name for record in (*held, *wanted) for name in _names(record)]
        names = [name for name in names if f"{name}/".startswith(f"{prefix}/")]
        names += [delay.name for delay in delays]
        held += [state.holds[one.changes] if one.changes else one for one in entering]
        size_bytes = sum([_bytes_said(record) for record in held])
        size_bytes += sum([size_of(cell) for cell in cells])
        places, rates = (
            [
                one
                for one in every
                if one.order >= namespace.since_order and f"{one.name}/".startswith(f"{prefix}/")
            ]
            for every in (state.rates.places.values(), state.rates.all())
        )
        size_bytes += len("".join([*names, *fences, *[limiter.name for limiter in rates]]).encode())
        counted = NamespaceUsage(
            len(names),
            len(waits) + len(places),
            len(cells),
            len(fences),
            len(rates),
            size_bytes,
        )
        assert table.usage[prefix] == counted, f"{prefix}: {table.usage[prefix]} is counted, not {counted}"


def _lies_in(prefix: str, record: Hold | Ticket) -> bool:
    """Whether a namespace covers any name of a hold or a ticket."""
    return any(f"{name}/".startswith(f"{prefix}/") for name in _names(record))


def _names(record: Hold | Ticket) -> list[str]:
    """Return the names that a hold has or a ticket wants, of locks and of permits."""
    locks = [lock.name for lock in each_lock(record)] if record.kind is not HoldKind.SEMAPHORE else []
    return locks + [name for name, _ in permits_in(record)]


def _delays(state: State) -> list[Delay]:
    return [*state.delays.values(), *state.permit_delays.values()]


def _names_of_principals(state: State) -> list[tuple[str, str]]:
    """Return each name that is held, waited for or delayed, with whose it is; those of nobody, too."""
    records: list[Hold | Ticket] = [*state.holds.values()]
    records += [ticket for ticket in state.tickets.values() if not ticket.is_conversion]
    names = [(state.principals.of(record), name) for record in records for name in _names(record)]
    return names + [(delay.principal, delay.name) for delay in _delays(state)]


def _bytes_of_principals(state: State) -> Counter[str]:
    """Return how many bytes each principal keeps in the state; those of nobody are counted, too."""
    principals, counted = state.principals, Counter[str]()
    names = _names_of_principals(state)
    names += [(principal, resource) for resource, principal in principals.fences.items()]
    names += [(limiter.principal, limiter.name) for limiter in state.rates.all()]
    for principal, name in names:
        counted[principal] += len(name.encode())
    for session in state.sessions.values():
        labels = "".join([*session.labels, *session.labels.values()])
        counted[principals.rows.get(session.session_id, "")] += len(labels.encode())
    records: list[Hold | Ticket] = [*state.holds.values(), *state.tickets.values()]
    for record in records:
        if not (isinstance(record, Ticket) and record.changes):
            counted[principals.of(record)] += _bytes_said(record)
    for cell in state.cells.all():
        counted[principals.cells.get(cell.key, "")] += len(cell.key + cell.value)
    return counted


def _bytes_said(record: Hold | Ticket) -> int:
    return len((record.details.note + record.details.value).encode())
