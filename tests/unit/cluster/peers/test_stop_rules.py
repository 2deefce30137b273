"""When a node stops because it is not let in: all combinations of what counts, against the rules in words."""

from itertools import product

import pytest

from cluster.peers.handshake import Objection
from cluster.peers.objections import Kind
from cluster.peers.stop_rules import WORD_S_MAX, Objections, Situation, Stop, decide

FIVE = ("n1", "n2", "n3", "n4", "n5")
REFUSERS = ((), ("n2",), ("n2", "n3"), ("n2", "n3", "n4"), ("n2", "n3", "n4", "n5"))


def situation(
    kind: str = Kind.OTHER_DISK,
    *,
    voters: tuple[str, ...] = FIVE,
    refusers: tuple[str, ...] = REFUSERS[-1],
    is_leader_heard: bool = False,
    is_let_in: bool = False,
    is_joining_empty: bool = False,
    leader_id: str | None = None,
) -> Situation:
    """Return the situation of n1, refused by all, unless told otherwise."""
    return Situation(
        kind=kind,
        is_leader_heard=is_leader_heard,
        is_let_in=is_let_in,
        is_joining_empty=is_joining_empty,
        node_id="n1",
        leader_id=leader_id,
        voters=voters,
        refusers=refusers,
    )


@pytest.mark.parametrize("kind", [*Kind, "", "of a later release"])
def test_all_combinations(kind: str) -> None:
    """The table of the module: what stops, what is remembered, and by how many it must be said."""
    either = (False, True)
    for refusers, is_leader_heard, is_let_in, is_joining_empty in product(REFUSERS, either, either, either):
        stop = decide(
            situation(
                kind,
                refusers=refusers,
                is_leader_heard=is_leader_heard,
                is_let_in=is_let_in,
                is_joining_empty=is_joining_empty,
            )
        )
        is_many = len(refusers) >= 3
        if is_leader_heard or not refusers:
            expected = Stop.NO
        elif kind == "removed" or (kind == "other-disk" and is_many and not (is_let_in or is_joining_empty)):
            expected = Stop.STOP_AND_REMEMBER
        elif kind == "other-cluster" and is_many and not is_let_in:
            expected = Stop.STOP
        else:
            expected = Stop.NO
        assert stop is expected, (refusers, is_leader_heard, is_let_in, is_joining_empty)


@pytest.mark.parametrize(
    ("voters_count", "enough_count"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3), (7, 4)]
)
def test_a_majority_without_the_refusers_keeps_a_node_alive(voters_count: int, enough_count: int) -> None:
    """So many must refuse a node that no majority is left without them."""
    voters = tuple(f"n{number}" for number in range(1, voters_count + 1))
    others = (*voters[1:], "n8")
    for count in range(1, voters_count):
        stop = decide(situation(voters=voters, refusers=others[:count]))
        assert (stop is Stop.STOP_AND_REMEMBER) == (count >= enough_count), count


@pytest.mark.parametrize("kind", Kind)
def test_the_leaders_word_counts_at_once_for_a_removal_only(kind: str) -> None:
    """Who was removed hears it of the leader that did it, and keeps no client waiting."""
    told = situation(kind, refusers=("n3",), leader_id="n3", is_leader_heard=True, is_let_in=True)
    assert (decide(told) is Stop.STOP_AND_REMEMBER) == (kind == Kind.REMOVED)
    told = situation(kind, refusers=("n3",), leader_id="n2", is_leader_heard=True, is_let_in=True)
    assert decide(told) is Stop.NO


def test_refusers_that_have_no_vote_do_not_count() -> None:
    """Strangers, and nodes that are only joining, cannot outvote the members."""
    assert decide(situation(voters=("n1", "n2", "n3"), refusers=("n7", "n8", "n9"))) is Stop.NO


def test_a_node_that_votes_for_nobody_yet_is_refused_by_all_it_knows() -> None:
    """One that joins is not among the voters: a majority of them without it must refuse it."""
    joining = {"voters": ("n2", "n3", "n4"), "kind": Kind.OTHER_CLUSTER}
    assert decide(situation(refusers=("n2",), **joining)) is Stop.NO  # type: ignore[arg-type]
    assert decide(situation(refusers=("n2", "n3"), **joining)) is Stop.STOP  # type: ignore[arg-type]


def verdict(
    refusals: Objections, *, let_in_by: tuple[str, ...] = (), is_leader_heard: bool = False
) -> object:
    """Return what becomes of n1 of three."""
    got = refusals.verdict(
        node_id="n1",
        is_leader_heard=is_leader_heard,
        let_in_by=let_in_by,
        is_joining_empty=False,
        voters=("n1", "n2", "n3"),
    )
    return (got.stop, got.reason)


def test_what_is_said_at_present_counts() -> None:
    """A peer has one word, its last; one that lets this node in has none; an old one is forgotten."""
    refusals = Objections()
    assert verdict(refusals) == (Stop.NO, "")
    refusals.add("n2", Objection("a", kind=Kind.OTHER_DISK), 0.0)
    refusals.add("n3", Objection("a", kind=Kind.NOT_A_MEMBER), 0.0)
    assert verdict(refusals) == (Stop.NO, "")
    refusals.add("n3", Objection("b", kind=Kind.OTHER_DISK), 5.0)
    assert verdict(refusals) == (Stop.STOP_AND_REMEMBER, "refused by n2, n3: b")
    assert verdict(refusals, is_leader_heard=True) == (Stop.NO, "")
    assert verdict(refusals, let_in_by=("n4",)) == (Stop.NO, "")
    assert verdict(refusals, let_in_by=("n2",))[0] is Stop.STOP_AND_REMEMBER  # type: ignore[index]
    refusals.keep(("n2", "n3"), WORD_S_MAX + 1)
    assert len(refusals) == 1
    refusals.forget("n3")
    assert verdict(refusals) == (Stop.NO, "")


def test_only_peers_are_remembered_but_for_a_removal() -> None:
    """What strangers say is forgotten; who was removed is told by nodes that it does not know."""
    refusals = Objections()
    refusals.add("n8", Objection("a", kind=Kind.OTHER_CLUSTER), 0.0)
    refusals.add("n9", Objection("b", is_final=True, kind=Kind.REMOVED), 0.0)
    refusals.keep(("n2",), 1000.0)
    assert verdict(refusals) == (Stop.STOP_AND_REMEMBER, "refused by n9: b")


def test_the_gravest_counts() -> None:
    """A removal is given as the reason before a wrong cluster."""
    refusals = Objections()
    for peer_id in ("n2", "n3"):
        refusals.add(peer_id, Objection("b", kind=Kind.OTHER_CLUSTER), 0.0)
    assert verdict(refusals) == (Stop.STOP, "refused by n2, n3: b")
    refusals.add("n8", Objection("a", is_final=True, kind=Kind.REMOVED), 0.0)
    assert verdict(refusals) == (Stop.STOP_AND_REMEMBER, "refused by n8: a")
