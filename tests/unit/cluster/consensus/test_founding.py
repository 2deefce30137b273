"""The founding of a cluster: complete only when every founder has stored every disk id, whatever happens."""

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.consensus import founding
from cluster.consensus.founding import News, Own, Peer, Progress, advance, objections
from cluster.storage.cluster_record import ClusterRecord, Founder, Founding
from tests.unit.cluster.consensus.founding_model import Advance, FoundingModel, State, explore

SAME: Mapping[str, str] = dict.fromkeys("abc", "abc")
STATES_COUNT_MAX = 100_000


def calm(model: FoundingModel, state: State, known: dict[State, State] | None = None) -> State:
    """Return where it ends when everybody is connected and everything delivered, without reboots and losses.

    `known` remembers the ends of states for the next call.
    """
    state = state._replace(reboots_left=0, losses_left=0)
    known = {} if known is None else known
    path = []
    while state not in known:
        path.append(state)
        move = next(model.moves(state), None)
        if move is None:
            known[state] = state
        else:
            state = move[1]
            model.check(state)
    known.update(dict.fromkeys(path, known[state]))
    return known[state]


# -- every order of everything ------------------------------------------------------------------------------


def test_three_founders_in_every_order() -> None:
    """In no order of connections, messages and a reboot two clusters begin.

    And wherever one runs, every founder that still has its disk recognises every other disk.
    """
    model = FoundingModel(SAME)
    states = explore(model, model.start(reboots=1, losses=0), STATES_COUNT_MAX)
    assert any(all(node.known[2] for node in state.nodes) for state in states)


def test_two_founders_in_every_order_with_reboots_and_a_loss() -> None:
    """Two nodes survive every order of two reboots and a lost disk."""
    model = FoundingModel(dict.fromkeys("ab", "ab"))
    explore(model, model.start(reboots=2, losses=1), STATES_COUNT_MAX)


def test_wherever_it_stops_it_can_go_on() -> None:
    """From every state that can be reached without a loss, the founding ends well once everything is calm."""
    model, known = FoundingModel(SAME), dict[State, State]()
    for state in explore(model, model.start(reboots=0, losses=0), STATES_COUNT_MAX):
        assert all(node.known[2] for node in calm(model, state, known).nodes)


def test_a_node_that_lost_a_disk_which_somebody_has_stored_stays_out() -> None:
    """In every order of connections, messages and the loss of a disk, whether it was stored or not."""
    model, known = FoundingModel(SAME), dict[State, State]()
    for state in explore(model, model.start(reboots=0, losses=1), STATES_COUNT_MAX):
        ended = calm(model, state, known)
        named = {
            founder.disk_id
            for node in ended.nodes
            if node.known[0]
            for founder in model.foundings[node.known[0]].nodes.values()
        }
        present = {model.disk(number, node) for number, node in enumerate(ended.nodes)}
        if named <= present:
            assert all(node.known[2] for node in ended.nodes), "nothing was lost that anybody knew"
        else:
            assert not any(node.known[2] for node in ended.nodes if node.lost_count)


CONFIGURATIONS = [
    {"a": "abc", "b": "abc", "c": "bc"},
    {"a": "abc", "b": "abc", "c": "abcd"},
    {"a": "ab", "b": "abc", "c": "abc"},
    {"a": "abcd", "b": "abc", "c": "abc"},
    {"a": "abcde", "b": "abcde", "c": "abc"},
    {"a": "ab", "b": "bc", "c": "ac"},
]


@pytest.mark.parametrize("configured", CONFIGURATIONS)
def test_founders_that_are_configured_differently_begin_nothing(configured: dict[str, str]) -> None:
    """A subset, a superset, another author: nobody takes part, in no order."""
    model = FoundingModel(configured)
    states = explore(model, model.start(reboots=0, losses=1), STATES_COUNT_MAX)
    assert not any(state.completed for state in states)


# -- the model can fail -------------------------------------------------------------------------------------


def complete_by_majority(
    own: Own, progress: Progress, peers: Mapping[str, Peer], new_cluster_id: str
) -> Progress:
    """Do not wait for the last founder: it may have lost its disk before it stored anything."""
    after = advance(own, progress, peers, new_cluster_id)
    is_enough = after.founding is not None and 2 * len(after.stored_by) > len(after.founding.nodes)
    return msgspec.structs.replace(after, is_complete=after.is_complete or is_enough)


def believe_anybody(own: Own, progress: Progress, peers: Mapping[str, Peer], new_cluster_id: str) -> Progress:
    """Take what is offered without a look at the own disk."""
    offered = [peer.news.founding for peer in peers.values() if peer.news and peer.news.founding]
    if progress.founding is None and offered:
        disk_id = offered[0].nodes[own.node_id].disk_id
        own = msgspec.structs.replace(own, disk_id=disk_id)
    return advance(own, progress, peers, new_cluster_id)


def count_the_connected(
    own: Own, progress: Progress, peers: Mapping[str, Peer], new_cluster_id: str
) -> Progress:
    """Take a connection for an acknowledgement: whom this node has met must have met this node."""
    after = advance(own, progress, peers, new_cluster_id)
    met = after.stored_by | peers.keys()
    is_enough = after.founding is not None and met >= after.founding.nodes.keys()
    return msgspec.structs.replace(after, is_complete=after.is_complete or is_enough)


@pytest.mark.parametrize(
    ("broken", "losses"), [(complete_by_majority, 0), (believe_anybody, 1), (count_the_connected, 0)]
)
def test_a_careless_founding_is_found_out(broken: Advance, losses: int) -> None:
    """What must hold is broken by each of these, so the search would see it."""
    model = FoundingModel(SAME, advance=broken)
    with pytest.raises(AssertionError):
        explore(model, model.start(reboots=0, losses=losses), STATES_COUNT_MAX)


# -- five founders, at random -------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.data())
def test_five_founders_at_random(data: st.DataObject) -> None:
    """Reboots and a lost disk at any step of five founders, and then calm: never two clusters."""
    model = FoundingModel(dict.fromkeys("abcde", "abcde"))
    state = model.start(reboots=3, losses=1)
    for _ in range(data.draw(st.integers(0, 120))):
        moves = list(model.moves(state))
        if not moves:
            break
        _, state = data.draw(st.sampled_from(moves))
        model.check(state)
    ended = calm(model, state)
    if not any(node.lost_count for node in ended.nodes):
        assert all(node.known[2] for node in ended.nodes)


# -- one step at a time -------------------------------------------------------------------------------------

OWN = Own("n1", "disk-1", {"n1": "h:1", "n2": "h:2", "n3": "h:3"})
IDS = ("n1", "n2", "n3")
READY = {"n2": Peer("disk-2", News(IDS)), "n3": Peer("disk-3", News(IDS))}
FOUNDED = Founding(
    "c1",
    {"n1": Founder("h:1", "disk-1"), "n2": Founder("h:2", "disk-2"), "n3": Founder("h:3", "disk-3")},
)


def told(stored_by: tuple[str, ...], *, is_complete: bool = False, of: Founding = FOUNDED) -> News:
    """Return what a founder tells that has stored the founding."""
    return News(IDS, of, stored_by, is_complete, of.cluster_id)


def test_a_node_of_its_own_founds_its_cluster_at_once() -> None:
    """There is nobody to wait for."""
    own = Own("n1", "disk-1", {"n1": "h:1"})
    founded = Founding("c1", {"n1": Founder("h:1", "disk-1")})
    progress = advance(own, Progress(), {}, "c1")
    assert progress == Progress(founded, frozenset({"n1"}), is_complete=True)
    assert progress.record() == ClusterRecord(cluster_id="c1", founding=founded, is_complete=True)
    assert Progress.of(progress.record(), "n1") == progress


def test_the_author_writes_when_all_are_there() -> None:
    """Only the smallest id writes, and what it has written is not complete, and no cluster id yet."""
    progress = advance(OWN, Progress(), READY, "c1")
    assert progress == Progress(FOUNDED, frozenset({"n1"}), is_complete=False)
    assert progress.record() == ClusterRecord(founding=FOUNDED)
    other = Own("n2", "disk-2", OWN.configured)
    peers = {"n1": Peer("disk-1", News(IDS)), "n3": READY["n3"]}
    assert advance(other, Progress(), peers, "c2") == Progress()


@pytest.mark.parametrize(
    "third",
    [
        None,
        Peer("disk-3"),
        Peer("disk-3", News(("n1", "n2"))),
        Peer("disk-3", News(IDS, objection="it joins another cluster")),
        Peer("disk-3", News(IDS, is_complete=True, cluster_id="c9")),
        Peer("disk-2", News(IDS)),
        Peer("disk-1", News(IDS)),
    ],
)
def test_the_author_waits_for_the_last(third: Peer | None) -> None:
    """Who is not there, has not spoken, wants something else, or is a copy, holds the founding back."""
    peers = {"n2": READY["n2"]} | ({"n3": third} if third is not None else {})
    assert advance(OWN, Progress(), peers, "c1") == Progress()


def test_the_word_of_a_node_with_another_disk_does_not_count() -> None:
    """Whoever lost its disk may say what it likes: the others have not stored that disk."""
    stored = Progress(FOUNDED, frozenset({"n1"}))
    for news in (told(("n2", "n3")), told(("n2",), is_complete=True)):
        assert advance(OWN, stored, {"n2": Peer("disk-new", news)}, "c2") == stored
        assert advance(OWN, stored, {"n2": Peer("disk-2", news)}, "c2").is_complete


def test_a_member_that_joined_later_knows_that_the_cluster_runs() -> None:
    """All other founders may have been replaced when the last one comes back."""
    stored = Progress(FOUNDED, frozenset({"n1"}))
    for cluster_id, is_complete in (("c1", True), ("c2", False)):
        peers = {"n9": Peer("disk-9", News((), is_complete=True, cluster_id=cluster_id))}
        assert advance(OWN, stored, peers, "c3").is_complete == is_complete


def test_two_foundings_are_none() -> None:
    """A node that is offered two takes neither."""
    other = msgspec.structs.replace(FOUNDED, cluster_id="c2")
    peers = {"n2": Peer("disk-2", told(("n2",))), "n3": Peer("disk-3", told(("n3",), of=other))}
    assert advance(OWN, Progress(), peers, "c3") == Progress()
    del peers["n3"]
    assert advance(OWN, Progress(), peers, "c3").founding == FOUNDED


@pytest.mark.parametrize(
    ("own", "stored", "news", "said"),
    [
        (
            OWN,
            None,
            News(("n1", "n2")),
            "`peers` of n2 names n1,n2, and `peers` of n1 names n1,n2,n3: correct",
        ),
        (OWN, None, News((), objection="it joins"), "n2 founds nothing: it joins"),
        (
            OWN,
            None,
            News((), is_complete=True, cluster_id="c9"),
            "n2 belongs to cluster c9, which is running: to join it, start n1 with --join",
        ),
        (
            Own("n1", "disk-1", {"n1": "h:1", "n2": "h:2"}),
            None,
            told(("n2",)),
            "founded by n1,n2,n3, and `peers` of n1 names n1,n2: correct",
        ),
        (
            Own("n1", "disk-new", OWN.configured),
            None,
            told(("n2",)),
            "with disk disk-1 of n1, and its data directory now is disk disk-new. No node of this",
        ),
        (
            OWN,
            msgspec.structs.replace(FOUNDED, cluster_id="c2"),
            told(("n2",)),
            "n2 has stored the founding of cluster c1, and n1 that of another. No node of this cluster was",
        ),
    ],
)
def test_what_holds_the_founding_back_is_said(
    own: Own, stored: Founding | None, news: News, said: str
) -> None:
    """With both lists, or both disks, and what to do."""
    progress = Progress(stored, frozenset({"n1"} if stored else ()))
    (why,) = objections(own, progress, {"n2": Peer("disk-2", news), "n3": Peer("disk-3")})
    assert said in why


@pytest.mark.parametrize(
    "change",
    [
        {"cluster_id": ""},
        {"cluster_id": "c" * 65},
        {"group": 1},
        {"groups_count": 2},
        {"nodes": {**FOUNDED.nodes, "n3": Founder("nowhere", "disk-3")}},
        {"nodes": {**FOUNDED.nodes, "n3": Founder("h:3", "disk-2")}},
        {"nodes": {**FOUNDED.nodes, "n3": Founder("h:3", "")}},
    ],
)
def test_a_founding_that_makes_no_sense_is_not_stored(change: dict[str, object]) -> None:
    """It would be the first entry of the log, for ever: no list with addresses that nobody can dial."""
    peers = {"n2": Peer("disk-2", told(("n2",), of=msgspec.structs.replace(FOUNDED, **change)))}
    assert advance(OWN, Progress(), peers, "c3") == Progress()
    (why,) = objections(OWN, Progress(), peers)
    assert "not a valid founding" in why


def test_copied_directories_are_named() -> None:
    """Two nodes with one disk id are copies, whoever of them is asked."""
    peers = {"n2": Peer("disk-1", News(IDS)), "n3": Peer("disk-3", News(IDS))}
    (why,) = objections(OWN, Progress(), peers)
    assert why.startswith("the data directories of n1,n2 are copies of one another (disk disk-1)")
    assert not objections(OWN, Progress(), READY)


def test_what_is_told_survives_its_bytes() -> None:
    """And news of a later release, with more at the end, are read as far as they are known."""
    sent = founding.news(OWN, Progress(FOUNDED, frozenset({"n1", "n3"}), is_complete=True))
    assert sent == told(("n1", "n3"), is_complete=True)
    data = msgspec.msgpack.encode(sent)
    assert msgspec.msgpack.decode(data, type=News) == sent
    longer = msgspec.msgpack.encode([*msgspec.msgpack.decode(data), "more"])
    assert msgspec.msgpack.decode(longer, type=News) == sent
