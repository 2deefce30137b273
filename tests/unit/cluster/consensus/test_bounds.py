"""What no correct peer says: it reaches neither the library nor the disk, and stops nobody."""

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.consensus import bounds, member_list
from cluster.consensus.bounds import INDEX_MAX, TERMS_AT_ONCE, TERMS_PER_S, Implausible, TermBound, check
from cluster.consensus.member_list import MemberRecord, Members
from cluster.consensus.messages import (
    UNSET,
    Acknowledgement,
    AppendEntries,
    Chunk,
    Message,
    NewerTerm,
    PreVoteGranted,
    PreVoteRequest,
    SnapshotPosition,
    TakeOver,
    Vote,
    VoteRequest,
    decode,
)
from cluster.errors import PeerFault
from cluster.storage.journal_format import LogEntry
from cluster.storage.snapshot_format import SnapshotId
from tests.support.replica_parts import LibraryClock
from tests.unit.cluster.consensus.one_replica import COMMAND, MEMBERS, Site, members_of

TERM_MAX = 1_000
FAR = 2**64 - 1
NOWHERE = MEMBERS + member_list.encode(Members({"n9": MemberRecord("nowhere", is_voter=True)}))
ENTRIES = [(COMMAND + b"a", 8, 2), (COMMAND + b"b", 9, 3)]


def append(entries: list[LogEntry], *, index: int = 7, before: int = 2, term: int = 3) -> AppendEntries:
    """Return entries of a leader."""
    return AppendEntries(
        term=term, commit_index=5, entries=entries, previous_index=index, previous_term=before
    )


def chunk(data: bytes, offset: int, **of: Any) -> AppendEntries:
    """Return a part of a snapshot of 100 bytes."""
    snapshot_id = SnapshotId(50, 2, 100, b"d" * 32)._replace(**of)
    return AppendEntries(term=3, commit_index=60, chunk=Chunk(data, offset, is_last=False, id=snapshot_id))


def test_what_correct_nodes_say_passes() -> None:
    """Entries that follow each other, chunks up to the end of a snapshot, signs of life."""
    for message in (
        append(ENTRIES),
        append([]),
        append([(MEMBERS + member_list.encode(members_of(["n1"])), 8, 3)]),
        AppendEntries(term=TERM_MAX, commit_index=INDEX_MAX),
        AppendEntries(term=3, commit_index=60, chunk=None),
        chunk(b"", 0),
        chunk(b"x" * 50, 50),
        Acknowledgement(next_index=1, reset=True, success=False, term=3),
        VoteRequest(term=3, last_log_index=9, last_log_term=2),
        PreVoteRequest(term=1, last_log_index=1, last_log_term=0),
        SnapshotPosition(term=3, digest=b"d", offset=1),
    ):
        check(message, TERM_MAX)


@pytest.mark.parametrize(
    "message",
    [
        AppendEntries(term=TERM_MAX + 1, commit_index=1),
        NewerTerm(term=FAR),
        VoteRequest(term=FAR, last_log_index=1, last_log_term=0),
        PreVoteRequest(term=FAR, last_log_index=1, last_log_term=0),
        Vote(term=FAR),
        TakeOver(term=FAR),
        PreVoteGranted(term=FAR),
        SnapshotPosition(term=FAR, digest=b"", offset=0),
        Acknowledgement(next_index=2, reset=False, success=True, term=FAR),
    ],
)
def test_no_message_brings_a_term_of_the_far_future(message: Message) -> None:
    """Whatever it is: a term is stored, and one that is too large would stay for ever."""
    with pytest.raises(Implausible, match=f"term {message.term}, and no election"):
        check(message, TERM_MAX)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (AppendEntries(term=3, commit_index=FAR), "commit index"),
        (append([], index=FAR), "0 entries behind"),
        (append(ENTRIES, index=INDEX_MAX - 1), "2 entries behind"),
        (append([], before=4), "in term 3"),
        (append([(COMMAND, 9, 2)]), "entry 9 where 8 is due"),
        (append([(COMMAND, 8, 2), (COMMAND, 8, 2)]), "entry 8 where 9 is due"),
        (append([(COMMAND, 8, 2), (COMMAND, 10, 2)]), "entry 10 where 9 is due"),
        (append([(COMMAND, 7, 2)]), "entry 7 where 8 is due"),
        (append([(COMMAND, -8, 2)]), "entry -8 where 8 is due"),
        (append([(COMMAND, 8, 1)]), "entry 8 of term 1, between terms 2 and 3"),
        (append([(COMMAND, 8, 4)]), "entry 8 of term 4, between terms 2 and 3"),
        (append([(COMMAND, 8, 3), (COMMAND, 9, 2)]), "entry 9 of term 2, between terms 3 and 3"),
        (append([(b"", 8, 2)]), "entry 8 of 0 bytes"),
        (append([(COMMAND + bytes(bounds.ENTRY_BYTES_MAX), 8, 2)]), "entry 8 of 2097153 bytes"),
        (append([(MEMBERS + b"garbage", 8, 2)]), "entry 8: no member list"),
        (append([(NOWHERE, 8, 2)]), "must be HOST:PORT"),
        (chunk(b"x" * 51, 50), "51 bytes at 50"),
        (chunk(b"", 101), "0 bytes at 101"),
        (chunk(b"", 0, size_bytes=-1), "of the snapshot"),
        (chunk(b"", 0, size_bytes=2**62), "of the snapshot"),
        (chunk(b"", 0, last_index=FAR), "of the snapshot"),
        (chunk(b"", 0, last_term=4), "of the snapshot"),
        (Acknowledgement(next_index=0, reset=True, success=False, term=3), "up to 0"),
        (Acknowledgement(next_index=FAR, reset=True, success=False, term=3), "up to"),
        (VoteRequest(term=3, last_log_index=FAR, last_log_term=2), "a log that ends at"),
        (PreVoteRequest(term=3, last_log_index=1, last_log_term=4), "a log that ends at"),
    ],
)
def test_what_makes_no_sense_is_a_fault_of_the_peer(message: Message, reason: str) -> None:
    """Gaps, repetitions, terms that fall, places beyond any log."""
    with pytest.raises(Implausible, match=reason):
        check(message, TERM_MAX)


def test_the_bound_of_terms_rises_with_time() -> None:
    """Who was away for very long, or joins a very old cluster, waits; nobody is shut out for good."""
    bound = TermBound(50, now_s=10.0)
    assert bound.term_max(10.0) == 50 + TERMS_AT_ONCE
    assert bound.term_max(12.0) == 50 + TERMS_AT_ONCE + 2 * TERMS_PER_S
    assert bound.term_max(1e30) == INDEX_MAX


def test_a_term_of_the_far_future_is_not_stored(follower: Site) -> None:
    """37 bytes with 2^64 - 1 in them: no election was possible any more, after any restart."""
    follower.follow()
    for message in (NewerTerm(term=FAR), AppendEntries(term=FAR, commit_index=1), NewerTerm(term=2_000_000)):
        with pytest.raises(Implausible):
            follower.replica.receive("n3", message)
    assert (follower.replica.engine.term, follower.journal.is_dirty) == (1, False)
    follower.replica.receive("n3", NewerTerm(term=TERMS_AT_ONCE))
    assert follower.journal.term == TERMS_AT_ONCE


@pytest.mark.parametrize(
    "entries",
    [
        [(COMMAND, 5, 1)],
        [(COMMAND, 4, 1), (COMMAND, 6, 1)],
        [(COMMAND, 4, 1), (COMMAND, 4, 1)],
        [(COMMAND, 2, 1)],
        [(MEMBERS, 4, 1)],
        [(NOWHERE, 4, 1)],
        [(b"", 4, 1)],
    ],
)
def test_entries_that_do_not_follow_each_other_stop_nobody(follower: Site, entries: list[LogEntry]) -> None:
    """They went to the library, whose assertion stopped all whom they reached; none is appended."""
    follower.follow()
    follower.replica.receive("n1", follower.append([1, 1], commit=2))
    follower.journal.sync()
    before = follower.journal[:]
    bad = AppendEntries(term=1, commit_index=2, entries=entries, previous_index=3, previous_term=1)
    with pytest.raises(Implausible):
        follower.replica.receive("n1", bad)
    assert (follower.journal[:], follower.journal.is_dirty) == (before, False)
    follower.replica.receive("n1", follower.append([1]))
    assert follower.last[1] == 4


NUMBERS = st.sampled_from([0, 1, 2, 3, 4, 5, 7, INDEX_MAX, FAR]) | st.integers(0, 6)
INNER = st.tuples(
    st.sampled_from([COMMAND + b"x", COMMAND + b"y", MEMBERS, b"", b"\x01"]), NUMBERS | st.just(-1), NUMBERS
)
IDS = st.builds(SnapshotId, NUMBERS, NUMBERS, NUMBERS | st.just(-1), st.binary(max_size=33))


def nearly(index: int, term: int, steps: list[tuple[int, int, bytes]]) -> AppendEntries:
    """Return entries that nearly follow each other: each with its step of index and of term."""
    entries, previous = [], (index, term)
    for by_index, by_term, command in steps:
        index, term = index + by_index, term + by_term
        entries.append((command, index, term))
    return append(entries, index=previous[0], before=previous[1], term=max(term, 1))


STEPS = st.tuples(
    st.sampled_from([1, 1, 1, 1, 0, 2, -1]),
    st.sampled_from([0, 0, 0, 1, -1]),
    st.sampled_from([COMMAND + b"x", COMMAND + b"x", MEMBERS, b""]),
)
CHUNKS = st.builds(Chunk, st.binary(max_size=9), NUMBERS, st.booleans(), IDS)
MESSAGES = st.one_of(
    st.builds(nearly, st.integers(1, 4), st.integers(0, 1), st.lists(STEPS, min_size=1, max_size=4)),
    st.builds(
        AppendEntries,
        term=NUMBERS,
        commit_index=NUMBERS,
        entries=st.lists(INNER, max_size=3),
        previous_index=NUMBERS,
        previous_term=NUMBERS,
    ),
    st.builds(
        AppendEntries,
        term=NUMBERS,
        commit_index=NUMBERS,
        chunk=st.just(UNSET)
        | st.none()
        | st.builds(Chunk, st.binary(max_size=9), NUMBERS, st.booleans(), IDS),
    ),
    st.builds(
        Acknowledgement,
        next_index=NUMBERS,
        reset=st.booleans(),
        success=st.booleans(),
        term=NUMBERS,
    ),
    *(
        st.builds(kind, term=NUMBERS, last_log_index=NUMBERS, last_log_term=NUMBERS)
        for kind in (VoteRequest, PreVoteRequest)
    ),
    *(st.builds(kind, term=NUMBERS) for kind in (Vote, TakeOver, NewerTerm, PreVoteGranted)),
    st.builds(SnapshotPosition, term=NUMBERS, digest=st.binary(max_size=33), offset=NUMBERS),
)
"""Anything that a peer could write, made of numbers that are often wrong in one place only."""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    said=st.lists(st.tuples(st.sampled_from(["n1", "n9"]), MESSAGES | st.none()), max_size=12),
    leads=st.booleans(),
)
def test_whatever_peers_say_stops_no_node(
    tmp_path_factory: pytest.TempPathFactory,
    clock: LibraryClock,
    said: list[tuple[str, Message | None]],
    leads: bool,  # noqa: FBT001 - hypothesis names it
) -> None:
    """Nothing but faults of peers comes of it; what is committed stays.

    n1 and n9 only: if n1 and n3 both said that another history is committed, a majority would have said so.
    """
    site = Site(tmp_path_factory.mktemp("any"), clock)
    if leads:
        site.lead()
        site.replica.tick(has_entry=False)
    else:
        site.follow()
        site.replica.receive("n1", site.append([1, 1], commit=3))
    site.journal.sync()
    committed = site.journal[:2]
    site.replica.tick(has_entry=False)
    for peer_id, message in said:
        clock.now_s += 0.01
        if message is None:
            site.journal.sync()
            site.replica.tick(has_entry=False)
            continue
        assert decode(msgspec.msgpack.encode(message)) == message
        with contextlib.suppress(PeerFault):
            site.replica.receive(peer_id, message)
    assert site.journal[:2] == committed
    site.close()
