"""How the cluster of a directory began, and which configurations it is started with."""

from collections.abc import Collection

import pytest

from cluster.consensus import member_list
from cluster.consensus.beginning import Beginning, Configured, beginning_of, contradiction, listed_members
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
    ("record", "joins", "beginning"),
    [
        (ClusterRecord(), False, Beginning()),
        (ClusterRecord(founding=FOUNDING), False, Beginning()),
        (COMPLETE, False, Beginning(FOUNDED)),
        (ClusterRecord(), True, Beginning(joins=True)),
        (ClusterRecord(cluster_id="c1"), True, Beginning(joins=True)),
    ],
)
def test_how_a_cluster_began(record: ClusterRecord, *, joins: bool, beginning: Beginning) -> None:
    """By its founding, once that is complete; a node that joins knows of no beginning."""
    assert beginning_of(record, joins=joins) == beginning


def test_the_members_that_a_directory_knows() -> None:
    """The list in the log or, while there is none, the founding that is stored."""
    assert listed_members(ClusterRecord(), Members()) == Members()
    assert listed_members(ClusterRecord(founding=FOUNDING), Members()) == FOUNDED
    assert listed_members(COMPLETE, grown()) == grown()


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
    alone = member_list.founded(Founding("c1", {"n1": Founder("h:1", "disk-1")}))
    assert not wrong("", alone, founders=("n1",), has_list=False)


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
