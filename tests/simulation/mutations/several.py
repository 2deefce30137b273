"""Defects of several kinds at once: of their queues, of what they free, and of the rates taken with them."""

from collections.abc import Iterator
from typing import Final

from lockstate.rules.effects import Effects
from lockstate.rules.holds import changes, grants, waiting
from lockstate.tables import holds, queues
from lockstate.tables.claim_table import Freed
from lockstate.tables.records import Hold, Semaphore, Ticket, permits_in
from lockstate.tables.state import State
from lockstate.words.refusals import Refused
from lockstate.words.results import RateUsed
from lockstate.words.wanted import Wanted, WantedRate
from tests.simulation.mutations.mutation import Mutation, Surroundings, many_snapshots, replaced, together
from tests.simulation.workload.full_vocabulary import FullVocabulary

_ASKED: Final = Surroundings(minutes=2, client_settings={"vocabulary_share": 0.9, "think_s": 0.15})
_IN_PARTS: Final = Surroundings(
    minutes=2,
    client_settings={
        "vocabulary_share": 0.9,
        "hand_overs_share": 0.2,
        "think_s": 0.15,
        "names": ("n0", "n1", "n2"),
        "wait_ms": (5_000, 20_000),
    },
    around=together(many_snapshots, replaced(FullVocabulary, "hand_over", FullVocabulary._release_part)),
)
"""Few names, somebody waits for each of them, and parts of several are given back instead of handed over."""


def _overtaking(semaphore: Semaphore) -> Iterator[Ticket]:
    """Go on behind one that something else is in the way of."""
    for ticket in list(semaphore.queue.values()):
        permits = dict(permits_in(ticket))[semaphore.name]
        if semaphore.used + permits <= semaphore.limit:
            yield ticket


def _permits_suffice(state: State, ticket: Ticket) -> bool:
    """Take no notice of who stands before it, as long as there are permits."""
    return all(
        state.semaphores[name].used + count <= state.semaphores[name].limit
        for name, count in permits_in(ticket)
    )


def _lock_suffices(state: State, ticket: Ticket) -> bool:
    """Let one through whose locks are free, whether or not there are the permits."""
    del state, ticket
    return True


def _leave_those_behind(effects: Effects, ticket: Ticket, claims: tuple[tuple[str, int], ...]) -> Freed:
    """Look at nobody that stood behind one that goes."""
    _let_several_through(effects, ticket, claims)
    return []


_let_several_through = waiting._let_several_through


def _take_none(
    state: State, by: Hold | Ticket, wanted: tuple[WantedRate, ...], wait_ms: int
) -> tuple[int, tuple[RateUsed, ...]] | Refused:
    """Grant without a place of any rate limit."""
    del by, wait_ms
    return state.now_ms, tuple([RateUsed(one.name, one.limit, 0) for one in wanted])


def _keep_permits(state: State, hold: Hold) -> Freed:
    """Forget to look at who waits for the permits that come back with a hold of several kinds."""
    freed = _give_back_permits(state, hold)
    return [] if hold.is_of_kinds else freed


_give_back_permits = holds._give_back_permits


def _give_up_for_nobody(
    effects: Effects, hold: Hold, gone: tuple[Wanted, ...], kept: tuple[Wanted, ...]
) -> Freed:
    """Take a part of several locks back, and let nobody have it that waits for it."""
    _give_up(effects, hold, gone, kept)
    return []


_give_up = changes.give_up

SEVERAL: Final = (
    Mutation(
        name="semaphore-overtaken-behind-several",
        sentence="Those behind a ticket of several kinds in a semaphore's queue go before it.",
        found_by=("first-come", "reply", "model-state", "model-events"),
        apply=replaced(queues, "_fitting", _overtaking),
        surroundings=_ASKED,
    ),
    Mutation(
        name="several-overtake-in-a-semaphore",
        sentence="A ticket of several kinds goes before those that stand before it for permits.",
        found_by=("first-come", "reply", "model-state", "model-events"),
        apply=replaced(queues, "_are_permits_there", _permits_suffice),
        surroundings=_ASKED,
    ),
    Mutation(
        name="several-without-permits",
        sentence="A ticket of several kinds is granted as soon as its locks are free.",
        found_by=("permits-limit", "exclusion", "reply", "model-state", "model-events"),
        apply=replaced(queues, "_are_permits_there", _lock_suffices),
        surroundings=_ASKED,
    ),
    Mutation(
        name="nobody-follows-several",
        sentence="Waiters behind a ticket of several kinds are not looked at when it is granted.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(waiting, "_let_several_through", _leave_those_behind),
        surroundings=_ASKED,
    ),
    Mutation(
        name="permits-of-several-free-nobody",
        sentence="The permits of a hold of several kinds come back, and no waiter gets them.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(holds, "_give_back_permits", _keep_permits),
        surroundings=_ASKED,
    ),
    Mutation(
        name="several-without-rates",
        sentence="Several kinds are granted, and nothing is taken from the rate limits among them.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(grants, "take_rates", _take_none),
        surroundings=_ASKED,
    ),
    Mutation(
        name="part-given-back-frees-nobody",
        sentence="Waiters do not get the one of several locks that is given back.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(changes, "give_up", _give_up_for_nobody),
        surroundings=_IN_PARTS,
    ),
)
