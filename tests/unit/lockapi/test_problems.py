"""Problem documents: what a refusal or an exception becomes."""

import pytest

from cluster import errors
from holdfast import wire
from lockapi import problems
from lockapi.problems import ProblemError
from lockstate.words.refusals import Reason, Refused


def test_a_refusal_keeps_what_the_state_machine_said() -> None:
    """Reason, detail and numbers of a refusal are those of its document."""
    refused = Refused(Reason.NO_PERMITS, "only 1", retry_after_ms=1, facts={"available": 1, "limit": 3})
    document = problems.document(problems.refusal(refused), "r-1")
    assert (document.code, document.detail, document.retry_after_ms) == ("no-permits", "only 1", 1)
    assert (document.available, document.limit) == (1, 3)
    assert (document.holders, document.queue_length) == ((), 0)


def test_a_document_has_the_status_title_and_outcome_of_its_code() -> None:
    """They come from the public table."""
    for code, kind in wire.PROBLEMS.items():
        document = problems.document(ProblemError(code, "why"), "r-1")
        assert (document.status, document.title, document.outcome) == (kind.status, kind.title, kind.outcome)
        assert document.type == wire.PROBLEM_TYPE_PREFIX + code
        assert (document.detail, document.request_id) == ("why", "r-1")


def test_the_instance_does_not_quote_what_a_client_sent() -> None:
    """The request id is percent-encoded, so that the instance is a URI whatever the id is."""
    document = problems.document(ProblemError("internal", "x"), "a/b ü")
    assert document.instance == "urn:holdfast:request:a%2Fb%20%C3%BC"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.NoLeader("none"), "no-leader"),
        (errors.ShuttingDown("stopping"), "shutting-down"),
        (errors.OutcomeUnknown("lost"), "outcome-unknown"),
    ],
)
def test_a_failure_of_the_world_has_its_code(error: errors.ClusterError, code: str) -> None:
    """Its text is the detail; without one, the title of the code is."""
    problem = problems.of_exception(error)
    assert (problem.code, problem.detail) == (code, str(error))
    assert problems.of_exception(type(error)()).detail == wire.PROBLEMS[code].title


def test_an_unforeseen_exception_gives_nothing_away() -> None:
    """It is internal, and its text stays in the log."""
    problem = problems.of_exception(RuntimeError("secret"))
    assert problem.code == "internal"
    assert "secret" not in problem.detail


def test_a_problem_stays_the_problem_that_it_is() -> None:
    """What a face or a check raised is answered as it is."""
    problem = ProblemError("not-found", "x")
    assert problems.of_exception(problem) is problem


def test_what_a_stale_read_misses_may_be_known_elsewhere() -> None:
    """The refusal of a stale read says how old the state was that it looked at."""
    problem = problems.as_of(ProblemError("session-expired", "it never was"), revision=9, lag_ms=40)
    document = problems.document(problem, "r")
    assert (document.code, document.revision, document.lag_ms) == ("session-expired", 9, 40)
    assert document.detail.startswith("it never was, or ")


def test_a_gap_in_the_history_says_where_it_ends() -> None:
    """`oldest` is the place from which a client can go on."""
    document = problems.document(problems.compacted("gone", 7), "r")
    assert (document.code, document.oldest) == ("compacted", 7)


@pytest.mark.parametrize("reason", [Reason.LOCK_HELD, Reason.NO_PERMITS])
def test_what_is_held_is_asked_for_again_and_not_by_all_at_once(reason: Reason) -> None:
    """The pause is half to all of what the state machine says; it varies."""
    for left_ms, least_ms, most_ms in ((1000, 500, 1000), (90, 45, 90), (1, 1, 1)):
        refused = Refused(reason, "held by ann", retry_after_ms=left_ms)
        pauses_ms = {problems.refusal(refused).retry_after_ms for _ in range(200)}
        assert least_ms <= min(pauses_ms) <= max(pauses_ms) <= most_ms
        assert len(pauses_ms) > 1 or most_ms == 1
