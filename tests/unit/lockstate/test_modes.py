"""Which modes go together."""

from itertools import product

from lockstate.modes import ALL_MODES, COMPATIBLE, NONE, Mode, counted, passable


def test_compatibility_is_symmetric() -> None:
    """If one mode lets another pass, the other lets it pass as well."""
    for one, other in product(Mode, Mode):
        assert (other in COMPATIBLE[one]) == (one in COMPATIBLE[other])


def test_only_shared_goes_with_shared() -> None:
    """Shared holders stand each other, exclusive stands nobody."""
    pairs = {(one, other) for one, other in product(Mode, Mode) if other in COMPATIBLE[one]}
    assert pairs == {(Mode.SHARED, Mode.SHARED)}


def test_everything_passes_nothing() -> None:
    """Where nobody stands in the way, every mode passes."""
    shared = counted(NONE, Mode.SHARED, 2)
    assert passable(NONE) == ALL_MODES
    assert passable(shared) == {Mode.SHARED}
    assert passable(counted(shared, Mode.EXCLUSIVE, 1)) == frozenset()
    assert counted(shared, Mode.SHARED, -2) == NONE
