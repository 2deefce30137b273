"""Requests without a transport: what they check, and the commands that they make."""

from typing import Any

import pytest

from lockapi.problems import ProblemError
from lockapi.requests.locks import AcquireRequest, ConvertRequest, ReleaseRequest, WantedLock
from lockapi.requests.primitives import AcquirePermitsRequest, CampaignRequest
from lockapi.requests.service import CloseSessionRequest, KeepAliveRequest, OpenSessionRequest
from lockstate.words import limits
from lockstate.words.commands.holds import Acquire, Release
from lockstate.words.commands.sessions import CloseSession, KeepAlive
from lockstate.words.ids import HoldId, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode, Scope
from lockstate.words.wanted import Wanted

REQUEST_ID = "0123456789abcdef"


def test_a_plain_acquire_needs_little() -> None:
    """A name and a ttl make an exclusive lock of that name, without wait, delay, owner and note."""
    command = AcquireRequest(name="a", ttl_ms=1000).command()
    assert command == Acquire("a", Mode.EXCLUSIVE, command.hold_id, command.attempt_id, ttl_ms=1000)


def test_ids_are_new_for_every_command() -> None:
    """Holds, tickets and sessions have 128 random bits each, never the same twice; attempts have theirs."""
    ids: list[str] = []
    for _ in range(3):
        acquire = AcquireRequest(name="a", ttl_ms=1000).command()
        permits = AcquirePermitsRequest(name="a", ttl_ms=1000, limit=1).command()
        campaign = CampaignRequest(name="a", session_id=SessionId("s"), value="").command()
        convert = ConvertRequest(hold_id=HoldId("h"), mode=Mode.SHARED).command()
        ids.append(convert.ticket_id)
        assert convert.attempt_id == str(convert.ticket_id)
        ids += [OpenSessionRequest(ttl_ms=1000).command().session_id]
        for command in (acquire, permits, campaign):
            ids.append(command.hold_id)
            assert command.attempt_id == str(command.hold_id)
    assert len(set(ids)) == len(ids) == 15
    assert all(len(bytes.fromhex(text)) == 16 for text in ids)


def test_several_locks_stay_in_the_order_in_which_they_were_asked_for() -> None:
    """Each has a mode and a scope of its own; those of the command mean nothing then."""
    wanted = [WantedLock(name="b", mode=Mode.UPDATE, scope=Scope.SUBTREE), WantedLock(name="a")]
    command = AcquireRequest(ttl_ms=1000, locks=wanted).command()
    assert command.name == ""
    assert command.locks == (
        Wanted("b", Mode.UPDATE, Scope.SUBTREE),
        Wanted("a", Mode.EXCLUSIVE, Scope.NODE),
    )


def test_a_release_is_of_all_unless_it_names_some() -> None:
    """Without names the whole hold is released."""
    whole = ReleaseRequest(hold_id=HoldId("h")).command()
    part = ReleaseRequest(hold_id=HoldId("h"), names=("a", "b")).command()
    assert (whole, part) == (
        Release(HoldId("h"), kind=HoldKind.LOCK),
        Release(HoldId("h"), "", ("a", "b"), HoldKind.LOCK),
    )


def test_the_id_of_a_session_comes_with_the_command() -> None:
    """A face finds it where it likes; it is checked all the same."""
    assert KeepAliveRequest().command("s") == KeepAlive(SessionId("s"))
    assert CloseSessionRequest(request_id=REQUEST_ID).command("s") == CloseSession(SessionId("s"), REQUEST_ID)
    for request in (KeepAliveRequest(), CloseSessionRequest()):
        with pytest.raises(ProblemError, match="session_id"):
            request.command("x" * (limits.ID_CHARS_MAX + 1))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "name or locks"),
        ({"name": "a"}, "session_id or ttl_ms"),
        ({"name": "a", "ttl_ms": 1000, "session_id": "s"}, "session_id and ttl_ms"),
        ({"name": "a", "ttl_ms": 1000, "wait_ms": -1}, "wait_ms"),
        ({"name": "a", "ttl_ms": 1000, "owner": "\n"}, "owner"),
        ({"name": "a", "ttl_ms": 1000, "priority": 10}, "priority"),
        ({"name": "a", "ttl_ms": 1000, "request_id": ""}, "request_id"),
        ({"name": "a", "locks": [], "ttl_ms": 1000}, "name and locks"),
        ({"locks": [], "ttl_ms": 1000}, "locks"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], field: str) -> None:
    """The detail of the problem begins with the field, or the fields, that have to be corrected."""
    with pytest.raises(ProblemError) as caught:
        AcquireRequest(**fields).command()
    assert caught.value.code == "invalid-request"
    assert caught.value.detail.startswith(f"{field}:")
