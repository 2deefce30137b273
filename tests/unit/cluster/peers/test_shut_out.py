"""A process that runs on a copy of a directory takes no part until whoever said so lets it in."""

import pytest
from msgspec.structs import replace

from cluster.peers import objections
from cluster.peers.handshake import LogPosition, Objection
from cluster.peers.shut_out import WORDS_COUNT_MAX, ShutOut

DUPLICATE = objections.duplicate("n1")
OLDER = objections.older_copy("n1", heard=LogPosition(7, 40), theirs=LogPosition(6, 30))
VOTERS = {"n1", "n2", "n3"}


def test_a_voter_is_believed_until_it_lets_this_process_in(caplog: pytest.LogCaptureFixture) -> None:
    """Who is at another address under the same id may be a copy as well, and takes nothing back."""
    shut_out = ShutOut(lambda: VOTERS)
    for _ in range(2):
        shut_out.said("n2", "h:2", DUPLICATE)
    assert shut_out.reason.startswith("n2 says: another process with the data directory of node n1")
    shut_out.let_in("n2", "elsewhere:2", "")
    shut_out.let_in("n3", "h:2", "")
    assert shut_out.reason
    shut_out.let_in("n2", "h:2", "")
    assert shut_out.reason == ""
    assert (caplog.text.count("event=shut-out"), caplog.text.count("event=let-in-again")) == (1, 1)


def test_the_process_that_gave_its_word_takes_it_back_over_any_connection() -> None:
    """It was dialed when it did, and has dialed since; then nobody dials it again. Others do not count."""
    shut_out = ShutOut(lambda: VOTERS)
    shut_out.said("n2", "h:2", replace(DUPLICATE, run_id="a"))
    for peer_id, run_id in (("n2", ""), ("n2", "b"), ("n3", "a")):
        shut_out.let_in(peer_id, "", run_id)
        assert shut_out.reason
    shut_out.let_in("n2", "", "a")
    assert not shut_out.reason


def test_every_word_counts_for_itself() -> None:
    """One that is taken back leaves that of another; an older copy is one as well."""
    shut_out = ShutOut(lambda: VOTERS)
    shut_out.said("n2", "", DUPLICATE)
    shut_out.said("n3", "h:3", OLDER)
    shut_out.let_in("n2", "", "")
    assert "had come to entry 40 in term 7" in shut_out.reason
    assert "Do not delete anything yet" in shut_out.reason


@pytest.mark.parametrize(
    ("peer_id", "objection"), [("n9", DUPLICATE), ("n2", Objection("why", kind="not-a-member"))]
)
def test_only_voters_and_only_copies(peer_id: str, objection: Objection) -> None:
    """Who has no vote says nothing that counts; neither does anybody who only is behind."""
    shut_out = ShutOut(lambda: VOTERS)
    shut_out.said(peer_id, "h:2", objection)
    assert not shut_out.reason


def test_a_removed_voter_has_said_nothing() -> None:
    """Once it is out of the list."""
    voters = set(VOTERS)
    shut_out = ShutOut(lambda: voters)
    shut_out.said("n2", "h:2", DUPLICATE)
    voters.remove("n2")
    assert not shut_out.reason


def test_words_are_bounded() -> None:
    """However many addresses a peer has."""
    shut_out = ShutOut(lambda: VOTERS)
    for port in range(2 * WORDS_COUNT_MAX):
        shut_out.said("n2", f"h:{port}", DUPLICATE)
    assert len(shut_out.words) == WORDS_COUNT_MAX
