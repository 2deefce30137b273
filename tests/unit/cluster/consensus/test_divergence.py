"""Who is wrong when nodes differ: a majority decides, and nobody is believed alone."""

import logging
from collections.abc import Iterable

import msgspec
import pytest

from cluster.consensus.digest_reports import DIGESTS_MAX, DigestReport, majority
from cluster.consensus.divergence import (
    COARSE_BITS,
    DISPUTE_S,
    DOUBT_S,
    KEPT_BITS,
    LOOK_S,
    RING,
    STEP_BITS,
    TOLD_MAX,
    Divergence,
)
from cluster.consensus.log_digest import Difference
from cluster.errors import LogDiverged, NodeFailed, StateDiverged
from lockstate.tables import fingerprint

THREE = frozenset({"n1", "n2", "n3"})
RIGHT, WRONG, OTHER = 0xAAAA, 0xBBBB, (1 << 64) - 1


class Site:
    """One node's comparison, with everything around it in the test's hands."""

    def __init__(self, node_id: str = "n1", voters: frozenset[str] = THREE) -> None:
        self.now_s = 100.0
        self.voters = voters
        self.failures: list[NodeFailed] = []
        self.told = 0
        self.fingerprint = 0
        self.log: dict[int, tuple[int, int | None]] = {}
        """Term and digest by index."""
        self.divergence = Divergence(
            node_id,
            self,
            lambda: self.voters,
            lambda: self.now_s,
            newest=lambda: self.fingerprint,
            stop=self.failures.append,
            tell=self._tell,
        )

    def restart(self, revision: int, its_fingerprint: int) -> None:
        """Load a state."""
        self.fingerprint = its_fingerprint
        self.divergence.restarted(revision)

    def _tell(self) -> None:
        self.told += 1

    def is_in_doubt(self) -> bool:
        """Whether nobody knows who is right."""
        return self.divergence.is_in_doubt

    def term_at(self, index: int) -> int | None:
        """Return the term at an index."""
        return self.log[index][0] if index in self.log else None

    def digest_at(self, index: int) -> int | None:
        """Return the digest at an index."""
        return self.log[index][1] if index in self.log else None

    def apply(self, revisions: Iterable[int], its_fingerprint: int = RIGHT) -> None:
        """Apply entries."""
        for revision in revisions:
            self.fingerprint = its_fingerprint + revision if its_fingerprint < OTHER else OTHER
            self.divergence.applied(revision)

    def hear(
        self, peer_id: str, *states: tuple[int, int], entries: Iterable[tuple[int, int, int]] = ()
    ) -> None:
        """Hear a peer's report over the wire; fingerprints count up with the revision."""
        told = [(revision, base + revision) for revision, base in states]
        report = DigestReport(fingerprint.VERSION, told, list(entries))
        decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(report), type=DigestReport)
        self.divergence.heard(peer_id, decoded)


# -- majorities ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "voters", "expected"),
    [
        ({"n1": 1, "n2": 1, "n3": 2}, "n1 n2 n3", 1),
        ({"n1": 1, "n2": 2, "n3": 3}, "n1 n2 n3", None),
        ({"n1": 1, "n2": 2}, "n1 n2", None),
        ({"n1": 1, "n2": 1}, "n1 n2 n3 n4 n5", None),
        ({"n1": 1, "n2": 1, "n3": 1}, "n1 n2 n3 n4 n5", 1),
        ({"n1": 1, "n2": 1, "n3": 2, "n4": 2}, "n1 n2 n3 n4", None),
        ({"n8": 1, "n9": 1, "n3": 2}, "n1 n2 n3", None),
        ({"n1": 1, "n2": 2}, "n2", 2),
        ({}, "n1", None),
    ],
)
def test_a_majority_is_more_than_half_of_all_voters(
    told: dict[str, int], voters: str, expected: int | None
) -> None:
    """Who is silent counts against everybody, and who does not vote for nobody."""
    assert majority(told, voters.split()) == expected


# -- states -------------------------------------------------------------------------------------------------


def test_a_node_that_differs_from_the_majority_stops() -> None:
    """The two others agree at a revision of which this node has another state: it names all of that."""
    site = Site("n3")
    site.apply(range(1, 11), WRONG)
    site.hear("n1", (10, RIGHT))
    assert not site.failures, "one alone is not believed"
    site.hear("n2", (10, RIGHT))
    (failure,) = site.failures
    assert isinstance(failure, StateDiverged)
    assert failure.exit_code == 70
    assert f"revision 10: fingerprint {WRONG + 10:016x} here, {RIGHT + 10:016x} on n1, n2" in str(failure)


def test_the_majority_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """A node that another one agrees with names who differs, and does nothing else."""
    site = Site("n1")
    site.apply(range(1, 11))
    site.hear("n2", (10, RIGHT))
    site.hear("n3", (10, WRONG))
    assert not site.failures
    assert site.divergence.differing == {"n3"}
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.CRITICAL]
    assert line.startswith("event=state-differs peer=n3 revision=10")
    assert line.endswith("decided=True")
    site.now_s += DOUBT_S
    site.divergence.look()
    assert not site.is_in_doubt()


def test_three_that_all_differ_do_not_stop_each_other() -> None:
    """No majority has another state: nobody can know."""
    site = Site("n1")
    site.apply(range(1, 11))
    site.hear("n2", (10, WRONG))
    site.hear("n3", (10, WRONG + 1))
    assert not site.failures
    assert site.divergence.differing == {"n2", "n3"}


def test_of_two_nobody_stops_and_both_end_their_service_after_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One of two is wrong, and each may be; an answer could give a lock to two clients."""
    site = Site("n1", frozenset({"n1", "n2"}))
    site.apply(range(1, 11))
    site.hear("n2", (10, WRONG))
    assert not site.is_in_doubt()
    site.now_s += DOUBT_S
    site.divergence.look()
    assert site.is_in_doubt()
    assert not site.failures
    assert [
        record.getMessage() for record in caplog.records if "event=in-doubt peers=n2" in record.getMessage()
    ]
    site.hear("n2", (10, RIGHT))
    assert not site.is_in_doubt()
    assert "event=doubt-over" in caplog.text


def test_the_third_node_ends_a_doubt() -> None:
    """As soon as it has the revision, too, a majority decides."""
    site = Site("n1")
    site.apply(range(1, 11))
    site.hear("n2", (10, WRONG))
    site.now_s += DOUBT_S
    assert site.is_in_doubt()
    site.hear("n3", (10, RIGHT))
    assert not site.is_in_doubt()
    assert not site.failures


def test_a_learner_is_compared_and_decides_nothing() -> None:
    """One that only catches up cannot make the others doubt, and stops if the majority has another state."""
    voter = Site("n1", frozenset({"n1", "n2"}))
    voter.apply(range(1, 11))
    voter.hear("n4", (10, WRONG))
    voter.now_s += DOUBT_S
    voter.divergence.look()
    assert voter.divergence.differing == {"n4"}
    assert not voter.is_in_doubt()
    learner = Site("n4", frozenset({"n1"}))
    learner.apply(range(1, 11), WRONG)
    learner.hear("n1", (10, RIGHT))
    assert isinstance(learner.failures[0], StateDiverged)


def test_what_is_told_ahead_is_compared_when_it_is_reached() -> None:
    """A follower hears of revisions that it has not applied yet; it looks again by itself."""
    site = Site("n3")
    site.apply(range(1, 11), WRONG)
    site.hear("n1", (12, RIGHT))
    site.hear("n2", (12, RIGHT))
    site.apply((11, 12), WRONG)
    assert not site.failures
    site.now_s += LOOK_S
    site.divergence.look()
    assert isinstance(site.failures[0], StateDiverged)


def test_what_is_no_longer_known_is_not_compared() -> None:
    """Not the revisions before a loaded snapshot, not those that fell out of the ring, not other versions."""
    site = Site("n3")
    site.restart(100, WRONG)
    for peer_id in ("n1", "n2"):
        site.hear(peer_id, (99, RIGHT))
        site.divergence.heard(peer_id, DigestReport(fingerprint.VERSION + 1, [(100, RIGHT)]))
    site.apply(range(101, 105 + (RING << KEPT_BITS)), WRONG)
    for peer_id in ("n1", "n2"):
        site.hear(peer_id, (101, RIGHT), (104, RIGHT))
    assert not site.failures
    assert not site.divergence.differing


def test_of_older_revisions_some_are_known_still() -> None:
    """Those that peers tell who are behind; none from before a snapshot that was loaded, none overwritten."""
    site = Site("n3")
    step = 1 << COARSE_BITS
    site.restart(4 * step + 1, WRONG)
    site.apply(range(4 * step + 2, 5 * step + 2 * RING), WRONG)
    for peer_id in ("n1", "n2"):
        site.hear(peer_id, (4 * step, RIGHT), (5 * step + 1, RIGHT))
    assert not site.failures
    for peer_id in ("n1", "n2"):
        site.hear(peer_id, (5 * step, RIGHT))
    (failure,) = site.failures
    assert f"at revision {5 * step}: fingerprint {WRONG + 5 * step:016x} here" in str(failure)
    late = Site("n3")
    late.apply(range(1, RING * step + step + 1), WRONG)
    assert late.divergence._own(step) is None
    assert late.divergence._own(2 * step) == WRONG + 2 * step


def test_a_peer_that_comes_back_is_not_judged_by_what_it_was() -> None:
    """After a lost connection it may have another state."""
    site = Site("n1")
    site.apply(range(1, 11))
    site.hear("n2", (10, WRONG))
    site.divergence.lost("n2")
    site.hear("n3", (10, RIGHT))
    assert not site.divergence.differing
    site.divergence.lost("n9")


@pytest.mark.parametrize("rate", [1, 7, 300, 5_000])
def test_nodes_that_speak_at_different_moments_share_a_revision(rate: int) -> None:
    """Whatever the number of entries a second, a difference is found within ten pings of each."""
    site, peers = Site("n3"), {"n1": Site("n1"), "n2": Site("n2")}
    since = 12_345
    for each in (site, *peers.values()):
        each.restart(since, RIGHT + since)
    site.restart(since, WRONG + since)
    revision, pings = since, 0
    while not site.failures:
        pings += 1
        assert pings <= 10
        for number, (peer_id, peer) in enumerate(peers.items()):
            newest = revision + (number + 1) * rate // 3
            peer.apply(range(peer.divergence._newest + 1, newest + 1))
            site.divergence.heard(peer_id, peer.divergence.report())
        revision += rate
        site.apply(range(site.divergence._newest + 1, revision + 1), WRONG)
        site.now_s += 1
        site.divergence.look()
    assert isinstance(site.failures[0], StateDiverged)


def test_claims_are_few_whoever_makes_them() -> None:
    """What a node tells fits into its own bounds, and what a peer tells beyond them is not read."""
    site = Site()
    site.apply(range(1, 20_000), OTHER)
    report = site.divergence.report()
    assert {revision for revision, _ in report.states} == {19_999, 19_984, 19_968, 19_456, 16_384}
    assert len(msgspec.msgpack.encode(report)) < 200
    flood = DigestReport(fingerprint.VERSION, [(revision, 1) for revision in range(DIGESTS_MAX + 1)])
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(flood), type=DigestReport)
    for first in range(0, 1_000, DIGESTS_MAX):
        site.hear("n2", *((revision, 1) for revision in range(first, first + DIGESTS_MAX)))
    assert len(site.divergence._states["n2"]) <= TOLD_MAX * len(STEP_BITS)


# -- logs ---------------------------------------------------------------------------------------------------


def test_a_follower_with_another_history_than_leader_and_others_stops() -> None:
    """The leader alone is not believed; with another node that has the same entry it is a majority."""
    site = Site("n3")
    site.log[7] = (2, WRONG)
    site.divergence.parted("n1", Difference(7, 2, WRONG, RIGHT))
    assert not site.failures
    assert site.told == 1, "everybody is asked at once"
    assert site.divergence.report().entries == [(7, 2, WRONG)]
    site.hear("n2", entries=[(7, 2, RIGHT)])
    (failure,) = site.failures
    assert isinstance(failure, LogDiverged)
    assert failure.exit_code == 70
    assert f"entry 7 of term 2: digest {WRONG:016x} here, {RIGHT:016x} on n1, n2" in str(failure)


def test_a_leader_with_another_history_than_its_followers_stops() -> None:
    """It has no right because it leads; and what it heard before it was told of the entry counts."""
    site = Site("n1")
    site.log[7] = (2, WRONG)
    site.hear("n2", entries=[(7, 2, RIGHT)])
    assert not site.failures
    assert site.told == 1, "its own digest may decide elsewhere"
    site.hear("n3", entries=[(7, 2, RIGHT)])
    assert isinstance(site.failures[0], LogDiverged)


def test_one_bad_leader_stops_none_of_its_followers() -> None:
    """They agree with each other, so each of them is right."""
    for node_id, other in (("n2", "n3"), ("n3", "n2")):
        site = Site(node_id)
        site.log[7] = (2, RIGHT)
        site.divergence.parted("n1", Difference(7, 2, RIGHT, WRONG))
        site.hear("n1", entries=[(7, 2, WRONG)])
        site.hear(other, entries=[(7, 2, RIGHT)])
        assert not site.failures


def test_only_entries_that_differ_are_told_and_not_for_ever() -> None:
    """What two have in common is in nobody's dispute, nor is an entry of another term, or an unknown one."""
    site = Site("n2")
    site.log |= {7: (2, RIGHT), 8: (2, None)}
    site.hear("n1", entries=[(7, 2, RIGHT), (7, 3, WRONG), (8, 2, WRONG), (9, 2, WRONG)])
    assert site.divergence.report().entries == []
    assert site.told == 0
    site.hear("n3", entries=[(7, 2, WRONG)])
    assert site.divergence.report().entries == [(7, 2, RIGHT)]
    site.now_s += DISPUTE_S + 1
    site.hear("n3")
    assert site.divergence.report().entries == []


def test_disputed_entries_are_few() -> None:
    """However many a peer names, and what the log has lost meanwhile is not told."""
    site = Site("n2")
    site.log |= dict.fromkeys(range(100), (2, RIGHT))
    for first in range(0, 96, DIGESTS_MAX):
        site.hear("n3", entries=[(index, 2, WRONG) for index in range(first, first + DIGESTS_MAX)])
    assert len(site.divergence.report().entries) == DIGESTS_MAX
    site.log.clear()
    assert site.divergence.report().entries == []
