"""What a client is told while leaders change: answers that never come (H7), stale reads (H12), guesses (H13).

Each schedule is moved by hand, first on the bare library, then on whole nodes of ours.
"""

from pathlib import Path

import pytest
from pysyncobj import FAIL_REASON

from lockstate.machine import LockMachine
from lockstate.words.results import Granted
from tests.hazards.bare_library import bare_cluster
from tests.hazards.virtual_cluster import Cluster
from tests.hazards.whole_nodes import Clients, run_callbacks, whole_cluster

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # the library does not close its files

TAIL, NEWS = 40, 200
AHEAD = 300
"""Commands in the queue of a busy leader: the library takes about a hundred in one tick."""
THIS_RUN = ("of this run", "of this run too")


def tokens(machine: LockMachine) -> int:
    """Return how many grants there have been."""
    return machine.next_token - 1


# -- answers that never come (H7) ---------------------------------------------------------------------------


def test_every_command_of_a_replaced_leader_gets_an_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H7: a leader cut off with 40 commands, replaced behind a snapshot, answers all 40 when it is back.

    The bare library, in the same moves, answers none: test_snapshot_transfer.py.
    """
    cluster = whole_cluster(tmp_path, monkeypatch, compact_entries=100)
    cluster.elect("a")
    clients = Clients()
    told = clients.ask(cluster["a"])
    cluster.run_ms(500)
    assert told.done()
    cluster.isolate("a")
    answers = [clients.ask(cluster["a"]) for _ in range(TAIL)]
    cluster.run_ms(3000)
    leader = cluster[cluster.leader_of("bc") or ""]
    for _ in range(NEWS):
        clients.ask(leader)
        cluster.settle()
    assert leader.journal.first_index > TAIL, "the log that a lacks is compacted"
    assert not [answer for answer in answers if answer.done()]
    cluster.heal()
    cluster.run_ms(3000)
    for answer in answers:
        assert isinstance(answer.result().result, Granted)
    assert tokens(cluster["a"].machine) == tokens(leader.machine)


# -- stale reads (H12) --------------------------------------------------------------------------------------


def replace_cut_off_leader(cluster: Cluster) -> str:
    """Cut a, the leader, off; return the leader of the others soon after."""
    cluster.isolate("a")
    cluster.run_until(lambda: cluster.leader_of("bc") in ("b", "c"))
    return cluster.leader_of("bc") or ""


def test_the_bare_library_reads_an_old_state_as_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """H12: a replaced leader says that it leads, and shows a state that a newer answer has made untrue."""
    cluster = bare_cluster(monkeypatch)
    cluster.elect("a")
    leader = cluster[replace_cut_off_leader(cluster)]
    leader.propose("taken")
    cluster.run_ms(1000)
    assert leader.outcomes == [FAIL_REASON.SUCCESS]
    assert cluster["a"].is_leader
    assert cluster["a"].isReady()
    assert cluster["a"].values == []


def test_a_replaced_leader_answers_no_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H12: a read on our cut-off leader waits, whether it still believes to lead or not; then it sees all."""
    cluster = whole_cluster(tmp_path, monkeypatch)
    cluster.elect("a")
    cluster.isolate("a")
    reads = []
    clients = Clients()
    for _ in range(60):
        reads.append(cluster["a"].parts.outbox.read(tokens, 3600))
        cluster["a"].parts.outgoing.request_flush()
        cluster.run_ms(50)
    leader = cluster[cluster.leader_of("bc") or ""]
    taken = clients.ask(leader)
    cluster.run_ms(500)
    assert isinstance(taken.result().result, Granted)
    assert not [read for read in reads if read.done()]
    cluster.heal()
    cluster.run_ms(3000)
    assert [read.result() for read in reads] == [1] * len(reads)


# -- a repetition after a failover (H13) --------------------------------------------------------------------


def test_a_command_repeated_after_a_failover_is_done_twice_by_the_bare_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """H13: the leader did it and died before the follower heard; the follower hears no outcome."""
    cluster = bare_cluster(monkeypatch)
    cluster.elect("a")
    cluster.network.held.add(("a", "c"))
    cluster["c"].be_patient()
    cluster["c"].propose("take")
    cluster.run_until(lambda: cluster["b"].values == ["take"], 1000)
    cluster.crash("a")
    cluster.run_until(lambda: cluster.leader_of("bc") in ("b", "c"))
    cluster.run_ms(500)
    assert cluster["c"].outcomes == [FAIL_REASON.LEADER_CHANGED]
    cluster["c"].propose("take")
    cluster.run_ms(1000)
    assert cluster["c"].outcomes[1:] == [FAIL_REASON.SUCCESS]
    assert cluster["b"].values == ["take", "take"]


def test_a_command_repeated_after_a_failover_has_one_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H13: the node sends it again by itself, a client asks again elsewhere: there is one grant."""
    cluster = whole_cluster(tmp_path, monkeypatch)
    clients = Clients()
    cluster.elect("a")
    cluster.network.held.add(("a", "c"))
    answer = clients.ask(cluster["c"], request_id="take")
    plain = clients.ask(cluster["c"])
    cluster.run_ms(300)
    assert tokens(cluster["b"].machine) == 2
    assert not answer.done()
    assert not plain.done()
    cluster.crash("a")
    cluster.run_ms(3000)
    again = clients.ask(cluster["b"], request_id="take")
    cluster.run_ms(1000)
    first, second = answer.result().result, again.result().result
    assert isinstance(first, Granted)
    assert isinstance(second, Granted)
    assert (first.hold_id, first.token) == (second.hold_id, second.token)
    assert isinstance(plain.result().result, Granted)
    for node_id in "bc":
        assert tokens(cluster[node_id].machine) == 2


# -- an answer to another run of the process (H22) ----------------------------------------------------------


def test_the_bare_library_takes_the_answer_to_a_request_of_an_earlier_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H22: requests are numbered from 1 in each run; a busy leader's late answer ends another request.

    The client of a follower that was restarted is told SUCCESS for a command that never reached the leader.
    """
    cluster = bare_cluster(monkeypatch, directory=tmp_path, leaderFallbackTimeout=3600)
    cluster.elect("a")
    cluster["c"].propose("first")
    cluster.run_until(lambda: cluster["c"].outcomes == [FAIL_REASON.SUCCESS])
    cluster["a"].propose(*range(AHEAD))
    cluster["c"].propose("of the earlier run")
    cluster["c"].timer()
    cluster.deliver("c", "a")
    cluster.crash("c")
    cluster.start("c")
    cluster.connect("a", "c")
    cluster.clock.pass_ms(150)
    cluster["a"].timer()
    while cluster.network.queues["a", "c"]:
        cluster.deliver("a", "c")
    cluster["c"].propose(*THIS_RUN)
    cluster["c"].timer()
    assert [message["type"] for message in cluster.network.queues["c", "a"]].count("apply_command") == 2
    cluster.connect("a", "c")
    cluster.heal()
    cluster.run_ms(2000)
    assert cluster["c"].outcomes == [FAIL_REASON.SUCCESS]
    assert not set(THIS_RUN) & set(cluster["a"].values)
    assert cluster["a"].values == cluster["b"].values == cluster["c"].values


def test_requests_of_an_earlier_run_are_nobodys_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H22: after the same moves the command of this run has been done, once, and its client has its grant."""
    cluster = whole_cluster(tmp_path, monkeypatch)
    clients = Clients()
    cluster.elect("a")
    first = clients.ask(cluster["c"])
    cluster.run_ms(500)
    assert first.done()
    cluster.network.held |= {("a", "b"), ("a", "c"), ("b", "a"), ("c", "a")}
    for _ in range(AHEAD):
        clients.ask(cluster["a"])
    earlier = clients.ask(cluster["c"])
    run_callbacks(cluster)
    while cluster.network.queues["c", "a"]:
        cluster.deliver("c", "a")
    cluster.crash("c")
    cluster.start("c")
    cluster.connect("a", "c")
    run_callbacks(cluster)
    cluster.clock.pass_ms(150)
    cluster["a"].timer()
    run_callbacks(cluster)
    while cluster.network.queues["a", "c"]:
        cluster.deliver("a", "c")
    answers = [clients.ask(cluster["c"]) for _ in THIS_RUN]
    hold_ids = [hold_id for hold_id, _, _ in clients.asked[-len(THIS_RUN) :]]
    run_callbacks(cluster)
    assert "FORWARD" in [message["type"] for message in cluster.network.queues["c", "a"]]
    cluster.connect("a", "c")
    cluster.network.held.clear()
    cluster.heal()
    cluster.run_ms(3000)
    results = [answer.result().result for answer in answers]
    assert [result.hold_id for result in results if isinstance(result, Granted)] == hold_ids
    assert not earlier.done(), "whoever asked it died with that run"
    for node_id in "abc":
        assert None not in [cluster[node_id].machine.attempt(hold_id) for hold_id in hold_ids]
