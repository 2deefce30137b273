"""From JSON to commands: what is filled in, what is made up, and where in a body a problem is."""

from typing import Any

import msgspec
import pytest

from api.problems import ProblemError
from api.requests.locks import AcquireRequest, ConvertRequest, ReleaseRequest
from api.requests.primitives import AcquirePermitsRequest, CampaignRequest
from http_api.v1 import schema
from lockstate.commands import Acquire, Algorithm, Release, Wanted
from lockstate.ids import HoldId, SessionId
from lockstate.modes import Mode, Scope
from tests.support import http_contract

LOCK = {"name": "a", "ttl_ms": 1000}


def _acquire(**fields: Any) -> Acquire:
    return schema.decode(msgspec.json.encode(fields), AcquireRequest).command()


def test_a_plain_acquire_needs_little() -> None:
    """A name and a ttl make an exclusive lock of that name, without wait, delay, owner and note."""
    command = _acquire(**LOCK)
    assert command == Acquire("a", Mode.EXCLUSIVE, command.hold_id, command.attempt_id, ttl_ms=1000)


def test_ids_are_made_anew_for_every_command() -> None:
    """Holds, tickets and attempts have 128 random bits each, and never the same twice."""
    made: list[str] = []
    for _ in range(3):
        acquire = _acquire(**LOCK)
        permits = AcquirePermitsRequest(**LOCK, limit=1).command()  # type: ignore[arg-type]
        campaign = CampaignRequest(name="a", session_id=SessionId("s"), value="").command()
        convert = ConvertRequest(hold_id=HoldId("h"), mode=Mode.SHARED).command()
        made += [convert.ticket_id, convert.attempt_id]
        for command in (acquire, permits, campaign):
            made += [command.hold_id, command.attempt_id]
    assert len(set(made)) == len(made) == 24
    assert all(len(bytes.fromhex(text)) == 16 for text in made)


def test_several_locks_stand_in_the_order_in_which_they_were_asked_for() -> None:
    """Each has a mode and a scope of its own; those of the command say nothing then."""
    command = _acquire(
        ttl_ms=1000, locks=[{"name": "b", "mode": "update", "scope": "subtree"}, {"name": "a"}]
    )
    assert command.name == ""
    assert command.locks == (
        Wanted("b", Mode.UPDATE, Scope.SUBTREE),
        Wanted("a", Mode.EXCLUSIVE, Scope.NODE),
    )


def test_a_release_is_of_all_unless_it_names_some() -> None:
    """Without names the whole hold is given back."""
    whole = schema.decode(b'{"hold_id":"h"}', ReleaseRequest).command()
    part = schema.decode(b'{"hold_id":"h","names":["a","b"]}', ReleaseRequest).command()
    assert (whole, part) == (Release(HoldId("h")), Release(HoldId("h"), "", ("a", "b")))


def test_the_words_of_the_wire_are_those_of_the_commands() -> None:
    """Whatever clients may say is understood."""
    assert tuple(Mode) == http_contract.MODES
    assert tuple(Scope) == http_contract.SCOPES
    assert tuple(Algorithm) == http_contract.ALGORITHMS


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b'{"locks":[{"name":"a","name":"b"}],"ttl_ms":1000}', "name: is given twice"),
        (b'{"locks":[{"name":"a"}],"locks":[{"name":"b"}],"ttl_ms":1000}', "locks: is given twice"),
        (b'{"locks":[{"name":"a"},{"nom":"b"}],"ttl_ms":1000}', "locks[1].nom: unknown field"),
        (b'{"locks":[{"mode":"shared"}],"ttl_ms":1000}', "locks[0].name: is required"),
        (b'{"locks":[{"name":"a","mode":"x"}],"ttl_ms":1}', "locks[0].mode: Invalid enum value"),
    ],
)  # fmt: skip
def test_a_problem_within_a_list_says_where(body: bytes, detail: str) -> None:
    """The entry and its field stand in front of what is wrong with it."""
    with pytest.raises(ProblemError) as caught:
        schema.decode(body, AcquireRequest)
    assert caught.value.code == "invalid-request"
    assert caught.value.detail.startswith(detail)


def test_names_that_occur_in_several_entries_are_no_repetition() -> None:
    """Every entry of a list may have the same fields."""
    body = b'{"locks":[{"name":"a","mode":"shared"},{"name":"b","mode":"shared"}],"ttl_ms":1000}'
    assert len(schema.decode(body, AcquireRequest).command().locks) == 2
