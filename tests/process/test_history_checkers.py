"""The checkers find what they are for: a checker that never objects proves nothing."""

from tests.process import history_checkers
from tests.process.history_checkers import FAILED, GRANTED, RELEASED, Operation


def granted(
    token: int, started_s: float, ended_s: float, *, name: str = "a", valid_until_s: float = 100.0
) -> Operation:
    """Return an acquire that was granted."""
    return Operation(
        client=1,
        kind="acquire",
        name=name,
        started_s=started_s,
        ended_s=ended_s,
        outcomes=(GRANTED,),
        token=token,
        hold_id=f"hold-{token}",
        valid_until_s=valid_until_s,
    )


def let_go(token: int, started_s: float, ended_s: float, *, name: str = "a", known: bool = True) -> Operation:
    """Return a release, acknowledged or still under way."""
    return Operation(
        client=1,
        kind="release",
        name=name,
        started_s=started_s,
        ended_s=ended_s,
        outcomes=(RELEASED,) if known else (),
        token=token,
        hold_id=f"hold-{token}",
    )


def test_good_history() -> None:
    """A history of grants and releases that follow each other is free of violations."""
    good = [granted(1, 0, 1), let_go(1, 2, 3), granted(2, 2.5, 4), granted(3, 2, 5, name="b")]
    assert not history_checkers.violations(good)
    assert not history_checkers.errors(good)


def test_token_falls() -> None:
    """A smaller token asked for after a greater one was known is found; concurrent grants are free."""
    assert history_checkers.tokens_that_fall([granted(2, 0, 1), granted(1, 2, 3, name="b")])
    assert not history_checkers.tokens_that_fall([granted(2, 0, 3), granted(1, 2, 4, name="b")])


def test_token_given_twice() -> None:
    """A token that two grants share is found, even if they were concurrent."""
    assert history_checkers.tokens_that_fall([granted(1, 0, 3), granted(1, 0, 3, name="b")])


def test_grants_overlap() -> None:
    """A grant during another's validity is found; not after a release was sent or the lease ended."""
    first = granted(1, 0, 1, valid_until_s=10)
    assert history_checkers.overlapping_grants([first, granted(2, 2, 3)])
    assert not history_checkers.overlapping_grants([first, granted(2, 2, 10)])
    assert not history_checkers.overlapping_grants([first, let_go(1, 2, 9), granted(2, 2, 3)])
    assert not history_checkers.overlapping_grants([first, granted(2, 2, 3, name="b")])


def test_outcomes() -> None:
    """A request without an outcome, or with two, is found, and so is an error."""
    silent, twice, failed = (granted(token, 0, 1) for token in (1, 2, 3))
    silent.outcomes, twice.outcomes, failed.outcomes = (), (GRANTED, FAILED), (FAILED,)
    assert len(history_checkers.many_outcomes([silent, twice, failed])) == 2
    assert len(history_checkers.errors([failed, granted(4, 0, 1)])) == 1


def test_lost_and_revived() -> None:
    """A grant whose holder is another now, or nobody, is lost; a hold behind its own release is revived."""
    kept, gone = granted(1, 0, 1), granted(2, 0, 1, name="b")
    assert len(history_checkers.lost_grants([kept, gone], {"a": 1, "b": 3})) == 1
    assert len(history_checkers.lost_grants([kept, gone], {"a": 1})) == 1
    assert history_checkers.revived_holds({"a": 5}, {"a": 5})
    assert not history_checkers.revived_holds({"a": 5}, {"a": 6, "b": 1})


def test_still_held() -> None:
    """A lock is surely held only while nobody has tried to release its newest grant."""
    told = [granted(1, 0, 1), granted(2, 0, 1, name="b"), let_go(2, 2, 3, name="b", known=False)]
    assert history_checkers.still_held(told) == {"a": told[0]}
    assert history_checkers.released([*told, let_go(1, 4, 5)]) == {"a": 1}


def test_longest_gap() -> None:
    """The longest gap counts from the beginning and up to the end of the time looked at."""
    told = [granted(1, 0, 2), granted(2, 0, 3)]
    assert history_checkers.longest_gap_s(told, 1, 4) == 1
    assert history_checkers.longest_gap_s(told, 1, 9) == 6
    assert history_checkers.longest_gap_s([], 1, 9) == 8
