"""The log lines of grants and ends: what they say, at which level, how many, and what they never say."""

import logging

import pytest

from cluster.observing import audit_log
from cluster.observing.audit_log import (
    OF_AN_ACT_MAX,
    OF_AN_ENTRY_MAX,
    PERIOD_S,
    PRINCIPALS_MAX,
    TOLD_MAX,
    AuditLog,
)
from lockstate.tables.audit_record import OF_NOBODY
from lockstate.words.events import OF_OPERATORS, OF_SETTINGS, Event, EventKind
from lockstate.words.ids import OwnerName, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode

SECRET = "5ec4e75ec4e75ec4e75ec4e75ec4e75e"


def event(
    kind: EventKind,
    *,
    name: str = "a/b",
    owner: str = "ann",
    reason: str = "",
    of: HoldKind = HoldKind.LOCK,
    session_id: str = SECRET,
    principal: str = "",
    by: str = "",
    value: str = "address",
    permits: int = 0,
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
        SessionId(session_id),
        40,
        reason,
        of,
        permits=permits,
        value=value,
        principal=principal,
        by=by,
    )


def own(kind: EventKind, principal: str = "ann") -> Event:
    """Return an event that is nobody's concern but one principal's."""
    return event(kind, principal=principal, by=principal if kind in OF_OPERATORS else "")


def lines(caplog: pytest.LogCaptureFixture, level: int, *events: Event) -> list[str]:
    """Return the lines of one entry, with their levels."""
    caplog.clear()
    with caplog.at_level(level, logger=audit_log.logger.name):
        AuditLog(lambda: 0.0).tell(events)
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


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_s = 5.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


@pytest.mark.parametrize("kind", [kind for kind in TOLD_MAX if kind not in OF_SETTINGS])
def test_ends_are_told_up_to_a_number_in_a_minute(kind: EventKind, caplog: pytest.LogCaptureFixture) -> None:
    """The first ones have lines, whatever entries they come in; the rest is summed up in one."""
    caplog.set_level(logging.INFO)
    clock = Clock()
    audit = AuditLog(clock)
    for _ in range(TOLD_MAX[kind]):
        audit.tell([own(kind), own(kind)])
    assert [line.split()[0] for line in caplog.messages] == [f"event={kind.value}"] * TOLD_MAX[kind]
    audit.look()
    clock.now_s += PERIOD_S
    caplog.clear()
    audit.look()
    audit.look()
    counts = {each: TOLD_MAX[kind] if each is kind else 0 for each in TOLD_MAX}
    forced = sum(counts[each] for each in TOLD_MAX if TOLD_MAX[each] == TOLD_MAX[EventKind.FORCED])
    (summary,) = caplog.messages
    assert summary == (
        f"event=ended-more expired={counts[EventKind.EXPIRED]}"
        f" session_expired={counts[EventKind.SESSION_EXPIRED]} forced={forced} for_s=60"
    )
    audit.tell([own(kind)])
    assert len(caplog.messages) == 2


def test_one_principal_does_not_use_up_the_lines_of_others(caplog: pytest.LogCaptureFixture) -> None:
    """Each has its own number of them, and all together have one, so that many fill no disk either."""
    caplog.set_level(logging.INFO)
    audit = AuditLog(lambda: 0.0)
    most = TOLD_MAX[EventKind.EXPIRED]
    audit.tell([own(EventKind.EXPIRED, "eve")] * 50)
    audit.tell([own(EventKind.EXPIRED, "ann")])
    assert len(caplog.messages) == most + 1
    audit.tell([own(EventKind.EXPIRED, f"p{number}") for number in range(2 * most * PRINCIPALS_MAX)])
    assert len(caplog.messages) == most * PRINCIPALS_MAX


@pytest.mark.parametrize("kind", sorted(OF_OPERATORS - {EventKind.RESIZED}))
def test_what_is_done_to_others_is_never_left_out(kind: EventKind, caplog: pytest.LogCaptureFixture) -> None:
    """However often somebody did what is harmless before; only an act that ends very many is counted."""
    caplog.set_level(logging.INFO)
    audit = AuditLog(lambda: 0.0)
    for _ in range(5):
        audit.tell([own(kind, "eve")] * 100)
    caplog.clear()
    for _ in range(3 * TOLD_MAX[kind]):
        audit.tell([event(kind, name="payroll", principal="ann", by="eve", reason="mischief")])
    assert len(caplog.messages) == 3 * TOLD_MAX[kind]
    assert all("by='eve'" in line for line in caplog.messages)


def test_resizes_have_a_number_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever may acquire may resize, and must not be able to fill the log by that."""
    caplog.set_level(logging.INFO)
    audit = AuditLog(lambda: 0.0)
    resized = event(EventKind.RESIZED, of=HoldKind.SEMAPHORE, permits=7, by="eve", reason="more")
    audit.tell([resized] * 1000)
    assert len(caplog.messages) == TOLD_MAX[EventKind.RESIZED]
    assert caplog.messages[0] == (
        f"event=resized name='a/b' limit=7 revision={resized.revision} reason='more' by='eve'"
    )


def test_settings_are_told_with_what_they_are(caplog: pytest.LogCaptureFixture) -> None:
    """A quota has whose it is, a namespace its prefix; what was removed has no value."""
    told = lines(
        caplog,
        logging.INFO,
        event(EventKind.QUOTA_SET, name="", principal="ci", by="ops", value='{"holds":1}', reason="so"),
        event(EventKind.NAMESPACE_REMOVED, name="jobs", by="ops", value="", reason="so"),
    )
    said = [line.partition(" revision=")[2].partition(" ")[2] for line in told]
    assert said == ["value='{\"holds\":1}' reason='so' principal='ci' by='ops'", "reason='so' by='ops'"]
    assert told[1].startswith("INFO event=namespace-removed name='jobs' ")


def test_the_holders_of_one_name_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """The first ones have lines, and one line has how many more there were, by whom and why."""
    crowd = [
        event(EventKind.FORCED, owner=f"o{number}", session_id=f"s{number}", by="ops", reason="too many")
        for number in range(1000)
    ]
    other = event(EventKind.FORCED, name="other", by="ops", reason="too many")
    told = lines(caplog, logging.INFO, *crowd, other)
    assert len(told) == OF_AN_ACT_MAX + 2
    assert "name='other'" in told[-2]
    assert told[-1] == (
        f"INFO event=acts-more act=forced name='a/b' count={1000 - OF_AN_ACT_MAX} by='ops' reason='too many'"
    )


def test_the_holds_of_a_session_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """The end of the session has its own line, whatever it held, and so have holds of others."""
    holds = [event(EventKind.FORCED, name=f"n{number}", reason="why") for number in range(1000)]
    single = event(EventKind.FORCED, name="payroll", owner="bob", session_id="other", reason="why")
    told = lines(caplog, logging.INFO, *holds, event(EventKind.SESSION_FORCED, reason="why"), single)
    assert len(told) == OF_AN_ACT_MAX + 3
    assert "event=session-forced owner='ann'" in told[-3]
    assert "name='payroll'" in told[-2]
    assert told[-1] == (
        f"INFO event=acts-more act=forced owner='ann' count={1000 - OF_AN_ACT_MAX} reason='why'"
    )


def test_one_entry_has_a_limited_number_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    """A leader that wrote a line for each of a hundred thousand would do nothing else for seconds."""
    forced = [event(EventKind.FORCED, name=f"n{number}") for number in range(OF_AN_ENTRY_MAX + 5)]
    told = lines(caplog, logging.INFO, *forced)
    assert len(told) == OF_AN_ENTRY_MAX + 1
    assert told[-1] == "INFO event=acts-more count=5"


def test_few_ends_are_not_summed_up(caplog: pytest.LogCaptureFixture) -> None:
    """A minute in which each had its line is not told again; the next one begins with its first end."""
    caplog.set_level(logging.INFO)
    clock = Clock()
    audit = AuditLog(clock)
    for _ in range(30):
        audit.tell([event(EventKind.EXPIRED)])
        clock.now_s += PERIOD_S / TOLD_MAX[EventKind.EXPIRED]
    audit.look()
    assert len(caplog.messages) == 30


def test_all_ends_are_told_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    """Those beyond the number are details."""
    many = [event(EventKind.EXPIRED)] * 50
    told = lines(caplog, logging.DEBUG, *many)
    assert [line.split()[0] for line in told] == ["INFO"] * 10 + ["DEBUG"] * 40


@pytest.mark.parametrize("kind", EventKind)
def test_what_happens_all_the_time_is_for_debug(kind: EventKind, caplog: pytest.LogCaptureFixture) -> None:
    """Grants and ends in order are logged at debug only, waits never, and none of it as a warning."""
    is_news = kind in TOLD_MAX
    is_audited = kind not in {EventKind.QUEUED, EventKind.LEFT}
    assert len(lines(caplog, logging.WARNING, event(kind))) == 0
    assert len(lines(caplog, logging.INFO, event(kind))) == is_news
    told = lines(caplog, logging.DEBUG, event(kind))
    level = "INFO" if is_news else "DEBUG"
    assert [line.split()[:2] for line in told] == [[level, f"event={kind.value}"]] * is_audited


@pytest.mark.parametrize("of", HoldKind)
@pytest.mark.parametrize("owner", ["ann", ""])
def test_no_secret_is_told(of: HoldKind, owner: str, caplog: pytest.LogCaptureFixture) -> None:
    """No line has the id of a session or a hold, also where nobody gave an owner; modes are of locks only."""
    of_somebody = set(EventKind) - OF_NOBODY
    told = lines(caplog, logging.DEBUG, *(event(kind, owner=owner, of=of) for kind in sorted(of_somebody)))
    assert told
    assert SECRET not in str(told)
    assert all(("owner='ann'" if owner else "owner='hold-") in line for line in told)
    assert any("mode=" in line for line in told) == (of is HoldKind.LOCK)


def test_what_operators_do_has_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    """A session that was forced shows its owner; what is nobody's, a delay or a fence, shows none."""
    told = lines(
        caplog,
        logging.INFO,
        event(EventKind.SESSION_FORCED, owner="ann", reason="gone mad"),
        event(EventKind.DELAY_LIFTED, of=HoldKind.SEMAPHORE, reason="all is well"),
        event(EventKind.FENCE_FORGOTTEN, reason="a new disk"),
        event(EventKind.RATE_LIMIT_FORGOTTEN, reason="it is full"),
        event(EventKind.FROZEN, reason="a move"),
    )
    assert "owner='ann'" in told[0]
    assert told[0].endswith("reason='gone mad'")
    assert "kind=semaphore" in told[1]
    assert "owner=" not in "".join(told[1:])
    assert told[-1].endswith("reason='a move'")
    assert "token=" in told[2]
    assert "token=" not in told[3]
    assert told[3].endswith("reason='it is full'")


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
