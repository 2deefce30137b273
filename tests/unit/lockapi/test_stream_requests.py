"""What a node fills into the commands of a stream, and what it refuses."""

from typing import Any, get_args

import pytest

from lockapi.problems import ProblemError
from lockapi.requests.stream import Commands, numbered
from lockstate.commands import (
    Acquire,
    AcquireAs,
    AcquireIf,
    AcquirePermits,
    AcquirePermitsAs,
    Campaign,
    Convert,
    NumberedCommand,
    Release,
    TakeRate,
)
from lockstate.ids import NO_ATTEMPT, NO_HOLD, NO_SESSION, AttemptId, HoldId, SessionId
from lockstate.modes import Mode

SESSION = SessionId("5" * 32)
OTHER = SessionId("6" * 32)
HOLD = HoldId("a" * 32)
ATTEMPT = AttemptId("b" * 32)
ID_CHARACTERS = 32


def filled(*commands: NumberedCommand) -> tuple[Any, ...]:
    """Return commands as they go into the log."""
    return numbered(Commands(1, (), 0, commands), SESSION, 1).commands


def lock(
    kind: type[Acquire], hold_id: HoldId = NO_HOLD, attempt_id: AttemptId = NO_ATTEMPT, **fields: Any
) -> Acquire:
    """Ask for a lock."""
    return kind("a", Mode.EXCLUSIVE, hold_id, attempt_id, **fields)


@pytest.mark.parametrize("kind", [Acquire, AcquireIf, AcquireAs])
def test_a_lock_gets_ids_and_the_session(kind: type[Acquire]) -> None:
    """Each has ids of its own; all else stays as it was said."""
    asked = lock(kind, note="why")
    one, two = filled(asked, asked)
    assert (one.attempt_id, two.attempt_id) == (str(one.hold_id), str(two.hold_id))
    assert one.hold_id != two.hold_id
    assert {len(each.hold_id) for each in (one, two)} == {ID_CHARACTERS}
    assert (type(one), one.session_id, one.note, one.name) == (kind, SESSION, "why", "a")


@pytest.mark.parametrize("kind", [AcquirePermits, AcquirePermitsAs])
def test_permits_get_ids_and_the_session(kind: type[AcquirePermits]) -> None:
    """As a lock does."""
    (one,) = filled(kind("a", 3, 1, NO_HOLD, NO_ATTEMPT))
    assert (len(one.hold_id), len(one.attempt_id), one.session_id) == (ID_CHARACTERS, ID_CHARACTERS, SESSION)


def test_ids_that_were_given_are_taken() -> None:
    """An attempt goes with a hold: without either of the two it is made anew."""
    whole, of_hold, of_attempt = filled(
        lock(Acquire, HOLD, ATTEMPT), lock(Acquire, HOLD), lock(Acquire, attempt_id=ATTEMPT)
    )
    assert (whole.hold_id, whole.attempt_id) == (HOLD, ATTEMPT)
    assert of_hold.hold_id == HOLD
    assert len(of_hold.attempt_id) == ID_CHARACTERS
    assert len(of_attempt.hold_id) == ID_CHARACTERS
    assert len(of_attempt.attempt_id) == ID_CHARACTERS
    assert of_attempt.attempt_id != ATTEMPT


def test_a_lease_of_its_own_is_left_alone() -> None:
    """What says what it lives by does not live with the session of the stream."""
    sessions = [
        each.session_id
        for each in filled(
            lock(Acquire, ttl_ms=5_000), lock(Acquire, session_id=OTHER), lock(AcquireAs, is_endless=True)
        )
    ]
    assert sessions == [NO_SESSION, OTHER, NO_SESSION]


def test_a_campaign_and_a_conversion_get_ids() -> None:
    """A campaign lives with a session in any case; a conversion has that of its hold."""
    campaign, other, convert = filled(
        Campaign("e", NO_SESSION, "v", NO_HOLD, NO_ATTEMPT),
        Campaign("e", OTHER, "v", HOLD, ATTEMPT),
        Convert(HOLD, Mode.SHARED, NO_HOLD, NO_ATTEMPT),
    )
    assert (campaign.session_id, len(campaign.hold_id)) == (SESSION, ID_CHARACTERS)
    assert (other.session_id, other.hold_id, other.attempt_id) == (OTHER, HOLD, ATTEMPT)
    assert (convert.hold_id, len(convert.ticket_id), len(convert.attempt_id)) == (
        HOLD,
        ID_CHARACTERS,
        ID_CHARACTERS,
    )


def test_what_names_a_hold_stays_as_it_is() -> None:
    """There is nothing to fill in."""
    release = Release(HOLD)
    assert filled(release)[0] is release


def test_every_command_with_an_attempt_gets_ids() -> None:
    """A new kind of command must not be forgotten: without ids it would be refused, or share one."""
    with_attempt = [kind for kind in get_args(NumberedCommand) if "attempt_id" in kind.__struct_fields__]
    for kind in with_attempt:
        values = {"mode": Mode.SHARED, "limit": 3}
        asked = kind(**{field: values.get(field, "") for field in _required(kind)})
        (one,) = filled(asked)
        assert len(one.attempt_id) == ID_CHARACTERS, kind.__name__
    assert len(with_attempt) > 5


def _required(kind: Any) -> list[str]:
    """Return the fields of a command without a default."""
    count = len(kind.__struct_fields__) - len(kind.__struct_defaults__)
    return list(kind.__struct_fields__[:count])


@pytest.mark.parametrize(
    ("command", "field"),
    [
        (lock(Acquire, request_id="r" * 16), "request_id"),
        (Release(HOLD, request_id="r" * 16), "request_id"),
        (TakeRate("r", 1, 1_000, wait_ms=5), "wait_ms"),
    ],
)
def test_what_means_nothing_on_a_stream_is_refused(command: NumberedCommand, field: str) -> None:
    """The number says which request it is, and nobody could wait until a moment of the node's clock."""
    with pytest.raises(ProblemError, match=field):
        filled(command)
