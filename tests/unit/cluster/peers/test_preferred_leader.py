"""When the preferred node is handed leadership: it has to be well for a while, and longer if that fails."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cluster.commands.clock_watch import ClockWatch
from cluster.config import NodeConfig
from cluster.consensus.divergence import Divergence
from cluster.consensus.handover import Handovers
from cluster.consensus.member_list import MemberRecord, Members
from cluster.consensus.replica import Replica
from cluster.peers.disk_watch import DiskWatch
from cluster.peers.peer_table import PeerRecord, PeerTable, Ping, Standing
from cluster.peers.preferred_leader import LASTS_S, STEADY_S, STEADY_S_MAX, Preference, PreferredLeader
from lockstate.machine import LockMachine
from lockstate.tables.records import PreferredLeader as PreferredLeaderRecord


class Cluster:
    """Who leads, and what one node other than the preferred one makes of it. Time passes in steps."""

    def __init__(self, *, is_leader: bool = True) -> None:
        self.preference = Preference()
        self.now_s = 100.0
        self.does_preferred_lead = False
        self._is_leader = is_leader
        """Whether this node leads while the preferred one does not."""

    def pass_time(self, seconds: float, *, is_fit: bool = True) -> None:
        """Let time pass, and the preferred node lead once it is due."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s = min(self.now_s + 0.5, end_s)
            self.preference.saw_leader(is_preferred=self.does_preferred_lead, now_s=self.now_s)
            fit = is_fit and self._is_leader and not self.does_preferred_lead
            if self.preference.is_due(is_fit=fit, now_s=self.now_s):
                self.does_preferred_lead = True

    def lose(self) -> None:
        """Let another node lead than the preferred one."""
        self.does_preferred_lead = False
        self.preference.saw_leader(is_preferred=False, now_s=self.now_s)


def test_a_node_that_stays_well_is_handed_leadership() -> None:
    """After half a minute, and not before."""
    cluster = Cluster()
    cluster.pass_time(STEADY_S)
    assert not cluster.does_preferred_lead
    assert cluster.preference.rest_s(cluster.now_s) == 0.5
    cluster.pass_time(1)
    assert cluster.does_preferred_lead


def test_a_node_that_flaps_does_not_lead() -> None:
    """Its time begins anew whenever anything speaks against it."""
    cluster = Cluster()
    for _ in range(10):
        cluster.pass_time(STEADY_S - 1)
        cluster.pass_time(1, is_fit=False)
    assert not cluster.does_preferred_lead
    cluster.pass_time(STEADY_S + 1)
    assert cluster.does_preferred_lead


def test_a_lead_that_does_not_last_doubles_the_time() -> None:
    """Up to half an hour; one that lasts sets it back."""
    cluster = Cluster()
    waits = []
    for _ in range(9):
        began_s = cluster.now_s
        while not cluster.does_preferred_lead:
            cluster.pass_time(1)
        waits.append(round(cluster.now_s - began_s - 1))
        cluster.pass_time(5)
        cluster.lose()
    assert waits == [STEADY_S * factor for factor in (1, 2, 4, 8, 16, 32)] + 3 * [STEADY_S_MAX]
    cluster.pass_time(STEADY_S_MAX + 2)
    cluster.pass_time(LASTS_S + 1)
    cluster.lose()
    assert cluster.preference.steady_s == STEADY_S


def test_a_handover_that_fails_doubles_the_time() -> None:
    """Each costs clients an election timeout at worst."""
    cluster = Cluster()
    cluster.pass_time(STEADY_S + 1)
    assert cluster.does_preferred_lead
    cluster.does_preferred_lead = False
    assert cluster.preference.steady_s == 2 * STEADY_S
    cluster.pass_time(2 * STEADY_S - 1)
    assert not cluster.does_preferred_lead
    cluster.pass_time(2)
    assert cluster.does_preferred_lead


def test_followers_count_too() -> None:
    """Whoever leads next knows that the lead of the preferred node did not last, or that it did."""
    cluster = Cluster(is_leader=False)
    for lasts_s, factor in ((5.0, 2), (LASTS_S - 1, 4), (LASTS_S + 1, 1)):
        cluster.does_preferred_lead = True
        cluster.pass_time(lasts_s)
        cluster.lose()
        assert cluster.preference.steady_s == factor * STEADY_S


class Site:
    """One node, n1, that leads; n2 is preferred. What it knows of the others is said by the test."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.machine = LockMachine()
        self.prefer("n2")
        self.members = Members(
            {node_id: MemberRecord(f"{node_id}:7800", is_voter=True) for node_id in ("n1", "n2", "n3")}
        )
        self.pings = {node_id: Ping(1, "follower") for node_id in ("n2", "n3")}
        self.standing = Standing.MEMBER
        self.alive = {"n2", "n3"}
        self.leader_id = "n1"
        self.differing: frozenset[str] = frozenset()
        self.fit = {"n2", "n3"}
        self.own_sync_ms = 1
        self.is_settled = True
        self.is_under_way = False
        self.commit_index, self.match_index = 10, 10
        self.begun: list[str] = []
        table = SimpleNamespace(records=self, pings=lambda: self.pings)
        replica = SimpleNamespace(caught_up=lambda _, goal: self.match_index >= goal)
        self.replica = replica
        self.preferred = PreferredLeader(
            cast("NodeConfig", SimpleNamespace(node_id="n1", election_ms_min=1000)),
            cast("Replica", replica),
            cast("PeerTable", table),
            is_alive=lambda node_id: node_id in self.alive,
            leader_id=lambda: self.leader_id,
            handovers=cast("Handovers", self),
            divergence=cast("Divergence", self),
            clocks=cast("ClockWatch", SimpleNamespace(is_fit=lambda node_id: node_id in self.fit)),
            disk=cast("DiskWatch", SimpleNamespace(sync_ms=lambda _: self.own_sync_ms)),
            machine=lambda: self.machine,
            now_s=lambda: self.now_s,
        )

    def __getitem__(self, node_id: str) -> PeerRecord:
        return PeerRecord(ping=self.pings.get(node_id), standing=self.standing)

    def begin(self, to: str) -> object:
        """Begin a handover."""
        self.begun.append(to)
        return self

    def prefer(self, node_id: str) -> None:
        """Let operators want this node to lead."""
        self.machine.state.preferred = PreferredLeaderRecord(0, node_id, "", "why")

    def look(self, seconds: float) -> str:
        """Let time pass, with looks as the timer makes them; return why nothing is handed over."""
        replica, voters = self.replica, self.members.voters
        replica.membership = SimpleNamespace(latest=self.members, voters=voters)
        replica.may_change_members = self.is_settled
        replica.role = SimpleNamespace(is_leader=self.leader_id == "n1")
        replica.engine = SimpleNamespace(commit_index=self.commit_index)
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += 0.25
            self.preferred.look()
        return self.preferred.why_not()


def test_the_preferred_node_is_handed_leadership_once() -> None:
    """When nothing has spoken against it for long enough; until then the leader says how long that takes."""
    site = Site()
    assert site.look(STEADY_S / 2) == "it takes over in 15 s if nothing happens to it"
    site.look(STEADY_S)
    assert site.begun == ["n2"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"members": Members({"n1": MemberRecord("n1:7800", is_voter=True)})}, "it is not a member"),
        (
            {
                "members": Members(
                    {
                        "n1": MemberRecord("n1:7800", is_voter=True),
                        "n2": MemberRecord("n2:7800", is_voter=False),
                    }
                )
            },
            "it is joining",
        ),
        ({"alive": {"n3"}}, "it cannot be reached"),
        ({"pings": {}}, "it cannot be reached"),
        ({"standing": Standing.LEADER_ONLY}, "it cannot be reached"),
        ({"pings": {"n2": Ping(1, "follower", log_room=2)}}, "its log has room for nothing only"),
        ({"differing": frozenset({"n2"})}, "its state differs from that of the leader"),
        ({"fit": {"n3"}}, "its clock is off"),
        ({"pings": {"n2": Ping(1, "follower", sync_ms=90)}}, "its disk is slow: syncs take 90 ms"),
        ({"is_settled": False}, "members or leader are changing"),
        ({"is_under_way": True}, "members or leader are changing"),
        ({"match_index": 3}, "it has not caught up with the log"),
    ],
    ids=lambda of: of if isinstance(of, str) else "",
)
def test_what_speaks_against_a_node(changes: dict[str, Any], why: str) -> None:
    """It is not handed leadership while that lasts, and not at once afterwards."""
    site = Site()
    site.look(1)
    well = {name: getattr(site, name) for name in changes}
    if "match_index" in changes:
        site.commit_index = 11
        site.look(1)
    for name, value in changes.items():
        setattr(site, name, value)
    assert site.look(3 * STEADY_S) == why
    assert site.begun == []
    for name, value in well.items():
        setattr(site, name, value)
    site.match_index = site.commit_index
    site.look(STEADY_S - 1)
    assert site.begun == []
    site.look(2)
    assert site.begun == ["n2"]


def test_a_node_that_lacks_only_the_newest_entries_is_caught_up() -> None:
    """Under load nobody ever has all of them; the handover waits for what is missing."""
    site = Site()
    for _ in range(300):
        site.match_index = site.commit_index
        site.commit_index += 50
        site.look(0.25)
    assert site.begun[:1] == ["n2"]


def test_nobody_else_hands_over() -> None:
    """Neither a follower, nor the preferred node itself, nor a leader where nobody is preferred."""
    for change in ("follows", "is preferred", "nobody is"):
        site = Site()
        if change == "follows":
            site.leader_id = "n3"
        elif change == "is preferred":
            site.prefer("n1")
        else:
            site.machine.state.preferred = None
        assert site.look(3 * STEADY_S) == ""
        assert site.begun == []


def test_another_wish_begins_anew() -> None:
    """The time for which one node was well says nothing of another."""
    site = Site()
    site.look(STEADY_S - 1)
    site.prefer("n3")
    site.look(STEADY_S - 1)
    assert site.begun == []
    site.look(2)
    assert site.begun == ["n3"]
