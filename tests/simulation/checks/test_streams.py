"""The checker of streams objects to numbers that go back, come twice, or are of a connection that is over."""

import msgspec

from lockstate.words.commands.holds import Release, Renew
from lockstate.words.commands.primitives import AdvanceFence
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.commands.streams import Numbered, NumberedCommand, ResumeStream
from lockstate.words.ids import HoldId, SessionId
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import (
    FenceAdvanced,
    FrameRefused,
    Granted,
    NumberedDone,
    Queued,
    Renewed,
    Result,
    StreamFault,
    StreamResumed,
)
from tests.simulation.checks.scripted_cluster import ScriptedCluster, acquire, objects
from tests.simulation.workload.history import Call

SESSION = SessionId("s1")


class Streaming(ScriptedCluster):
    """A cluster with one stream in its first epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.ask(OpenSession(SESSION, 60_000, {}, "r0"))
        self.ask(ResumeStream(SESSION))

    def frame(self, first: int, *commands: NumberedCommand, epoch: int = 1) -> Numbered:
        """Return a frame of the stream."""
        return Numbered(len(commands), SESSION, epoch, first, (), commands)

    def send(self, first: int, *commands: NumberedCommand, epoch: int = 1) -> Result:
        """Send a frame, and tell what came of it."""
        return self.ask(self.frame(first, *commands, epoch=epoch))

    def tell(self, command: Numbered | ResumeStream, result: Result) -> None:
        """Tell the streams' own checker that a command had this result, which no entry has to say."""
        call = self.history.calls[self.call(command)]
        self.checkers.streams.replied(call, result, self.machine.revision + 1)


def done(*results: Result) -> NumberedDone:
    """Return what came of a frame."""
    return NumberedDone(results)


def granted(hold: str, token: int) -> Granted:
    """Return the answer to a granted acquire of x."""
    first = acquire(hold)
    return Granted(HoldId(hold), token, first.name, first.mode, 1000)


def test_right_streams_pass() -> None:
    """Frames, repeated ones, waits that end, and a stream that is resumed pass when told as they are."""
    cluster = Streaming()
    cluster.send(1, acquire("h1"), AdvanceFence("f", 1))
    waiting = cluster.frame(3, acquire("h2", ttl_ms=1000, wait_ms=5000))
    call = cluster.history.calls[cluster.call(waiting)]
    revision = cluster.commit(waiting)
    cluster.reply(call.number, cluster.results[cluster.last_seq], revision)
    cluster.ask(ResumeStream(SESSION))
    again = cluster.send(1, acquire("h1-again"), AdvanceFence("f", 1), epoch=2)
    assert isinstance(again, NumberedDone)
    assert again.results[0].hold_id == "h1"  # type: ignore[union-attr]
    cluster.send(4, Release(HoldId("h1")), epoch=2)
    revision, result = cluster.wait_ends["h2"]
    cluster.history.ended(call, 3, result, revision, cluster.now_us)
    assert cluster.checkers.violation is None
    assert cluster.history.known_token == 2


def test_another_outcome_of_a_number() -> None:
    """A number that is told anew must have the hold, and the kind of outcome, that it had."""
    for told in (granted("h9", 1), msgspec.convert([11, "lock-held", ""], Refused)):
        cluster = Streaming()
        frame = cluster.frame(1, acquire("h1"))
        cluster.tell(frame, done(granted("h1", 1)))
        with objects("stream-once"):
            cluster.tell(frame, done(told))


def test_a_wait_after_its_end() -> None:
    """What has come to its end does not wait later."""
    cluster = Streaming()
    frame = cluster.frame(1, acquire("h1"))
    cluster.tell(frame, done(granted("h1", 1)))
    cluster.commit()
    with objects("stream-once"):
        cluster.tell(frame, done(Queued(HoldId("h1"), 1)))


def test_an_answer_that_is_older_than_that_of_a_repetition() -> None:
    """A renewal was done, and a repetition finds its hold over; it cannot be done after that."""
    cluster = Streaming()
    frame = cluster.frame(1, Renew(HoldId("h1")))
    late = [cluster.history.calls[cluster.call(frame)] for _ in range(2)]
    before = cluster.machine.revision
    cluster.commit()
    cluster.tell(frame, done(Refused(Reason.LEASE_EXPIRED, "")))
    cluster.checkers.streams.replied(late[0], done(Renewed(1, 1000)), before)
    with objects("stream-once"):
        cluster.checkers.streams.replied(late[1], done(Renewed(1, 1000)), cluster.machine.revision + 1)


def test_a_number_that_was_given_to_something_else() -> None:
    """Once a number belongs to another command, the first one has no outcome under it."""
    cluster = Streaming()
    old = cluster.frame(1, acquire("h1"))
    late = cluster.history.calls[cluster.call(old)]
    cluster.tell(ResumeStream(SESSION), StreamResumed(2, 0))
    cluster.tell(cluster.frame(1, AdvanceFence("f", 1), epoch=2), done())
    with objects("stream-once"):
        cluster.checkers.streams.replied(late, done(granted("h1", 1)), cluster.machine.revision)


def test_a_stream_that_goes_back() -> None:
    """What was told to be applied is applied for whoever resumes; epochs only rise."""
    cluster = Streaming()
    cluster.tell(cluster.frame(1, acquire("h1")), done(granted("h1", 1)))
    with objects("stream-last"):
        cluster.tell(ResumeStream(SESSION), StreamResumed(2, 0))
    cluster = Streaming()
    with objects("stream-epoch"):
        cluster.tell(ResumeStream(SESSION), StreamResumed(1, 0))


def test_a_connection_that_is_over() -> None:
    """After a welcome nothing more is applied of what was sent before it."""
    cluster = Streaming()
    cluster.call(cluster.frame(1, acquire("h1")))
    cluster.tell(ResumeStream(SESSION), StreamResumed(2, 0))
    with objects("stream-epoch"):
        cluster.tell(ResumeStream(SESSION), StreamResumed(3, 1))


def test_frames_that_overtake_each_other() -> None:
    """What was sent first over a connection is not done behind what found it lacking."""
    for is_first_told_last, lacking_at in ((True, 5), (False, 5), (True, 6)):
        cluster = Streaming()
        sent = [cluster.call(cluster.frame(number, AdvanceFence("f", number))) for number in (1, 2)]
        first, second = [cluster.history.calls[number] for number in sent]
        told: list[tuple[Call, Result, int]] = [
            (second, FrameRefused(StreamFault.GAP, 0), lacking_at),
            (first, done(FenceAdvanced(1)), 6),
        ]
        if not is_first_told_last:
            told.reverse()
        cluster.checkers.streams.replied(*told[0])
        with objects("stream-order"):
            cluster.checkers.streams.replied(*told[1])


def test_a_frame_that_came_too_early_and_comes_again() -> None:
    """What was lacking may come later."""
    cluster = Streaming()
    early, first = cluster.frame(2, AdvanceFence("f", 2)), cluster.frame(1, AdvanceFence("f", 1))
    cluster.tell(early, FrameRefused(StreamFault.GAP, 0))
    cluster.tell(first, done(FenceAdvanced(1)))
    cluster.tell(early, done(FenceAdvanced(2)))
    assert cluster.checkers.violation is None


def test_what_is_kept_of_a_stream() -> None:
    """It is as the model has it, and as it is counted."""
    cluster = Streaming()
    cluster.send(1, AdvanceFence("f", 1))
    cluster.machine.state.streams.kept_count += 1
    with objects("streams-counted"):
        cluster.checkers.restored("n1", 0, cluster.machine)
    cluster = Streaming()
    stream = cluster.machine.state.streams.get(SESSION)
    assert stream is not None
    stream.epoch += 1
    with objects("model-state"):
        cluster.commit()


def test_another_end_of_a_wait() -> None:
    """A wait ends at the revision and with the outcome that the log says."""
    for token, later in ((7, 0), (2, 1)):
        cluster = Streaming()
        cluster.send(1, acquire("h1"))
        frame = cluster.frame(2, acquire("h2", wait_ms=5000))
        call = cluster.history.calls[cluster.call(frame)]
        cluster.reply(call.number, *_committed(cluster, frame))
        cluster.send(3, Release(HoldId("h1")))
        revision, _ = cluster.wait_ends["h2"]
        with objects("stream-wait"):
            cluster.history.ended(call, 2, granted("h2", token), revision + later, cluster.now_us)


def _committed(cluster: Streaming, frame: Numbered) -> tuple[Result, int]:
    revision = cluster.commit(frame)
    return cluster.results[cluster.last_seq], revision
