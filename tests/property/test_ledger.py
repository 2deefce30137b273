"""The ledger against the records themselves: when the sums are made up makes no difference to anything.

The fingerprint and the bytes of a state are those of its records, recomputed one by one, whether somebody
asks after each entry, now and then or only in the end. So are the refusals of a state that is full.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Final
from unittest.mock import patch

import pytest

from lockstate import machine
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.tables import budget, fingerprint, ledger
from lockstate.tables.state import State
from lockstate.words import codec, limits
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Result
from tests.property import test_totality
from tests.property.test_totality import History

SEEDS: Final = range(40)
ENTRIES: Final = 60
ENTRIES_MAX: Final = 600
"""Entries of a history; it goes on until the bound was reached, but not for ever."""
BYTES_MAX: Final = 12_000
GROWTH_MAX: Final = 2_000
"""A bound that histories reach, and a growth that many entries exceed."""
NOTED_BYTES_MAX: Final = 3_000
"""More than a record of these histories takes, with all that comes with it."""
SHALLOW_NAMES: Final = [name for name in test_totality.ODD_NAMES if name.count("/") < 10]
"""Odd names without those of which one hold alone would take more."""


def _is_near(state: State) -> bool:
    """Whether a state is near to its bound, from its records."""
    bytes_count = budget.recounted(state)
    return bytes_count + limits.STATE_GROWTH_MAX > state.bytes_max


@contextmanager
def _small(noted_max: int) -> Iterator[None]:
    """Bound the ledger and the state so that both bounds are reached, and check each time if they are."""
    begin_entry = budget.begin_entry

    def begin_and_check(state: State) -> None:
        begin_entry(state)
        assert state.is_tight == _is_near(state), "a state is near to its bound, whatever was made up"

    with ExitStack() as stack:
        for module in (ledger, budget, machine):
            stack.enter_context(patch.object(module, "NOTED_MAX", noted_max))
        stack.enter_context(patch.object(budget, "_NOTED_BYTES_MAX", NOTED_BYTES_MAX))
        stack.enter_context(patch.object(test_totality, "ODD_NAMES", SHALLOW_NAMES))
        stack.enter_context(patch.object(limits, "STATE_GROWTH_MAX", GROWTH_MAX))
        stack.enter_context(patch.object(limits, "STATE_BYTES_MAX", BYTES_MAX))
        stack.enter_context(patch.object(budget, "begin_entry", begin_and_check))
        yield


def _is_overloaded(result: Result) -> bool:
    return isinstance(result, Refused) and result.reason is Reason.OVERLOADED


def _noted_count(one: LockMachine) -> int:
    state = one.state
    return max(
        len(state.ledger.noted),
        len(state.deadlines.noted),
        len(state.semaphore_values.noted),
        len(state.fence_values.noted),
    )


@pytest.mark.parametrize("noted_max", [1, 5, ledger.NOTED_MAX])
@pytest.mark.parametrize("seed", SEEDS)
def test_it_makes_no_difference_when_the_sums_are_made_up(seed: int, noted_max: int) -> None:
    """Three nodes with one log, that ask always, now and then and never, refuse the same and agree."""
    rng = Random(seed)
    with _small(noted_max):
        always, at_times, never = (LockMachine() for _ in range(3))
        history = History(seed, always)
        refused_count = 0
        for number in range(ENTRIES_MAX):
            if number >= ENTRIES and refused_count:
                break
            entry = codec.decode_entry(history.entry())
            outcome = always.apply(entry)
            assert at_times.apply(entry) == outcome
            assert never.apply(entry) == outcome
            assert _noted_count(never) <= noted_max
            expected = fingerprint.recomputed(always.state)
            assert always.fingerprint == expected
            assert always.bytes_count == budget.recounted(always.state)
            if rng.randrange(5) == 0:
                assert at_times.bytes_count == always.bytes_count
                assert at_times.fingerprint == expected
            assert fingerprint.recomputed(never.state) == expected
            results = [result for batch in outcome.batches for result in batch.results]
            refused_count += len([result for result in results if _is_overloaded(result)])
        assert never.fingerprint == at_times.fingerprint == always.fingerprint
        assert never.bytes_count == always.bytes_count
        assert snapshot.encode(never.state) == snapshot.encode(always.state)
        restored = LockMachine(snapshot.decode(snapshot.encode(never.state)))
        assert _noted_count(restored) <= noted_max
        assert restored.fingerprint == never.fingerprint
        assert refused_count, "the bound was reached"
