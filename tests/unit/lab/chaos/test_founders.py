"""The witness of a first start sees two leaders of a term, and two holders of a lock."""

from pathlib import Path
from typing import Any

import pytest

from cluster.consensus.founding import ADVICE as ADVICE_OF_NODES
from lab.chaos.faults.fault import PromiseBroken
from lab.chaos.faults.founders import ADVICE, FOUNDED, NODES, Founders
from scripts.lib import cluster_file


class Told(Founders):
    """Founders whose answers are those of a table, by node and path; None is no answer."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.leaders: dict[str, tuple[int, str]] = {}
        self.grants: set[str] = set()
        self.asked: list[str] = []

    def ask(
        self, node_id: str, path: str, timeout_s: float = 0.0, *, method: str = "GET", body: Any = None
    ) -> tuple[int, Any] | None:
        """Return what the table says."""
        del path, timeout_s
        if method == "POST":
            self.asked.append(body["owner"])
            return (200, {}) if node_id in self.grants else (409, {})
        if node_id not in self.leaders:
            return None
        term, leader = self.leaders[node_id]
        return 200, {"term": term, "leader": leader}


@pytest.fixture
def founders(tmp_path: Path) -> Told:
    """Return founders that nobody has started."""
    return Told(tmp_path)


def test_one_leader_of_each_term_is_as_it_should_be(founders: Told) -> None:
    """Also if some still name the one before, or do not answer; everybody is asked as somebody else."""
    founders.leaders = {"f1": (3, "f1"), "f2": (4, "f2"), "f3": (3, "f1")}
    founders.witness()
    founders.leaders = {"f2": (4, "f2")}
    founders.witness()
    assert len(set(founders.asked)) == 2 * len(NODES)
    assert founders.granted == []


def test_two_leaders_of_a_term_are_seen(founders: Told) -> None:
    """Also if they said so at different times."""
    founders.leaders = {"f1": (3, "f1")}
    founders.witness()
    founders.leaders = {"f2": (3, "f2")}
    with pytest.raises(PromiseBroken, match="f1, f2 lead in term 3"):
        founders.witness()


def test_two_holders_are_seen(founders: Told) -> None:
    """The lock is never given back, so nobody else may ever get it."""
    founders.grants = {"f1"}
    founders.witness()
    founders.grants = {"f3"}
    with pytest.raises(PromiseBroken, match="f1 and f3 granted one lock"):
        founders.witness()


def test_what_has_granted_is_not_begun_anew(founders: Told) -> None:
    """A node that grants before anybody was founded has promised what the repair would forget."""
    founders.grants = {"f2"}
    with pytest.raises(PromiseBroken, match="f2 granted a lock, and no node says that it was founded"):
        founders.begin_anew()


def test_what_nodes_say_and_store_is_found(founders: Told) -> None:
    """In all that each has ever logged, and in its directory."""
    assert ADVICE in ADVICE_OF_NODES
    assert not founders.is_advice_given()
    founders.cluster.log("f2").write_text(f"x\n2026 {FOUNDED}cluster=1 members=f1,f2,f3\ny\n")
    founders.cluster.log("f3").write_text(f"detail='{ADVICE_OF_NODES}'\n")
    assert founders.have_founded("f1", "f2")
    assert not founders.have_founded("f1", "f3")
    assert founders.is_advice_given()
    assert founders.stored_count() == 0
    founders.cluster.data_dir("f3").mkdir()
    (founders.cluster.data_dir("f3") / cluster_file.FILE).write_text("{}")
    assert founders.stored_count() == 1
