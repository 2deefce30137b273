"""The replay of a Raft trace passes an honest run, and objects to each broken rule, planted by hand."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.simulation.checks.raft_replay import CHECKER, RaftReplay
from tests.simulation.checks.report import Report, Violation

ABC = ("a", "b", "c")
Event = tuple[Any, ...]


def asks(term: int, last: int, last_term: int) -> dict[str, Any]:
    """Return a request for a vote."""
    return {"type": "request_vote", "term": term, "last_log_index": last, "last_log_term": last_term}


def vote(term: int) -> dict[str, Any]:
    """Return a vote."""
    return {"type": "response_vote", "term": term}


def speech(
    term: int, previous: tuple[int, int], *entries: tuple[int, int], commit: int = 1
) -> dict[str, Any]:
    """Return what a leader sends."""
    place = {"prevLogIdx": previous[0], "prevLogTerm": previous[1]}
    return {"type": "append_entries", "term": term, "commit_index": commit, "entries": entries, **place}


def promise(term: int, last: int) -> dict[str, Any]:
    """Return an acknowledgement of everything up to `last`."""
    return {"type": "next_node_idx", "term": term, "next_node_idx": last + 1, "success": True}


def starts(*names: str) -> list[Event]:
    """Return the first start of these nodes."""
    return [("recovers", name, 0, None, [(1, 0, 7, None)], ABC, 1, 1) for name in names]


def elected(leader: str, voter: str, term: int, end: tuple[int, int] = (1, 0)) -> list[Event]:
    """Return an election: two of three."""
    return [
        ("votes", leader, term, leader),
        ("syncs", leader, term, leader, end[0]),
        ("sends", leader, voter, asks(term, *end)),
        ("receives", voter, leader, asks(term, *end)),
        ("votes", voter, term, leader),
        ("syncs", voter, term, leader, end[0]),
        ("sends", voter, leader, vote(term)),
        ("receives", leader, voter, vote(term)),
    ]


def made(leader: str, index: int, term: int, voters: Sequence[str] | None = None) -> list[Event]:
    """Return that a leader makes an entry."""
    return [
        ("appends", leader, index, term, 100 * term + index, voters),
        ("syncs", leader, term, leader, index),
    ]


def copied(  # noqa: PLR0917 - as an entry is told
    leader: str, name: str, index: int, term: int, before: int, voters: Sequence[str] | None = None
) -> list[Event]:
    """Return that another node, which voted for the leader, gets an entry."""
    told = speech(term, (index - 1, before), (index, term))
    return [
        ("sends", leader, name, told),
        ("receives", name, leader, told),
        ("appends", name, index, term, 100 * term + index, voters),
        ("syncs", name, term, leader, index),
        ("sends", name, leader, promise(term, index)),
        ("receives", leader, name, promise(term, index)),
    ]


def done(name: str, index: int, term: int) -> list[Event]:
    """Return that a node commits and applies."""
    return [("commits", name, index), ("applies", name, index, term, 100 * term + index)]


def honest() -> list[Event]:
    """Return a run in which a leads in term 1, and index 2 is committed by a and b."""
    return [
        *starts(*ABC),
        *elected("a", "b", 1),
        *made("a", 2, 1),
        *copied("a", "b", 2, 1, 0),
        *done("a", 2, 1),
        *done("b", 2, 1),
        ("counts", "a", ["b", "c"]),
    ]


SHORT = [*starts(*ABC), *elected("a", "b", 1), *made("a", 2, 1)]
"""Index 2 is made and not committed."""
LATER = [*honest(), *elected("b", "c", 2, (2, 1)), *made("b", 3, 2)]
"""b leads in term 2."""


def replay(events: Sequence[Event]) -> RaftReplay:
    """Replay a trace."""
    checker = RaftReplay(Report())
    for event in events:
        checker.event(event)
    return checker


def test_an_honest_run_passes() -> None:
    """Elections, copies, commits, a cut, a snapshot, a crash, a lost disk and a change of members pass."""
    run = [
        *LATER,
        *made("a", 3, 1),
        ("receives", "a", "b", speech(2, (2, 1), (3, 2))),
        ("votes", "a", 2, None),
        ("cuts", "a", 3),
        ("appends", "a", 3, 2, 203, None),
        ("syncs", "a", 2, None, 3),
        ("sends", "a", "b", promise(2, 3)),
        ("receives", "b", "a", promise(2, 3)),
        *done("b", 3, 2),
        *made("b", 4, 2, ("a", "b")),
        ("counts", "b", ["a"]),
        ("appends", "a", 4, 2, 204, ("a", "b")),
        ("syncs", "a", 2, None, 4),
        ("sends", "a", "b", promise(2, 4)),
        ("receives", "b", "a", promise(2, 4)),
        ("commits", "b", 4),
        ("compacts", "b", 3),
        ("clears", "c"),
        ("appends", "c", 3, 2, 203, None),
        ("appends", "c", 4, 2, 204, ("a", "b")),
        ("restores", "c", 4, ("a", "b")),
        ("recovers", "a", 2, None, [(3, 2, 203, None), (4, 2, 204, ("a", "b"))], ABC, 1, 1),
        ("loses-disk", "a"),
        *starts("a"),
        ("votes", "c", 7, "c"),
        ("recovers", "c", 2, "b", [(3, 2, 203, None), (4, 2, 204, ("a", "b"))], ABC, 4, 1),
        ("receives", "c", "b", asks(7, 4, 2)),
        ("votes", "c", 7, "b"),
    ]
    assert replay(run).events_count == len(run)


def alone() -> list[Event]:
    """Return that a leads alone in term 1, makes index 2, and dies before anything of that is on its disk."""
    lone, life = ("a",), ("a", 0, None, [(1, 0, 7, None)])
    return [
        ("recovers", *life, lone, 1, 1),
        ("votes", "a", 1, "a"),
        ("appends", "a", 2, 1, 102, None),
        ("recovers", *life, lone, 1, 1),
        ("votes", "a", 1, "a"),
        ("appends", "a", 2, 1, 902, None),
        ("syncs", "a", 1, "a", 2),
        ("commits", "a", 2),
    ]


def test_who_votes_alone_may_lead_again_in_a_term_that_it_lost() -> None:
    """Its vote was not on its disk, and nobody has heard of what it did: it may do something else."""
    assert replay(alone()).events_count == len(alone())


def test_a_lost_disk_takes_terms_along_that_others_have() -> None:
    """A leader that lost its disk comes back without a term that it led: the vote is gone with the disk."""
    events = [*honest(), ("loses-disk", "a"), *starts("a"), *starts("a")]
    assert replay(events).events_count == len(events)


def test_nobody_hears_of_a_term_that_is_not_on_its_leaders_disk() -> None:
    """A learner that has an entry of it would have another log than the cluster."""
    events = alone()
    learner = ("recovers", "b", 0, None, [(1, 0, 7, None)], ("a",), 1, 1)
    told = speech(1, (1, 0), (2, 1))
    heard = [("sends", "a", "b", told), ("receives", "b", "a", told), ("appends", "b", 2, 1, 102, None)]
    with pytest.raises(Violation, match="led with a vote not on its disk"):
        replay([events[0], learner, *events[1:3], *heard, *events[3:]])


def test_an_old_election_may_end_late() -> None:
    """A leader of an old term need not have what was committed in a later one."""
    late = [
        *starts(*ABC),
        *elected("a", "b", 1),
        ("votes", "c", 2, "c"),
        ("syncs", "c", 2, "c", 1),
        ("receives", "b", "c", asks(2, 1, 0)),
        ("votes", "b", 2, "c"),
        ("syncs", "b", 2, "c", 1),
        ("sends", "b", "c", vote(2)),
        ("receives", "c", "b", vote(2)),
        *made("c", 2, 2),
        *copied("c", "b", 2, 2, 0),
        *done("c", 2, 2),
        *made("a", 2, 1),
    ]
    replay(late)


BROKEN = {
    "a second vote after a lost disk": [
        *SHORT,
        ("loses-disk", "b"),
        *starts("b"),
        ("receives", "b", "c", asks(1, 1, 0)),
        ("votes", "b", 1, "c"),
    ],
    "a second leader in a term": [
        *SHORT,
        ("votes", "c", 1, "c"),
        ("receives", "c", "b", vote(1)),
        ("appends", "c", 2, 1, 102, None),
        ("appends", "c", 3, 1, 103, None),
    ],
    "a leader without votes": [*starts(*ABC), ("votes", "a", 1, "a"), *made("a", 2, 1)],
    "an entry of somebody who does not lead": [
        *SHORT,
        ("votes", "c", 1, None),
        *made("c", 2, 1)[:1],
        *made("c", 3, 1),
    ],
    "a vote for another": [*SHORT, ("receives", "b", "c", asks(1, 1, 0)), ("votes", "b", 1, "c")],
    "a vote that nobody asked for": [*starts(*ABC), ("votes", "b", 1, "a")],
    "a vote for an older log": [
        *honest(),
        ("receives", "b", "c", asks(2, 1, 0)),
        ("votes", "b", 2, "c"),
    ],
    "a term that goes back": [*SHORT, ("votes", "a", 0, None)],
    "a vote told before it is on disk": [
        *starts(*ABC),
        ("receives", "b", "a", asks(1, 1, 0)),
        ("votes", "b", 1, "a"),
        ("sends", "b", "a", vote(1)),
    ],
    "a candidate that makes its log longer": [
        *starts(*ABC),
        ("votes", "a", 1, "a"),
        ("syncs", "a", 1, "a", 1),
        ("sends", "a", "b", asks(1, 5, 0)),
    ],
    "a leader that cuts": [*SHORT, ("cuts", "a", 2)],
    "a committed entry that is cut": [*honest(), ("votes", "b", 2, None), ("cuts", "b", 2)],
    "a gap in a log": [*SHORT, *made("a", 4, 1)],
    "another entry at an index and term": [
        *SHORT,
        ("votes", "c", 1, None),
        ("appends", "c", 2, 1, 999, None),
    ],
    "a leader without a committed entry": [
        *honest(),
        ("votes", "c", 2, "c"),
        ("receives", "c", "b", vote(2)),
        ("appends", "c", 2, 2, 202, None),
    ],
    "a leader that sends what it does not have": [*SHORT, ("sends", "a", "b", speech(1, (2, 0)))],
    "a speech of somebody who does not lead": [*SHORT, ("sends", "b", "c", speech(1, (1, 0)))],
    "a commit index beyond what is committed": [*SHORT, ("sends", "a", "b", speech(1, (2, 1), commit=2))],
    "an acknowledgement before the disk": [
        *SHORT,
        ("appends", "b", 2, 1, 102, None),
        ("sends", "b", "a", promise(1, 2)),
    ],
    "an acknowledgement of another entry": [
        *LATER,
        *made("a", 3, 1),
        ("votes", "a", 2, None),
        ("syncs", "a", 2, None, 3),
        ("sends", "a", "b", promise(2, 3)),
    ],
    "a commit without a majority": [*SHORT, ("commits", "a", 2)],
    "a commit on the strength of an unsynced copy": [
        *starts(*ABC),
        *elected("a", "b", 1),
        ("appends", "a", 2, 1, 102, None),
        *copied("a", "b", 2, 1, 0),
        ("commits", "a", 2),
    ],
    "a commit of an older term": [
        *SHORT,
        *elected("a", "b", 2, (2, 1)),
        ("appends", "b", 2, 1, 102, None),
        ("syncs", "b", 2, "a", 2),
        ("sends", "b", "a", promise(2, 2)),
        ("receives", "a", "b", promise(2, 2)),
        ("commits", "a", 2),
    ],
    "a follower that commits first": [*SHORT, ("appends", "b", 2, 1, 102, None), ("commits", "b", 2)],
    "another committed entry": [
        *SHORT,
        *elected("c", "b", 2),
        *made("c", 2, 2),
        *copied("c", "b", 2, 2, 0),
        *done("c", 2, 2),
        ("commits", "a", 2),
    ],
    "an apply before the commit": [*SHORT, ("applies", "a", 2, 1, 102)],
    "an apply of something else": [
        *honest(),
        ("votes", "c", 1, None),
        ("appends", "c", 2, 1, 102, None),
        ("commits", "c", 2),
        ("applies", "c", 2, 1, 999),
    ],
    "an entry that is applied twice": [*honest(), ("applies", "a", 2, 1, 102)],
    "an entry that is left out": [
        *honest(),
        *made("a", 3, 1),
        *copied("a", "b", 3, 1, 1),
        *done("a", 3, 1),
        *made("a", 4, 1),
        *copied("a", "b", 4, 1, 1),
        *done("a", 4, 1),
        ("commits", "b", 4),
        ("applies", "b", 4, 1, 104),
    ],
    "a log that is forgotten over a crash": [
        *honest(),
        ("recovers", "b", 1, "a", [(1, 0, 7, None)], ABC, 1, 1),
    ],
    "a vote that is forgotten over a crash": [
        *SHORT,
        ("recovers", "b", 1, None, [(1, 0, 7, None)], ABC, 1, 1),
    ],
    "an entry out of nowhere": [
        *SHORT,
        ("recovers", "c", 0, None, [(1, 0, 7, None), (2, 5, 9, None)], ABC, 1, 1),
    ],
    "a log that is dropped behind a snapshot": [
        *honest(),
        *made("a", 3, 1),
        ("recovers", "a", 1, "a", [(1, 0, 7, None), (2, 1, 102, None)], ABC, 2, 2),
    ],
    "a commit index out of nowhere": [*SHORT, ("recovers", "c", 0, None, [(1, 0, 7, None)], ABC, 1, 9)],
    "what is not committed is compacted": [*SHORT, *made("a", 3, 1), ("compacts", "a", 3)],
    "two nodes change at once": [*honest(), *made("a", 3, 1, ("a",))],
    "a change before the last one is committed": [
        *honest(),
        *made("a", 3, 1, ("a", "b")),
        *made("a", 4, 1, ("a", "b", "d")),
    ],
    "a change by a leader that has committed nothing": [*LATER, *made("b", 4, 2, ("a", "b"))],
    "a list that counts and is not in the log": [*honest(), ("counts", "a", ["b"])],
    "a majority of an old list": [
        *honest(),
        *made("a", 3, 1, ("a", "b", "c", "d")),
        *copied("a", "b", 3, 1, 1, ("a", "b", "c", "d")),
        ("commits", "a", 3),
    ],
    "a snapshot with other members": [
        *honest(),
        *made("a", 3, 1, ("a", "b")),
        *copied("a", "b", 3, 1, 1, ("a", "b")),
        ("commits", "a", 3),
        ("clears", "c"),
        ("appends", "c", 2, 1, 102, None),
        ("appends", "c", 3, 1, 103, ("a", "b")),
        ("restores", "c", 3, ABC),
    ],
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_rule_is_found(what: str) -> None:
    """The last event breaks a rule, and everything before it is in order."""
    events = BROKEN[what]
    while events[-1][0] == "syncs":
        events = events[:-1]
    *before, last = events
    checker = replay(before)
    with pytest.raises(Violation) as caught:
        checker.event(last)
    assert caught.value.checker == CHECKER


def test_what_cannot_be_followed_is_a_violation() -> None:
    """An event that does not fit what was told before is objected to, too."""
    with pytest.raises(Violation):
        replay(
            [*SHORT, ("compacts", "c", 1), ("commits", "c", 1), ("compacts", "a", -5), ("votes", "a", 0, "x")]
        )
