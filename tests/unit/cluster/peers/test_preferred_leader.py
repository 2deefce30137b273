"""When the preferred node is handed leadership: it has to be well for a while, and longer if that fails."""

from cluster.peers.preferred_leader import LASTS_S, STEADY_S, STEADY_S_MAX, Preference


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
