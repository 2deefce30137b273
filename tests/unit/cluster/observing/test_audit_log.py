"""The log lines of grants and ends: what they say, at which level, how many, and what they never say."""

import logging

import pytest

from cluster.observing import audit_log
from cluster.observing.audit_log import NEWS_TOLD_MAX
from lockstate.ids import OwnerName, SessionId
from lockstate.modes import Mode
from lockstate.results import Event, EventKind, HoldKind

SECRET = "5ec4e75ec4e75ec4e75ec4e75ec4e75e"


def event(
    kind: EventKind, *, name: str = "a/b", owner: str = "ann", reason: str = "", of: HoldKind = HoldKind.LOCK
) -> Event:
    """Return an event of the entry 9."""
    return Event(
        9,
        1_000,
        kind,
        name,
        Mode.SHARED,
        OwnerName(owner),
        7,
        SessionId(SECRET),
        40,
        reason,
        of,
        value="address",
    )


def lines(caplog: pytest.LogCaptureFixture, level: int, *events: Event) -> list[str]:
    """Return the lines of one entry, with their levels."""
    caplog.clear()
    with caplog.at_level(level, logger=audit_log.logger.name):
        audit_log.tell(events)
    return [f"{record.levelname} {record.getMessage()}" for record in caplog.records]


def test_a_forced_release_is_told_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    """The line has what and who was ended, after how long, and why."""
    (line,) = lines(caplog, logging.INFO, event(EventKind.FORCED, reason="it hangs"))
    assert line == (
        "INFO event=forced kind=lock name='a/b' mode=shared token=7 owner='ann' lasted_ms=40 revision=9"
        " reason='it hangs'"
    )


def test_all_forced_releases_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """Of some that are forced in one entry, each has its line."""
    forced = [event(EventKind.FORCED, name=f"n{number}") for number in range(50)]
    assert len(lines(caplog, logging.INFO, *forced)) == 50


def test_expiries_are_told_up_to_a_number(caplog: pytest.LogCaptureFixture) -> None:
    """Of many that end at once, by time or by force, the first have lines, and the rest a count."""
    few = [event(EventKind.SESSION_EXPIRED, name="")]
    few += [event(EventKind.EXPIRED, name=f"n{number}") for number in range(NEWS_TOLD_MAX - 1)]
    told = lines(caplog, logging.INFO, *few)
    assert told[0] == "INFO event=session-expired owner='ann' revision=9"
    assert [line.partition(" kind=")[0] for line in told[1:]] == ["INFO event=expired"] * (len(few) - 1)
    many = lines(caplog, logging.INFO, *few, *few, event(EventKind.FORCED))
    assert many[:NEWS_TOLD_MAX] == told
    assert many[NEWS_TOLD_MAX:] == [f"INFO event=ended-more count={len(few) + 1} revision=9"]


@pytest.mark.parametrize("kind", EventKind)
def test_what_happens_all_the_time_is_for_debug(kind: EventKind, caplog: pytest.LogCaptureFixture) -> None:
    """Grants and ends in order are logged at debug only, waits never, and none of it as a warning."""
    is_news = kind in {EventKind.FORCED, EventKind.EXPIRED, EventKind.SESSION_EXPIRED}
    is_audited = kind not in {EventKind.QUEUED, EventKind.WAIT_ENDED}
    assert len(lines(caplog, logging.WARNING, event(kind))) == 0
    assert len(lines(caplog, logging.INFO, event(kind))) == is_news
    told = lines(caplog, logging.DEBUG, event(kind))
    level = "INFO" if is_news else "DEBUG"
    assert [line.split()[:2] for line in told] == [[level, f"event={kind.value}"]] * is_audited


@pytest.mark.parametrize("of", HoldKind)
@pytest.mark.parametrize("owner", ["ann", ""])
def test_no_secret_is_told(of: HoldKind, owner: str, caplog: pytest.LogCaptureFixture) -> None:
    """No line has the id of a session or a hold, also where nobody gave an owner; modes are of locks only."""
    told = lines(caplog, logging.DEBUG, *(event(kind, owner=owner, of=of) for kind in EventKind))
    assert told
    assert SECRET not in str(told)
    assert all(("owner='ann'" if owner else "owner='hold-") in line for line in told)
    assert any("mode=" in line for line in told) == (of is HoldKind.LOCK)


def test_texts_of_clients_stay_in_their_quotes(caplog: pytest.LogCaptureFixture) -> None:
    """Neither a space nor a quote nor a line break in a text makes a field or a line of its own."""
    (line,) = lines(
        caplog,
        logging.INFO,
        event(EventKind.FORCED, name="a b", owner="x' token=1", reason='it\'s\nevent=forced name="b"\x1b'),
    )
    assert "name='a b' " in line
    assert 'owner="x\' token=1" ' in line
    assert line.endswith(r"""reason='it\'s\nevent=forced name="b"\x1b'""")
