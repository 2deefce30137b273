"""Defects of whose something is."""

from typing import Any, Final

from lockstate.rules.holds import ends
from lockstate.rules.on_behalf import OnBehalfOf
from lockstate.tables import delays
from lockstate.tables.namespaces import Namespaces
from lockstate.tables.principals import Principals
from lockstate.tables.records import Delay, Hold, Ticket
from lockstate.tables.state import State
from lockstate.words.refusals import Refused
from tests.simulation.mutations.mutation import (
    Mutation,
    Surroundings,
    replaced,
)

_MANY: Final = Surroundings(minutes=2, client_settings={"vocabulary_share": 0.9, "think_s": 0.15})
_CALM: Final = Surroundings(
    minutes=2, client_settings={"names": tuple(f"n{number}" for number in range(8)), "think_s": 0.3}
)
"""Seldom anybody waits, so that plain locks are released the short way."""


def _nothing_is_foreign(of: OnBehalfOf, command: Any) -> Refused | None:
    """Let everybody use whatever they know the id of."""
    del of, command
    return None


def _count_what_comes(principals: Principals, lease_id: str, name: str, by: int) -> str:
    """Count the plain locks that come, and not those that go."""
    return _count_plain(principals, lease_id, name, max(by, 0))


_count_plain = Principals.count_plain


def _waits_are_nobodys(principals: Principals, record: Hold | Ticket) -> str:
    """Know whose a hold is, and not whose a wait is."""
    return "" if isinstance(record, Ticket) else _of(principals, record)


_of = Principals.of


def _disown_all(state: State, record: Hold | Ticket) -> None:
    """Take a change that was not to be for the hold."""
    if not record.session_id:
        state.principals.drop(record.changes if isinstance(record, Ticket) else record.hold_id)


def _share_of_own(principals: Principals, key: bytes, had: int | None, has: int) -> tuple[int, int]:
    """Count what is written in a cell for whom it counts already."""
    is_of_another = had is not None and principals.cells.get(key, principals.asking) != principals.asking
    return (0, 0) if is_of_another else _share(principals, key, had, has)


_share = Principals.share_of_write


def _count_no_wait(principals: Principals, ticket: Ticket, by: int) -> None:
    """Count what is held, and not what is waited for."""
    del principals, ticket, by


def _count_no_wait_there(namespaces: Namespaces, ticket: Ticket, hold: Hold | None, by: int) -> None:
    """Count what is held in a namespace, and not what is waited for."""
    del namespaces, ticket, hold, by


def _count_no_delay(state: State, delay: Delay, by: int) -> None:
    """Count nothing for a name whose hold has ended, whatever it leaves."""
    del state, delay, by


PRINCIPALS: Final = (
    Mutation(
        name="what-is-anothers-is-used",
        sentence="The id of a session or a hold may be used by every principal.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(OnBehalfOf, "_refuse_foreign", _nothing_is_foreign),
        surroundings=_MANY,
    ),
    Mutation(
        name="waits-are-nobodys",
        sentence="Events do not say whose a wait is.",
        found_by=("model-state", "model-events"),
        apply=replaced(Principals, "of", _waits_are_nobodys),
        surroundings=_MANY,
    ),
    Mutation(
        name="a-change-that-ends-disowns",
        sentence="A hold belongs to nobody after a wait for a change of it ended.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(ends, "_disown", _disown_all),
        surroundings=_MANY,
    ),
    Mutation(
        name="released-still-counts",
        sentence="A plain lock that was released still counts for its principal.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(Principals, "count_plain", _count_what_comes),
        surroundings=_CALM,
    ),
    Mutation(
        name="quota-forgets-waits",
        sentence="A waiter gets more than its quota allows in the end.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(Principals, "count_ticket", _count_no_wait),
        surroundings=_MANY,
    ),
    Mutation(
        name="namespace-forgets-waits",
        sentence="A waiter gets more than the quota of a namespace allows in the end.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(Namespaces, "count_ticket", _count_no_wait_there),
        surroundings=_MANY,
    ),
    Mutation(
        name="delays-cost-nothing",
        sentence="A lock-delay counts in no quota.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(delays, "_count_delay", _count_no_delay),
        surroundings=_MANY,
    ),
    Mutation(
        name="cells-of-others-cost-nothing",
        sentence="Enlarging a cell of another principal counts for nobody.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(Principals, "share_of_write", _share_of_own),
        surroundings=Surroundings(minutes=2, client_settings={"cells_share": 0.5, "vocabulary_share": 0.5}),
    ),
)
