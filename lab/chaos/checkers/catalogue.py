"""All checkers by name: each takes a history and returns what must not be, nothing when all is well."""

from collections.abc import Callable

from lab.chaos.checkers import (
    audit,
    endings,
    intervals,
    late,
    linearizability,
    outcomes,
    queues,
    rates,
    registers,
    sessions,
    tokens,
    watches,
)
from lab.chaos.checkers.violation import Violation
from lab.chaos.history import History

Checker = Callable[[History], list[Violation]]

CHECKERS: dict[str, Checker] = {
    "overlap": intervals.overlaps,
    "early-lease": intervals.early_leases,
    "late": late.late,
    "revived": intervals.revived,
    "tokens": tokens.tokens_in_real_time,
    "unique-tokens": tokens.tokens_are_unique,
    "fences": tokens.fences,
    "not-applied": outcomes.not_applied,
    "one-outcome": outcomes.one_outcome,
    "final-holds": endings.final_holds,
    "equal-nodes": endings.equal_nodes,
    "witnessed": endings.witnessed,
    "queue-order": queues.queue_order,
    "queue-reads": queues.queue_reads,
    "watch": watches.watches,
    "rates": rates.rate_windows,
    "sessions": sessions.sessions,
    "lost-update": registers.fenced_register,
    "audit": audit.audited,
    "linearizability": linearizability.linearizable,
}


def check_all(history: History) -> list[Violation]:
    """Return what all checkers object to, in order of time."""
    found = [violation for checker in CHECKERS.values() for violation in checker(history)]
    return sorted(found, key=lambda violation: violation.at_ns)
