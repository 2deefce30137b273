"""Whom a certificate names, and whether that is whom a node means."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.peers.certificate_names import PeerName, clusters_of, fault_in, names_in, told
from cluster.peers.cuts import Cut

ID, OTHER_ID = "0" * 31 + "a", "0" * 31 + "b"


def uris(*values: str) -> dict[str, Any]:
    """Return a certificate as `ssl` describes it."""
    return {"subjectAltName": tuple(("URI", value) for value in values)}


def names(*values: str) -> frozenset[PeerName]:
    """Return names, each written as CLUSTER/NODE_ID."""
    return names_in(uris(*(f"holdfast://{value}" for value in values)))


def test_names_are_read() -> None:
    """All of them, whatever else a certificate is called."""
    certificate = uris("holdfast://prod/n1", "spiffe://prod/n1", f"holdfast://{ID}/n1")
    certificate["subjectAltName"] += (("DNS", "holdfast://dns/n1"), ("IP Address", "10.0.0.1"))
    assert names_in(certificate) == {PeerName("prod", "n1"), PeerName(ID, "n1")}


@pytest.mark.parametrize(
    "uri",
    [
        "holdfast://prod/n1/",
        "holdfast://prod/n1\n",
        "holdfast://prod/n1\x00.example.com",
        "holdfast://prod/n1?x",
        "holdfast://user@prod/n1",
        "holdfast:///n1",
        "holdfast://prod",
        "HOLDFAST://prod/n1",
        "holdfast://prod/nï1",
        f"holdfast://prod/{'n' * 64}",
        " holdfast://prod/n1",
    ],
)
def test_what_is_nearly_a_name_is_none(uri: str) -> None:
    """Nothing is cut off, decoded or forgiven."""
    assert names_in(uris(uri)) == frozenset()
    assert names_in({}) == frozenset()


@given(st.text() | st.text(alphabet="holdfast:/-._1a").map(lambda text: f"holdfast://{text}"))
def test_a_name_that_is_read_is_the_whole_uri(uri: str) -> None:
    """Whatever stands in a certificate: what is told of it is what was there."""
    assert told(names_in(uris(uri))) in (uri, told(()))


def test_an_id_counts_only_if_it_is_that_of_this_cluster() -> None:
    """A name that somebody has chosen always does; before there is a cluster id, everything does."""
    own = names("prod/n1", f"{ID}/n1", f"{OTHER_ID}/n1", "dev/n2")
    assert clusters_of(own, "n1", "") == {"prod", ID, OTHER_ID}
    assert clusters_of(own, "n1", ID) == {"prod", ID}
    assert clusters_of(own, "n2", ID) == {"dev"}
    assert clusters_of(names(f"{OTHER_ID}/n1"), "n1", ID) == frozenset()


@pytest.mark.parametrize(
    ("shown", "fault"),
    [
        (("prod/n2",), None),
        ((f"{ID}/n2",), None),
        (("dev/n2", "prod/n2"), None),
        (("prod/n3",), Cut.CERTIFICATE_NODE),
        ((), Cut.CERTIFICATE_NODE),
        (("dev/n2",), Cut.CERTIFICATE_CLUSTER),
        ((f"{OTHER_ID}/n2",), Cut.CERTIFICATE_CLUSTER),
        (("dev/n2", "prod/n3"), Cut.CERTIFICATE_CLUSTER),
    ],
)
def test_a_peer_needs_its_own_id_and_this_cluster_in_one_name(
    shown: tuple[str, ...], fault: Cut | None
) -> None:
    """The last case has both, in two names."""
    found = fault_in(names(*shown), "n2", frozenset({"prod", ID}))
    assert (found and found[0]) == fault
    if found is not None:
        assert all(f"holdfast://{name}" in found[1] for name in shown)
