"""What a node counts of the commands that it answers."""

from cluster.observing.metrics import NodeMetrics
from lockstate.words.ids import HoldId
from lockstate.words.results import Done, NumberedDone, Queued, QuotaExceeded, Reason, Refused, Released


def test_commands_are_counted_by_result() -> None:
    """A refusal by its reason, all else by what it is."""
    metrics = NodeMetrics(lambda: ())
    for result in (Released(), Queued(HoldId("h1"), 1), Released(), Refused(Reason.LOCK_HELD, "held")):
        metrics.answered(result)
    assert metrics.commands == {"released": 2, "queued": 1, "lock-held": 1}


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
