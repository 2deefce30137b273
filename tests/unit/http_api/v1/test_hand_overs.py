"""Handing a lock over, over HTTP: what giver, receiver and the audit are told, and what is refused."""

import asyncio

import pytest

from holdfast import wire
from tests.support import http_contract
from tests.unit.http_api.serving import Got, Served, check_problem, serving, until

NEW = "f" * 32


async def _waiter(served: Served, **fields: object) -> tuple["asyncio.Task[Got]", int]:
    """Wait for "a"; return the task that is answered, and the number of the wait."""
    before = len(served.node.machine.lock("a").queue)
    waiting = asyncio.ensure_future(served.acquire("a", wait_ms=60_000, **fields))
    await until(lambda: len(served.node.machine.lock("a").queue) > before)
    return waiting, served.node.machine.lock("a").queue[-1].ticket


async def test_a_waiter_is_given_the_lock() -> None:
    """Its request is answered as by any grant, the giver is told its token, and the first waits on."""
    async with serving() as served:
        got = await served.acquire("a", owner="giver")
        ahead, _ = await _waiter(served, owner="ahead")
        waiting, ticket = await _waiter(served, owner="receiver")
        request = {"hold_id": got.body["hold_id"], "to_ticket": ticket, "request_id": "request-number-01"}
        given = await served.post(wire.LOCK_HAND_OVER, **request)
        assert tuple(given.body) == http_contract.ANSWER_FIELDS[f"POST {wire.LOCK_HAND_OVER}"]
        assert (given.body["token"], given.body["owner"]) == (got.body["token"] + 1, "receiver")
        granted = await waiting
        assert granted.body["token"] == given.body["token"]
        again = await served.post(wire.LOCK_HAND_OVER, **request)
        assert again.body == {**given.body, "repeated": True, "revision": again.body["revision"]}
        over = await served.post(wire.LOCK_RENEW, hold_id=got.body["hold_id"])
        check_problem(over, 410, "lease-expired")
        assert "the hold was handed over" in over.body["detail"]
        told = (await served.call("GET", f"{wire.AUDIT}?name=a&limit=2")).body["events"]
        assert [(one["event"], one["token"], one.get("to_token")) for one in told] == [
            ("granted", granted.body["token"], None),
            ("handed-over", got.body["token"], granted.body["token"]),
        ]
        assert not ahead.done()
        await served.post(wire.LOCK_RELEASE, hold_id=granted.body["hold_id"])
        assert (await ahead).body["token"] > granted.body["token"]


async def test_a_session_finds_what_it_was_given() -> None:
    """By its public name it is given the lock, and its next acquire answers with that hold.

    Also one that is refused what the session is inside of already: it is not, until then.
    """
    async with serving() as served:
        got = await served.acquire("a", mode="shared")
        session = await served.session()
        name = (await served.call("GET", wire.SESSION.format(session_id=session))).body["session_name"]
        fields = {"hold_id": got.body["hold_id"], "to_session": name, "new_hold_id": NEW}
        given = await served.post(wire.LOCK_HAND_OVER, **fields)
        assert given.status == 200
        fields = {"mode": "shared", "session_id": session, "if_held": "refuse"}
        again = await served.acquire("a", **fields)
        assert (again.body["hold_id"], again.body["token"]) == (NEW, given.body["token"])
        check_problem(await served.acquire("a", **fields), 409, "already-held")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "to_ticket, to_session: give exactly one"),
        (
            {"to_ticket": 1, "to_session": "s-1", "new_hold_id": NEW},
            "to_ticket, to_session: give exactly one",
        ),
        ({"to_ticket": 1, "new_hold_id": NEW}, "new_hold_id: give it with to_session"),
        ({"to_session": "s-1"}, "new_hold_id: give it with to_session"),
        ({"to_session": "s-1", "new_hold_id": "7"}, "new_hold_id: must be 32 hexadecimal digits"),
        ({"to_session": "s-1", "new_hold_id": "x" * 32}, "new_hold_id: must be 32 hexadecimal digits"),
        ({"to_session": "\n", "new_hold_id": NEW}, "to_session: must be"),
        ({"to_ticket": 0}, "to_ticket: 0"),
        ({"to_ticket": 1, "hold_id": "\n"}, "hold_id: must be"),
    ],
)
async def test_a_request_that_is_not_clear_is_refused(fields: dict[str, object], said: str) -> None:
    """It says which field is wrong."""
    async with serving() as served:
        got = await served.acquire("a")
        refused = await served.post(wire.LOCK_HAND_OVER, **{"hold_id": got.body["hold_id"], **fields})
        check_problem(refused, 400, "invalid-request")
        assert said in refused.body["detail"]


async def test_who_is_not_there_is_said_of_the_receiver() -> None:
    """The hold stays; its own end is another code."""
    async with serving() as served:
        got = await served.acquire("a")
        hold_id = got.body["hold_id"]
        check_problem(
            await served.post(wire.LOCK_HAND_OVER, hold_id=hold_id, to_ticket=9), 410, "ticket-ended"
        )
        to_nobody = {"hold_id": hold_id, "to_session": "s-9", "new_hold_id": NEW}
        check_problem(await served.post(wire.LOCK_HAND_OVER, **to_nobody), 410, "session-expired")
        assert (await served.post(wire.LOCK_RENEW, hold_id=hold_id)).status == 200
        permits = await served.post(wire.SEMAPHORE_ACQUIRE, name="q", limit=2, ttl_ms=9_000)
        wrong = await served.post(wire.LOCK_HAND_OVER, hold_id=permits.body["hold_id"], to_ticket=9)
        check_problem(wrong, 400, "invalid-request")
        assert "only a lock can be handed over" in wrong.body["detail"]
