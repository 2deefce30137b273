"""What a node counts of the commands that it answers."""

from cluster.observing.metrics import NodeMetrics
from lockstate.words.ids import HoldId
from lockstate.words.modes import Mode
from lockstate.words.refusals import QuotaExceeded, Reason, Refused
from lockstate.words.results import (
    CellWritten,
    Done,
    Granted,
    GrantedSeveral,
    NumberedDone,
    Queued,
    Released,
    Result,
)


def test_commands_are_counted_by_result() -> None:
    """A refusal by its reason, all else by what it is."""
    metrics = NodeMetrics(lambda: ())
    for result in (Released(), Queued(HoldId("h1"), 1), Released(), Refused(Reason.LOCK_HELD, "held")):
        metrics.answered(result)
    assert metrics.commands == {"released": 2, "queued": 1, "lock-held": 1}


def test_the_words_of_results_are_spelt_like_the_reasons_of_refusals() -> None:
    """With hyphens; a grant of several kinds is counted as any other, alone or in a frame."""
    metrics = NodeMetrics(lambda: ())
    results: list[Result] = [
        Granted(HoldId("h1"), 1, "a", Mode.EXCLUSIVE, 1000),
        GrantedSeveral(HoldId("h2"), 2, "", Mode.EXCLUSIVE, 1000),
        CellWritten(1, 1, 1),
    ]
    for result in results:
        metrics.answered(result)
    metrics.answered(NumberedDone(tuple(results)))
    assert metrics.commands == {"granted": 4, "cell-written": 2}


def test_of_a_frame_each_command_is_counted() -> None:
    """Also the refusal behind which nothing of it was applied; a stream is no other way to count."""
    metrics = NodeMetrics(lambda: ())
    refused = [Refused(reason, "") for reason in (Reason.LOCK_HELD, Reason.OVERLOADED, Reason.LOCK_HELD)]
    over = QuotaExceeded(Reason.QUOTA_EXCEEDED, "")
    metrics.answered(NumberedDone((Done(), *refused, Released(), over, Done())))
    metrics.answered(NumberedDone((), refused[1]))
    metrics.answered(NumberedDone(()))
    assert metrics.commands == {
        "done": 2,
        "released": 1,
        "lock-held": 2,
        "overloaded": 2,
        "quota-exceeded": 1,
    }
