"""What must be true at every revision: one function for each sentence.

Tests and checkers call this; a node at work never does.
"""

from lockstate.invariants import holds, queues, tables, usage
from lockstate.tables.state import State

SENTENCES = (
    holds.holders_are_compatible,
    holds.permits_are_counted,
    holds.tokens_are_unique_and_given_out,
    queues.nobody_waits_in_vain,
    holds.tables_agree,
    usage.principals_are_counted,
    usage.namespaces_are_counted,
    holds.claims_are_counted,
    queues.queues_are_right,
    holds.what_few_have_is_rare,
    queues.priorities_are_of_tickets,
    queues.permits_are_queued_for_in_order,
    holds.crowds_find_what_a_walk_finds,
    holds.several_kinds_are_of_locks,
    tables.idle_things_are_forgotten,
    tables.everything_timed_is_scheduled,
    tables.cells_are_in_order,
    tables.places_are_to_come,
    tables.streams_are_right,
    holds.pleas_are_of_holds,
    tables.freezes_are_of_prefixes,
    holds.values_are_of_holds,
    tables.the_fingerprint_is_kept_up,
    tables.the_bytes_are_counted,
)


def check(state: State) -> None:
    """Check every sentence; raise AssertionError naming the first that does not hold."""
    for sentence in SENTENCES:
        sentence(state)
