"""Frozen prefixes, and what is still held and waited for below them."""

from bisect import bisect_left, bisect_right
from itertools import chain

from lockstate.reads.holders import holders_of, queue_of
from lockstate.reads.listings import Page, walk
from lockstate.tables.blockers import covering_holds
from lockstate.tables.records import FrozenPrefix
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.ids import HoldId
from lockstate.words.kinds import HoldKind
from lockstate.words.views import FreezeView, LeftView


def left_below(state: State, prefix: str) -> LeftView:
    """Return how much is held and waited for at and below a prefix, each hold and wait once.

    A lock of a subtree above covers what is below, so it counts. Of a large prefix only the names that come
    first are looked at.
    """
    holds = {hold.hold_id for _, hold in covering_holds(state, prefix)}
    waits: set[HoldId] = set()
    own = [(holders_of(state, kind, prefix), queue_of(state, kind, prefix)) for kind in HoldKind]
    below = ((holders, queue) for _, _, holders, queue in walk(state, prefix + "/", ""))
    looked_at = 0
    for holders, queue in chain(own, below):
        if looked_at >= limits.LIST_ROWS_MAX:
            return LeftView(len(holds), len(waits), is_all=False)
        looked_at += 1 + len(holders) + len(queue)
        holds.update([hold.hold_id for hold in holders])
        waits.update([ticket.hold_id for ticket in queue])
    return LeftView(len(holds), len(waits))


def freezes(state: State, prefix: str, after: str, limit: int) -> Page[FreezeView]:
    """Return a page of frozen prefixes, of those that begin with `prefix`."""
    limit = min(max(limit, 1), limits.LIST_LIMIT_MAX)
    names = state.freezes.in_order
    start = max(bisect_left(names, prefix), bisect_right(names, after))
    found = [one for one in names[start : start + limit + 1] if one.startswith(prefix)]
    rows = [_view(state, one, None) for one in found[:limit]]
    return rows, rows[-1].name if len(found) > limit else None


def freeze(state: State, prefix: str) -> FreezeView:
    """Return the freeze of a prefix, if it has one of its own, and what is left below it."""
    return _view(state, prefix, left_below(state, prefix))


def ends_in_ms(state: State, found: FrozenPrefix) -> int | None:
    """Return when a freeze ends by itself, None if it does not."""
    return max(found.expires_at_ms - state.now_ms, 0) if found.expires_at_ms else None


def _view(state: State, prefix: str, left: LeftView | None) -> FreezeView:
    found = state.freezes.get(prefix)
    if found is None:
        return FreezeView(prefix, is_frozen=False, left=left)
    lasted_ms = state.now_ms - found.since_ms
    return FreezeView(prefix, True, found.reason, lasted_ms, ends_in_ms(state, found), left)
