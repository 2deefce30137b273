"""The search accepts exactly the histories for which trying all orders finds one."""

import itertools
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from lab.chaos.checkers.models import (
    Busy,
    End,
    Ghost,
    Gone,
    Grant,
    Held,
    LockModel,
    Seen,
    SemaphoreModel,
    Vanish,
)
from lab.chaos.checkers.search import Call, Model, Search
from lab.chaos.checkers.value_models import Advance, Differs, Exchange, FenceModel, Read, RegisterModel, Write
from tests.unit.lab.chaos.brute_force import has_order

KEYS = ("h1", "h2", "h3")
MODELS: dict[str, Model[Any]] = {
    "lock": LockModel(),
    "lock without waits": LockModel(has_waits=False),
    "semaphore": SemaphoreModel(2, has_waits=False),
    "fence": FenceModel(),
    "register": RegisterModel(),
}
LOCK_KINDS = ("lock", "lock without waits", "semaphore")
MODES = st.sampled_from(["exclusive", "shared", "update", "concurrent-read", "concurrent-write"])
LOCK_ACTIONS = st.one_of(
    st.builds(
        Grant,
        st.sampled_from(KEYS),
        MODES,
        st.integers(1, 2),
        st.one_of(st.none(), st.integers(1, 4)),
    ),
    st.builds(
        Busy,
        st.sampled_from(["exclusive", "shared"]),
        st.integers(1, 2),
        st.one_of(st.just(frozenset()), st.frozensets(st.integers(1, 4), max_size=1)),
    ),
    st.builds(End, st.sampled_from(KEYS), st.sampled_from(["", "exclusive", "shared"])),
    *(st.builds(kind, st.sampled_from(KEYS)) for kind in (End, Held, Gone)),
    st.builds(Seen, st.frozensets(st.integers(1, 4), max_size=2)),
)
FENCE_ACTIONS = st.builds(
    Advance, st.integers(0, 3), is_accepted=st.booleans(), highest=st.one_of(st.none(), st.integers(0, 3))
)
VALUES = st.integers(0, 2)
REGISTER_ACTIONS = st.one_of(
    *(st.builds(kind, VALUES) for kind in (Read, Write, Differs)), st.builds(Exchange, VALUES, VALUES)
)


def actions_of(kind: str) -> st.SearchStrategy[Any]:
    """Return what may be asked of a kind of thing."""
    return {"fence": FENCE_ACTIONS, "register": REGISTER_ACTIONS}.get(kind, LOCK_ACTIONS)


def verdict(model: Model[Any], calls: list[Call]) -> str:
    """Search."""
    return Search(model).run(calls).verdict


@st.composite
def any_calls(draw: st.DrawFn, kind: str) -> list[Call]:
    """Return operations with arbitrary answers at arbitrary times."""
    calls = []
    for number in range(draw(st.integers(1, 7))):
        call_ns = draw(st.integers(0, 20))
        lasts_ns = draw(st.one_of(st.none(), st.integers(0, 12)))
        return_ns = None if lasts_ns is None else call_ns + lasts_ns
        calls.append(Call(number, call_ns, return_ns, draw(actions_of(kind))))
    return calls


@st.composite
def right_calls(draw: st.DrawFn, kind: str) -> list[Call]:
    """Return what clients of a correct service see: each happens once, answers come late or never."""
    model = MODELS[kind]
    state = model.initial
    calls: list[Call] = []
    for moment_ns in itertools.count(0, 10):
        if len(calls) == 7 or moment_ns > 200:
            return calls
        action = draw(actions_of(kind))
        after = model.step(state, action)
        if after is None:
            continue
        state = after
        call_ns = moment_ns - draw(st.integers(0, 25))
        lasts_ns = draw(st.integers(0, 25))
        return_ns = None if draw(st.integers(0, 4)) == 0 else moment_ns + lasts_ns
        calls.append(Call(len(calls), call_ns, return_ns, action))
    raise AssertionError("the count has no end")


@pytest.mark.parametrize("kind", MODELS)
@given(data=st.data())
def test_any_history(kind: str, data: st.DataObject) -> None:
    """The verdict on an arbitrary history is that of trying all orders."""
    calls = data.draw(any_calls(kind))
    expected = "yes" if has_order(MODELS[kind], calls) else "no"
    event(expected)
    assert verdict(MODELS[kind], calls) == expected


@pytest.mark.parametrize("kind", MODELS)
@given(data=st.data())
def test_right_history(kind: str, data: st.DataObject) -> None:
    """What a correct service answers, however late, is accepted."""
    assert verdict(MODELS[kind], data.draw(right_calls(kind))) == "yes"


@pytest.mark.parametrize("kind", MODELS)
@given(data=st.data())
def test_planted_mistake(kind: str, data: st.DataObject) -> None:
    """A right history with one other answer is rejected exactly if no order explains it."""
    calls = data.draw(right_calls(kind).filter(bool))
    place = data.draw(st.integers(0, len(calls) - 1))
    calls[place] = calls[place]._replace(action=data.draw(actions_of(kind)))
    expected = "yes" if has_order(MODELS[kind], calls) else "no"
    event(expected)
    assert verdict(MODELS[kind], calls) == expected


@pytest.mark.parametrize("kind", LOCK_KINDS)
@given(data=st.data())
def test_ghosts(kind: str, data: st.DataObject) -> None:
    """Grants that no client knows of count as often as there are requests, and end at any time.

    Those who try all orders give each of them a hold of its own, and an end of its own.
    """
    calls = data.draw(any_calls(kind))[:5]
    by_themselves, one_by_one = list(calls), list(calls)
    ids = itertools.count(100)
    ghosts = data.draw(st.lists(st.builds(Ghost, MODES, st.integers(1, 2)), min_size=1, max_size=2))
    for ghost in {*ghosts}:
        vanish = Vanish(ghost.mode, ghost.permits)
        by_themselves.append(Call(next(ids), -100, None, vanish, is_repeated=True))
    for ghost in ghosts:
        call_ns = data.draw(st.integers(0, 20))
        by_themselves.append(Call(next(ids), call_ns, None, ghost, twin=ghost))
        grant = Grant(f"ghost-{next(ids)}", ghost.mode, ghost.permits, None)
        one_by_one.append(Call(next(ids), call_ns, None, grant))
        one_by_one.append(Call(next(ids), call_ns, None, End(grant.key, grant.mode)))
    expected = "yes" if has_order(MODELS[kind], one_by_one) else "no"
    event(expected)
    assert verdict(MODELS[kind], by_themselves) == expected


def test_only_a_search_finds_this() -> None:
    """No two operations contradict each other, and there is no order all the same.

    Two exchanges of 0 succeed, with one reset that must stand between them: so the reset is never the last,
    and of the two values only one is there in the end.
    """
    calls: list[Call] = [
        Call(1, 0, 100, Exchange(0, 1)),
        Call(2, 0, 100, Exchange(0, 2)),
        Call(3, 0, 100, Write(0)),
    ]
    assert verdict(RegisterModel(), calls) == "yes"
    assert verdict(RegisterModel(), [*calls, Call(4, 101, 110, Read(0))]) == "no"
    assert verdict(RegisterModel(), [*calls, Call(4, 101, 110, Read(2))]) == "yes"
    both = [Call(4, 101, 110, Read(1)), Call(5, 111, 120, Read(2))]
    assert verdict(RegisterModel(), [*calls, *both]) == "no"


def test_three_clients_and_one_free_moment() -> None:
    """Every pair of these grants has room beside the others, but not all three.

    The lock is free once in the time of all three, and each of them needs a moment of it.
    """
    grants = [Call(number, 0, 50, Grant(f"h{number}", token=number)) for number in (1, 2, 3)]
    ends = [Call(10 + number, 10, 50, End(f"h{number}")) for number in (1, 2)]
    assert verdict(LockModel(), [*grants, *ends]) == "yes"
    assert verdict(LockModel(), [*grants, *ends, Call(20, 51, 60, Held("h3"))]) == "yes"
    assert verdict(LockModel(), [*grants, ends[0], Call(20, 51, 60, Held("h3"))]) == "no"
    assert verdict(LockModel(), [*grants, ends[1], Call(12, 51, 60, Held("h2"))]) == "no"


@pytest.mark.parametrize("mode", ["exclusive", "shared"])
def test_many_unknown_operations_are_decided(mode: str) -> None:
    """Hundreds of requests without an outcome, each of which may have been granted or not: no explosion.

    Refusals may be right because of one of them, and leases may end long before that is heard of.
    """
    ids = itertools.count(1)
    ghosts = {each: Ghost(each) for each in ("exclusive", "shared", "update")}
    calls = [Call(next(ids), -1, None, Vanish(each), is_repeated=True) for each in ghosts]
    for number in range(300):
        at_ns = 10 * number
        ghost = ghosts["exclusive"] if number % 5 == 0 else ghosts["shared"]
        calls.append(Call(next(ids), at_ns, None, ghost, twin=ghost))
        calls.append(Call(next(ids), at_ns, at_ns + 2, Busy()))
        hold = Grant(f"h{number}", mode, token=number + 1)
        calls.append(Call(next(ids), at_ns, at_ns + 9, hold))
        is_heard_of = number % 50 > 0
        calls.append(Call(next(ids), at_ns + 3, at_ns + 32 if is_heard_of else None, End(hold.key, mode)))
    answer = Search(LockModel(has_waits=False)).run(calls)
    assert answer.verdict == "yes"
    assert answer.work < 10 * len(calls)
    calls.append(Call(next(ids), 4000, 4001, Grant("last", token=1000)))
    calls.append(Call(next(ids), 4002, 4003, Seen(frozenset({999, 1000}))))
    assert verdict(LockModel(has_waits=False), calls) == "no"


def test_a_search_that_is_given_up_says_so() -> None:
    """At the bound on work the answer is neither yes nor no."""
    calls = [Call(number, 0, 100, Write(number)) for number in range(12)]
    assert Search(RegisterModel(), work_max=50).run(calls).verdict == "undecided"
