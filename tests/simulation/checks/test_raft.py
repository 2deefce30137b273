"""The checkers of terms, logs, disks and states object to what they are for, and to nothing else."""

from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.tables.requests import RequestMemory
from lockstate.words.codec import decode_entry
from lockstate.words.commands.entries import Tick
from lockstate.words.commands.sessions import KeepAlive
from lockstate.words.ids import HoldId, OwnerName, SessionId
from tests.simulation.checks.all_checkers import Violation
from tests.simulation.checks.scripted_cluster import ListLog, ScriptedCluster, acquire, objects


def vote(term: int) -> dict[str, object]:
    """Return a vote as it is sent."""
    return {"type": "response_vote", "term": term}


def promise(term: int, index: int) -> dict[str, object]:
    """Return an acknowledgement of everything up to `index` as it is sent."""
    return {
        "type": "next_node_idx",
        "term": term,
        "next_node_idx": index + 1,
        "reset": False,
        "success": True,
    }


def entries(*terms: int) -> ListLog:
    """Return a log with one entry for each of `terms`, behind the library's own."""
    log = ListLog()
    log.extend((b"\x00%d-%d" % (term, index), index, term) for index, term in enumerate(terms, 2))
    return log


def test_an_honest_cluster_passes() -> None:
    """Elections, votes, commits, restarts and snapshots that are as they should be pass all checkers."""
    cluster = ScriptedCluster()
    checkers = cluster.checkers
    for revision in range(9):
        cluster.ask(acquire(f"h{revision}", f"x{revision}"))
        checkers.compare_logs({"a": cluster.log, "b": cluster.log})
    cluster.machines["b"] = LockMachine(snapshot.decode(snapshot.encode(cluster.machines["b"].state)))
    checkers.restored("b", cluster.log[-1][1], cluster.machines["b"])
    checkers.stored("b", 2, "b")
    checkers.sent("b", "c", {"type": "request_vote", "term": 2})
    checkers.stored("c", 2, "b")
    checkers.sent("c", "b", vote(2))
    checkers.leads("b", 2, cluster.log)
    checkers.recovered("a", 1, "a", cluster.log)
    cluster.term = 2
    cluster.ask(acquire("later"), node_id="b")
    checkers.compare_logs({"a": ListLog(cluster.log[5:]), "b": cluster.log})
    checkers.finish(cluster.machines)
    assert checkers.violation is None
    assert checkers.committed_index == 11


def test_a_violation_is_kept() -> None:
    """The first violation can be asked for later; no handler of Exception takes it for something else."""
    cluster = ScriptedCluster()
    heard: list[Violation] = []
    cluster.checkers.report.on_violation = heard.append
    with objects("one-leader-per-term"):
        cluster.checkers.leads("b", 1, cluster.log)
    kept = cluster.checkers.violation
    assert kept is not None
    assert kept.sentence == "b and a both lead in term 1"
    assert not isinstance(kept, Exception)
    assert heard == [kept]


def test_two_votes() -> None:
    """A second vote in one term is found, also one for another after a vote for itself."""
    cluster = ScriptedCluster()
    cluster.checkers.sent("b", "a", vote(1))
    cluster.checkers.sent("b", "a", vote(1))
    with objects("one-vote-per-term"):
        cluster.checkers.sent("b", "c", vote(1))
    cluster.checkers.sent("c", "a", {"type": "request_vote", "term": 2})
    with objects("one-vote-per-term"):
        cluster.checkers.sent("c", "b", vote(2))


def test_a_vote_that_is_not_on_disk() -> None:
    """A vote that leaves before it is stored is found; one of a term that is over by now is harmless."""
    cluster = ScriptedCluster()
    cluster.checkers.stored("b", 3, "c")
    cluster.checkers.sent("b", "a", vote(2))
    cluster.checkers.sent("b", "c", vote(3))
    with objects("vote-on-disk"):
        cluster.checkers.sent("b", "c", vote(4))


def test_a_disk_that_goes_back() -> None:
    """A term that falls, a vote that changes and a vote that is forgotten over a crash are found."""
    for term, voted_for in ((4, "a"), (5, "c"), (5, None)):
        cluster = ScriptedCluster()
        cluster.checkers.stored("b", 5, "a")
        cluster.checkers.stored("b", 5, "a")
        with objects("term-on-disk"):
            cluster.checkers.recovered("b", term, voted_for, cluster.log)
    cluster = ScriptedCluster()
    cluster.checkers.sent("b", "a", vote(1))
    with objects("term-on-disk"):
        cluster.checkers.recovered("b", 1, None, cluster.log)


def test_logs_that_do_not_match() -> None:
    """Another entry, another predecessor and falling terms at one index and term are found; forks pass."""
    cluster = ScriptedCluster()
    cluster.checkers.compare_logs({"a": entries(1, 1, 2), "b": entries(1, 1), "c": entries(1, 1, 3, 3)})
    cluster.checkers.compare_logs({"a": entries(1, 1, 3, 3, 3), "b": entries(1, 1, 2)})
    with objects("log-matching"):
        cluster.checkers.compare_logs({"b": ListLog([*entries(1, 1), (b"\x00other", 4, 2)])})
    with objects("log-matching"):
        cluster.checkers.compare_logs({"b": entries(1, 2, 3)})
    with objects("log-matching"):
        cluster.checkers.compare_logs({"b": entries(1, 1, 4, 3)})


def test_an_old_entry_that_changes() -> None:
    """An entry that changes in the middle of a log is found when its turn comes, or after a crash."""
    log = entries(*[1] * 40)
    cluster = ScriptedCluster()
    cluster.checkers.compare_logs({"a": log})
    spoilt = ListLog(list(log))
    spoilt[7] = (b"\x00other", 8, 1)
    with objects("log-matching"):
        for _ in range(len(log)):
            cluster.checkers.compare_logs({"a": spoilt})
    with objects("log-matching"):
        cluster.checkers.recovered("a", 1, "a", spoilt)


def test_a_leader_without_a_committed_entry() -> None:
    """A new leader whose log lacks a committed entry, or has another one there, is found."""
    cluster = ScriptedCluster()
    cluster.ask(acquire("h1"))
    cluster.ask(acquire("h2", "y"))
    with objects("leader-completeness"):
        cluster.checkers.leads("b", 2, ListLog(cluster.log[:2]))
    other = ListLog([*cluster.log[:2], (b"\x00other", 3, 2)])
    with objects("leader-completeness"):
        cluster.checkers.leads("b", 3, other)
    cluster.checkers.leads("c", 4, ListLog(cluster.log[2:]))


def test_a_leader_of_an_old_term() -> None:
    """A node that wins an old election late need not have what was committed in a later term."""
    cluster = ScriptedCluster()
    cluster.checkers.leads("b", 3, cluster.log)
    cluster.term = 3
    cluster.ask(acquire("h1"), node_id="b")
    cluster.checkers.leads("c", 2, ListLog())
    assert cluster.checkers.violation is None


def test_a_leader_that_cuts_its_log() -> None:
    """A leader whose log becomes shorter within its term is found."""
    cluster = ScriptedCluster()
    cluster.checkers.leads("a", 1, entries(1, 1))
    with objects("leader-append-only"):
        cluster.checkers.leads("a", 1, entries(1))


def test_a_committed_entry_that_changes() -> None:
    """Another entry, term or revision at an index that was applied before is found."""
    for spoil in ("entry", "term", "revision"):
        cluster = ScriptedCluster()
        cluster.commit(Tick())
        data = cluster.log[-1][0][1:]
        machine = LockMachine()
        machine.apply(decode_entry(data))
        if spoil == "revision":
            machine.apply(decode_entry(data))
        with objects("apply-order" if spoil == "revision" else "committed-entry"):
            cluster.checkers.applied(
                "b", 2, 2 if spoil == "term" else 1, data + b"!" if spoil == "entry" else data, machine, ()
            )


def test_an_entry_that_is_left_out() -> None:
    """A first apply that skips a revision, and a restored state of a revision that never was, are found."""
    cluster = ScriptedCluster()
    data = cluster.entry(Tick())
    cluster.append(data)
    for node_id in ("a", "b"):
        cluster.promise(node_id)
    cluster.machines["a"].apply(decode_entry(data))
    with objects("apply-order"):
        cluster.apply("a", data)
    with objects("apply-order"):
        cluster.checkers.restored("b", 9, cluster.machines["a"])


def test_a_commit_without_a_majority() -> None:
    """An entry that only one node promised, or promised in an older term, is not committed."""
    cluster = ScriptedCluster()
    data = cluster.entry(Tick())
    cluster.append(data)
    cluster.promise("a")
    cluster.checkers.sent("b", "a", promise(1, 1))
    cluster.checkers.sent("c", "a", promise(0, 2))
    cluster.checkers.sent("c", "a", promise(1, 2) | {"success": False})
    with objects("committed-by-majority"):
        cluster.apply("a", data)


def test_five_nodes_need_three() -> None:
    """The majority is one of the members at the time."""
    cluster = ScriptedCluster()
    cluster.checkers.members("abcde")
    data = cluster.entry(Tick())
    cluster.append(data)
    for node_id in ("a", "b"):
        cluster.promise(node_id)
    with objects("committed-by-majority"):
        cluster.apply("a", data)
    cluster = ScriptedCluster()
    cluster.checkers.members("abcde")
    cluster.commit(Tick())


def test_a_promise_before_the_sync() -> None:
    """An acknowledgement of what is not on the disk is found, if the truth about the disk is told."""
    cluster = ScriptedCluster()
    cluster.checkers.synced("b", 4)
    cluster.checkers.sent("b", "a", promise(1, 4))
    with objects("promise-on-disk"):
        cluster.checkers.sent("b", "a", promise(1, 5))


def test_a_promise_that_leaves_when_its_term_is_over() -> None:
    """What was promised in the term before may have been cut by the leader of the next one meanwhile."""
    cluster = ScriptedCluster()
    cluster.checkers.follows("b", 2)
    cluster.checkers.synced("b", 4)
    cluster.checkers.sent("b", "a", promise(1, 5))
    with objects("promise-on-disk"):
        cluster.checkers.sent("b", "a", promise(2, 5))


def test_a_disk_that_forgets_a_promise() -> None:
    """A log that comes back shorter than promised in its term is found; a newer term may have cut it."""
    cluster = ScriptedCluster()
    cluster.checkers.sent("b", "a", promise(1, 5))
    cluster.checkers.recovered("b", 2, None, entries(1, 1))
    cluster.checkers.sent("c", "a", promise(1, 5))
    with objects("promise-kept"):
        cluster.checkers.recovered("c", 1, None, entries(1, 1))


def test_a_replaced_disk() -> None:
    """A node that comes back with an empty disk, as an operator wanted it, breaks no promise."""
    cluster = ScriptedCluster()
    cluster.checkers.sent("b", "a", promise(1, 5))
    cluster.checkers.stored("b", 1, "a")
    cluster.checkers.replaced("b")
    cluster.checkers.recovered("b", 0, None, ListLog())
    assert cluster.checkers.violation is None


def test_a_state_that_differs() -> None:
    """A replica whose state differs is found: at once in what is cheap to see, else at the next digest."""
    cluster = ScriptedCluster()
    cluster.commit(Tick())
    cluster.machines["b"].state.next_token += 1
    with objects("equal-digest"):
        cluster.commit(Tick())
    cluster = ScriptedCluster(digest_every=4)
    cluster.ask(acquire("h1"))
    for node_id in ("b", "c"):
        cluster.machines[node_id].state.holds[HoldId("h1")].owner = OwnerName("another")
    cluster.commit(Tick())
    cluster.commit(Tick())
    with objects("equal-digest"):
        cluster.commit(Tick())


def test_a_snapshot_that_lost_something() -> None:
    """A restored state without its requests, or with another token counter, is found at once."""
    cluster = ScriptedCluster(digest_every=1000)
    cluster.ask(acquire("h1", request_id="r1", owner="one"))
    for field, value in (("requests", RequestMemory()), ("next_token", 1)):
        spoilt = LockMachine(snapshot.decode(snapshot.encode(cluster.machine.state)))
        setattr(spoilt.state, field, value)
        with objects("equal-digest"):
            cluster.checkers.restored("b", 2, spoilt)


def test_all_nodes_wrong_together() -> None:
    """A state that all nodes agree on and the model does not is found: in a counter, or in a view."""
    cluster = ScriptedCluster()
    for machine in cluster.machines.values():
        machine.state.next_token += 1
    with objects("model-state"):
        cluster.commit(Tick())
    cluster = ScriptedCluster(digest_every=2)
    cluster.ask(acquire("h1"))
    for machine in cluster.machines.values():
        machine.state.holds[HoldId("h1")].expires_at_ms += 5
    cluster.call(KeepAlive(SessionId("s9")))
    with objects("model-state"):
        cluster.commit(KeepAlive(SessionId("s9")))


def test_the_end_is_compared() -> None:
    """States that differ at the end are found, whatever the revision."""
    cluster = ScriptedCluster(digest_every=1000)
    cluster.ask(acquire("h1"))
    cluster.machines["c"].state.holds[HoldId("h1")].owner = OwnerName("another")
    with objects("equal-digest"):
        cluster.checkers.finish(cluster.machines)
