"""How the cluster of a directory began, and which configurations it is started with."""

from collections.abc import Collection

import pytest

from cluster.consensus import member_list
from cluster.consensus.beginning import (
    EARLIER,
    JOINS,
    Beginning,
    Configured,
    beginning_of,
    contradiction,
    listed_members,
    met_founders,
)
from cluster.consensus.member_list import Members
from cluster.storage.cluster_record import ClusterRecord, Founder, Founding

FOUNDING = Founding("c1", {f"n{n}": Founder(f"h:{n}", f"disk-{n}") for n in (1, 2, 3)})
FOUNDED = member_list.founded(FOUNDING)
COMPLETE = ClusterRecord(cluster_id="c1", founding=FOUNDING, is_complete=True)
PEERS = {"n1": "h:1", "n2": "h:2", "n3": "h:3"}


def grown() -> Members:
    """Return the list after n3 was replaced by n4."""
    learning = member_list.with_learner(FOUNDED, "n4", "h:4")
    added = member_list.promoted(learning, "n4", "disk-4")
    return member_list.without(added, "n3", "disk-3", added.nodes)


# -- how it began -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "situation", "beginning"),
    [
        (ClusterRecord(), "new", Beginning()),
        (ClusterRecord(founding=FOUNDING), "new", Beginning()),
        (COMPLETE, "new", Beginning(founded=FOUNDED)),
        (COMPLETE, "in use", Beginning(founded=FOUNDED)),
        (ClusterRecord(), "in use", Beginning(member_list.founders(PEERS), objection=EARLIER)),
        (ClusterRecord(cluster_id="c1"), "in use", Beginning(objection=EARLIER)),
        (ClusterRecord(), "joins", Beginning(objection=JOINS)),
        (ClusterRecord(cluster_id="c1"), "joins, in use", Beginning(objection=JOINS)),
    ],
)
def test_how_a_cluster_began(record: ClusterRecord, situation: str, beginning: Beginning) -> None:
    """Only a directory that was in use without a cluster id takes its members from the configuration."""
    joins, is_in_use = "joins" in situation, "in use" in situation
    assert beginning_of(record, PEERS, joins=joins, is_in_use=is_in_use) == beginning
    assert beginning.joins == joins


def test_the_members_that_a_directory_knows() -> None:
    """The list in the log, the founding that is stored, or the disks that an earlier release has met."""
    met, first = member_list.founders({"n1": "-", "n2": "-"}), member_list.founders(PEERS)
    assert listed_members(ClusterRecord(), Members(), Beginning(), Members()) == Members()
    assert listed_members(ClusterRecord(), Members(), Beginning(), met) == met
    assert listed_members(ClusterRecord(founding=FOUNDING), Members(), Beginning(), met) == FOUNDED
    assert listed_members(ClusterRecord(), grown(), Beginning(), met) == grown()
    assert listed_members(ClusterRecord(), first, Beginning(first), met) == met


@pytest.mark.parametrize(
    ("known", "configured", "has_log", "met"),
    [
        ("", "1", False, []),
        ("", "123", True, ["n1"]),
        ("2", "123", False, []),
        ("23", "123", False, []),
        ("23", "123", True, ["n1", "n2", "n3"]),
        ("23", "1", False, ["n1", "n2", "n3"]),
        ("23", "", False, ["n1", "n2", "n3"]),
        ("2", "13", False, ["n1", "n2"]),
    ],
)
def test_whom_a_directory_of_an_earlier_release_has_met(
    known: str,
    configured: str,
    has_log: bool,  # noqa: FBT001 - pytest gives it by name
    met: list[str],
) -> None:
    """All founders with a log; before that, none may be left out who was met. Who joins knows none."""
    ids, peers = [f"n{n}" for n in known], [f"n{n}" for n in configured]
    assert met_founders("n1", ids, peers, joins=False, has_log=has_log) == met
    assert met_founders("n1", ids, peers, joins=True, has_log=has_log) == []


# -- what it may be started with ----------------------------------------------------------------------------


def wrong(
    ids: str,
    members: Members = FOUNDED,
    *,
    founders: Collection[str] = tuple(PEERS),
    joins: bool = False,
    has_list: bool = True,
) -> str:
    """Return what is wrong with these ids in `peers`, one digit each, on n1."""
    peers = {f"n{n}": f"h:{n}" for n in ids}
    configured = Configured(peers, has_secret=True, takes_peers=True)
    return contradiction(configured, "n1", members, founders, joins=joins, has_list=has_list)


@pytest.mark.parametrize("ids", ["123", ""])
def test_the_founders_or_nothing_fit(ids: str) -> None:
    """Who names the founders, or nobody, starts; addresses may be others."""
    assert not wrong(ids)
    assert not wrong(ids, grown())


@pytest.mark.parametrize(
    ("ids", "what"), [("1", "n2,n3 is missing"), ("12", "n3"), ("12345", "n4,n5 is unknown"), ("124", "n4")]
)
def test_another_cluster_does_not_fit(ids: str, what: str) -> None:
    """A subset, a superset and a mixture are refused, with both lists in the message."""
    said = wrong(ids)
    assert what in said
    assert f"n{ids[-1]}=h:{ids[-1]}'" in said
    assert "'n1=h:1,n2=h:2,n3=h:3'" in said
    assert wrong(ids, founders=())


def test_after_changes_the_members_fit_with_or_without_those_that_are_gone() -> None:
    """Whoever updates the configuration late, or keeps removed nodes in it, starts."""
    for ids in ("124", "1234"):
        assert not wrong(ids, grown())
    for ids in ("12", "14", "1245"):
        assert wrong(ids, grown())
    assert wrong("123", grown(), founders=())


def test_a_node_that_joined_names_whom_it_likes_of_those_known() -> None:
    """It was told of some members only, which may be gone since; but nobody of another cluster."""
    for ids in ("12", "3", "1234"):
        assert not wrong(ids, grown(), founders=(), joins=True)
    assert wrong("125", grown(), founders=(), joins=True)


def test_a_new_directory_takes_any_founders() -> None:
    """Nothing is known there that could be contradicted."""
    assert not wrong("12", Members(), has_list=False)
    assert not wrong("", Members(), has_list=False)


def test_without_a_list_in_the_log_founders_must_be_named() -> None:
    """An emptied variable must not make a cluster of one out of a founder of three."""
    assert "n1,n2,n3 yet: give them" in wrong("", has_list=False)
    assert not wrong("", member_list.founders({"n1": "h:1"}), founders=(), has_list=False)


@pytest.mark.parametrize("peers", [PEERS, {}, {"n1": "h:1"}])
def test_several_members_need_the_secret_and_a_port(peers: dict[str, str]) -> None:
    """Without the secret no other member could be reached: that is said, before anything else."""
    for has_secret, takes_peers, said in (
        (False, False, "secret: none"),
        (True, False, "peer: needs a port"),
    ):
        configured = Configured(peers, has_secret, takes_peers)
        why = contradiction(configured, "n1", FOUNDED, PEERS, joins=False, has_list=True)
        assert why.startswith(said)
        assert "n1=h:1,n2=h:2,n3=h:3" in why


def test_a_node_of_its_own_needs_neither() -> None:
    """A cluster of one starts without peers and without a secret."""
    alone = Configured({}, has_secret=False, takes_peers=False)
    members = member_list.founded(Founding("c1", {"n1": Founder("h:1", "disk-1")}))
    assert not contradiction(alone, "n1", members, ["n1"], joins=False, has_list=True)
