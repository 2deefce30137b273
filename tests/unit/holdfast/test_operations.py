"""Operations as values: what they send, and how their answers are read."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast import wire
from holdfast.client import cell_operations
from holdfast.client.listings import pages
from holdfast.operations import (
    cluster_operations,
    hold_operations,
    namespace_operations,
    override_operations,
    primitive_operations,
    quota_operations,
)
from holdfast.operations.operation import Operation, TimedAnswer
from holdfast.operations.wanted import HoldRequest
from holdfast.values.lease import Lease
from holdfast.wire.answers import RatesForgottenJson, RevocationsWithdrawnJson, Taken, WaitsForcedJson
from tests.support import http_contract

FULL = HoldRequest(owner="me", session_id="s", ttl_ms=500, wait_ms=5, lock_delay_ms=5, note="why")
"""All that a request may say, more than any one may."""


def _take() -> Operation[Taken]:
    return primitive_operations.take("a", limit=2, window_ms=10, algorithm="gcra", cost=1, wait_ms=5)


@given(st.text(min_size=1))
def test_a_name_is_one_part_of_the_path(name: str) -> None:
    """No name can add a path part, a query or a fragment."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    path = hold_operations.get_lock(name, is_stale=False).path
    assert path.startswith("/v1/locks/")
    assert not set(path.removeprefix("/v1/locks/")) & set("/?#")


def test_requests_say_only_what_was_asked() -> None:
    """Fields that were not given are left to the node."""
    request = hold_operations.acquire(("a",), mode="exclusive", scope="node", wanted=HoldRequest(ttl_ms=500))
    assert set(msgspec.json.decode(request.body)) == {"name", "ttl_ms", "request_id"}
    for path, built in (
        (wire.LOCK_ACQUIRE, request),
        (wire.LOCK_ACQUIRE, hold_operations.acquire(("a", "b"), mode="shared", scope="subtree", wanted=FULL)),
        (wire.LOCK_RENEW, hold_operations.renew("lock", "h", 5)),
        (wire.LOCK_RELEASE, hold_operations.release("lock", "h")),
        (wire.LOCK_CONVERT, hold_operations.convert("h", "shared", 5)),
        (wire.LOCK_ADD, hold_operations.add("h", ("b",), "shared", "node", 5)),
        (wire.LOCK_FORCE_RELEASE, override_operations.force_release("lock", "a", "why", 5, token=1)),
        (
            wire.SEMAPHORE_FORCE_RELEASE,
            override_operations.force_release("semaphore", "a", "why", 5, token=1),
        ),
        (wire.ELECTION_DEPOSE, override_operations.force_release("election", "a", "why", 0, token=1)),
        (wire.SESSION_FORCE_CLOSE, override_operations.force_close_session("s-1", "why")),
        (wire.LOCK_LIFT_DELAY, override_operations.lift_delay("lock", "a", "why")),
        (wire.SEMAPHORE_LIFT_DELAY, override_operations.lift_delay("semaphore", "a", "why")),
        (wire.WAITS_FORCE_END, override_operations.force_waits("semaphore", "a", "why", ticket=2)),
        (wire.LOCK_REVOKE, override_operations.revoke("lock", "a", "why", 5, token=1, ticket=2)),
        (wire.SEMAPHORE_REVOKE, override_operations.revoke("semaphore", "a", "why", 5, token=1, ticket=2)),
        (wire.ELECTION_REVOKE, override_operations.revoke("election", "a", "why", 5, token=1, ticket=2)),
        (wire.LOCK_WITHDRAW, override_operations.withdraw_revocation("lock", "a", "why", token=1, ticket=2)),
        (
            wire.SEMAPHORE_WITHDRAW,
            override_operations.withdraw_revocation("semaphore", "a", "why", token=1, ticket=2),
        ),
        (
            wire.ELECTION_WITHDRAW,
            override_operations.withdraw_revocation("election", "a", "why", token=1, ticket=2),
        ),
        (wire.LOCK_PUT_OFF, hold_operations.put_off("lock", "h")),
        (wire.SEMAPHORE_PUT_OFF, hold_operations.put_off("semaphore", "h")),
        (wire.ELECTION_PUT_OFF, hold_operations.put_off("election", "h")),
        (wire.LOCK_HAND_OVER, hold_operations.hand_over("h", to_ticket=7, to_session=None)),
        (wire.LOCK_HAND_OVER, hold_operations.hand_over("h", to_ticket=None, to_session="s-1")),
        (wire.FENCE_FORGET, override_operations.forget_fence("a", "why")),
        (wire.SESSIONS, hold_operations.open_session(500, {"a": "b"})),
        (
            wire.SEMAPHORE_ACQUIRE,
            primitive_operations.acquire_permits("a", limit=2, permits=1, is_strict=True, wanted=FULL),
        ),
        (wire.SEMAPHORE_RENEW, hold_operations.renew("semaphore", "h", 5)),
        (wire.SEMAPHORE_RELEASE, hold_operations.release("semaphore", "h")),
        (wire.SEMAPHORE_RESIZE, primitive_operations.resize("a", 3, reason="by hand")),
        (wire.RATE_TAKE, _take()),
        (wire.FENCE_CHECK, primitive_operations.check_token("a", 1, kind="lock", is_stale=False)),
        (wire.FENCE_ADVANCE, primitive_operations.advance("a", 1)),
        (wire.ELECTION_CAMPAIGN, primitive_operations.campaign("a", "v", FULL)),
        (wire.ELECTION_PROCLAIM, primitive_operations.proclaim("h", "v")),
        (wire.ELECTION_RESIGN, hold_operations.release("election", "h")),
        (wire.CELLS_TRANSACT, cell_operations.transact([holdfast.StillHeld("h")], [], [])),
    ):
        assert built.path == path
        assert set(msgspec.json.decode(built.body)) <= set(http_contract.REQUEST_FIELDS[f"POST {path}"])
    for forget, path in (
        (override_operations.forget_rate_limit("take", "why"), "/v1/rate-limits/%74ake"),
        (override_operations.forget_rate_limits("a/b", "why"), f"{wire.RATES}?prefix=a%2Fb"),
        (override_operations.forget_rate_limits(None, "why"), f"{wire.RATES}?all=true"),
    ):
        assert (forget.method, forget.path) == ("DELETE", path)
        assert set(msgspec.json.decode(forget.body)) == set(
            http_contract.REQUEST_FIELDS[f"DELETE {wire.RATE}"]
        )
    put = cell_operations.put(holdfast.CellPut("a/b", b"", ttl=1), if_version=0)
    assert (put.method, put.path) == ("PUT", "/v1/cells/a%2Fb")
    body = msgspec.json.decode(put.body)
    assert (body["value_base64"], body["if_version"], body["ttl_ms"]) == ("", 0, 1000)
    assert set(body) <= set(http_contract.REQUEST_FIELDS[f"PUT {wire.CELL}"])


def test_the_lease_of_a_grant_counts_from_the_first_attempt_and_of_a_renewal_from_the_last() -> None:
    """A repeated grant may be as old as the first attempt, a renewal only as old as the answered one."""
    granted = TimedAnswer(
        b'{"hold_id":"h","token":7,"name":"a","mode":"shared","expires_in_ms":500}', 1.0, 3.0
    )
    acquire = hold_operations.acquire(("a",), mode="shared", scope="node", wanted=HoldRequest(ttl_ms=500))
    hold = acquire.read(granted)
    assert (hold.hold_id, hold.token, hold.mode, hold.lease) == ("h", 7, "shared", Lease(1.0, 500))
    renewed = TimedAnswer(b'{"token":7,"expires_in_ms":500,"revision":9}', 1.0, 3.0)
    assert hold_operations.renew("lock", "h", None).read(renewed) == Lease(3.0, 500, token=7)
    assert hold_operations.keepalive("s").read(renewed) == Lease(3.0, 500)
    opened = TimedAnswer(b'{"session_id":"s","ttl_ms":500,"expires_in_ms":500,"revision":9}', 1.0, 3.0)
    assert hold_operations.open_session(500, {}).read(opened).lease == Lease(1.0, 500)


def test_only_what_is_said_to_have_no_deadline_has_none() -> None:
    """A hold whose answer lacks the time of its lease must not be relied on for ever."""
    acquire = hold_operations.acquire(("a",), mode="shared", scope="node", wanted=HoldRequest(ttl_ms=500))
    renew = hold_operations.renew("lock", "h", None)
    bare = TimedAnswer(b'{"hold_id":"h","token":7,"revision":9}', 1.0, 3.0)
    assert (acquire.read(bare).lease, renew.read(bare)) == (Lease(1.0, 0), Lease(3.0, 0, token=7))
    endless = TimedAnswer(b'{"hold_id":"h","token":7,"no_deadline":true,"revision":9}', 1.0, 3.0)
    assert (acquire.read(endless).lease.is_endless, renew.read(endless).is_endless) == (True, True)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"members":1}'])
def test_an_answer_that_no_node_gives_leaves_the_outcome_unknown(body: bytes) -> None:
    """Whatever answered 200, it was not a node that did what it was asked."""
    operation: Operation[Any]
    for operation in (
        cell_operations.transact([], [holdfast.CellGet("a")], []),
        cluster_operations.add_member("n4", "h:1", "why"),
        cluster_operations.cluster(),
        cluster_operations.transfer_leadership("", "why"),
    ):
        with pytest.raises(holdfast.OutcomeUnknown):
            operation.read(TimedAnswer(body, 0.0, 0.0))


@pytest.mark.parametrize(
    ("operation", "body", "told"),
    [
        (hold_operations.convert("h", "shared", 0), b'{"hold_id":"h","token":7}', 7),
        (
            hold_operations.renew("lock", "h", 5),
            b'{"token":7,"expires_in_ms":5}',
            Lease(1.0, 5, {}, False, 7),
        ),
        (hold_operations.put_off("lock", "h"), b'{"ends_in_ms":5}', Lease(1.0, 5)),
        (hold_operations.hand_over("h", to_ticket=7, to_session=None), b'{"token":9,"owner":"b"}', 9),
        (hold_operations.keepalive("s"), b'{"expires_in_ms":5}', Lease(1.0, 5)),
        (
            hold_operations.open_session(5, {}),
            b'{"session_id":"s","expires_in_ms":5}',
            hold_operations.Opened("s", Lease(1.0, 5)),
        ),
        (hold_operations.close_session("s"), b'{"names":["a"]}', ("a",)),
        (
            hold_operations.holdings("s"),
            b'{"holds":[{"kind":"lock","owner":"o","name":"a"}]}',
            {("lock", "a")},
        ),
        (
            hold_operations.withdraw(primitive_operations.resize("a", 3, reason="by hand")),
            b'{"withdrawn":true}',
            True,
        ),
        (override_operations.force_close_session("s-1", "why"), b'{"names":["a"]}', ("a",)),
        (
            override_operations.force_waits("lock", "a", "why", ticket=2),
            b'{"ended":[{"owner":"o"}],"left":3}',
            WaitsForcedJson((holdfast.Waiter("o"),), left=3),
        ),
        (override_operations.lift_delay("lock", "a", "why"), b'{"lifted":2}', 2),
        (override_operations.forget_fence("a", "why"), b'{"highest_token":7}', 7),
        (
            override_operations.forget_rate_limit("a", "why"),
            b'{"forgotten":1,"more":false}',
            RatesForgottenJson(forgotten=1, more=False),
        ),
        (
            override_operations.revoke("lock", "a", "why", 5, token=1, ticket=2),
            b'{"revoked":[{"owner":"o"}]}',
            (holdfast.Holder("o"),),
        ),
        (
            override_operations.withdraw_revocation("lock", "a", "why", token=1, ticket=2),
            b'{"withdrawn":4,"left":3}',
            RevocationsWithdrawnJson(4, left=3),
        ),
        (
            override_operations.force_release("lock", "a", "why", 5, token=1),
            b'{"forced":[{"owner":"o"}]}',
            (holdfast.Holder("o"),),
        ),
        (primitive_operations.advance("a", 1), b'{"highest_token":7}', 7),
        (primitive_operations.get_fence("a", is_stale=False), b'{"highest_token":7}', 7),
        (primitive_operations.proclaim("h", "v"), b'{"token":7}', 7),
        (quota_operations.remove_quota("ann", reason="by hand"), b'{"quota":null}', None),
        (namespace_operations.remove_namespace("a", reason="by hand"), b'{"settings":null}', None),
        (cluster_operations.remove_member("n3", "why"), b'{"members":[]}', ()),
        (cell_operations.delete("a"), b'{"deleted":1,"more":false}', True),
        (
            cell_operations.transact((), (), ()),
            b'{"succeeded":true,"results":[]}',
            holdfast.Transacted(True, ()),
        ),
    ],
)
def test_only_what_is_read_has_to_be_there(operation: Operation[Any], body: bytes, told: object) -> None:
    """An answer says more than the client reads, such as its revision: without that it is as good."""
    assert operation.read(TimedAnswer(body, 1.0, 1.0)) == told


def test_a_transaction_without_its_results_is_not_the_answer_of_a_node() -> None:
    """Whatever answered, it did not do what it was asked."""
    operation = cell_operations.transact([], [holdfast.CellGet("a")], [])
    with pytest.raises(holdfast.OutcomeUnknown):
        operation.read(TimedAnswer(b'{"succeeded":true,"results":[]}', 0.0, 0.0))


_NUMBERS = b'"create_revision":1,"mod_revision":1,"version":1'


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        (hold_operations.holdings("s"), b'{"ok":true}'),
        (cell_operations.delete_some("a"), b'{"deleted":1}'),
        (cell_operations.get("a", is_stale=False), b'{"key":"a",%b}' % _NUMBERS),
        (cell_operations.get("a", is_stale=False), b'{"value":"v",%b}' % _NUMBERS),
        *[
            (
                cell_operations.transact([], [operation], []),
                b'{"succeeded":true,"results":[{%b}]}' % done,
            )
            for operation, done in (
                (holdfast.CellGet("a"), b'"get":"a"'),
                (holdfast.CellPut("a", "v"), b'"put":"a","version":1'),
                (holdfast.CellDelete("a"), b'"delete":"a"'),
            )
        ],
    ],
)
def test_what_is_read_has_to_be_there(operation: Operation[Any], body: bytes) -> None:
    """Nobody is told that nothing is held or left, or no cell there, by an answer that does not say so."""
    with pytest.raises(holdfast.OutcomeUnknown):
        operation.read(TimedAnswer(body, 0.0, 0.0))


def test_a_key_that_is_not_text_is_shown_all_the_same() -> None:
    """Only other faces than HTTP could write it."""
    cell = b'{"key_base64":"/w==","value":"v","create_revision":1,"mod_revision":2,"version":1}'
    page = cell_operations.list_page("", 10, "", is_stale=True)
    (read,) = page.read(TimedAnswer(b'{"cells":[%b],"next":null}' % cell, 0.0, 0.0)).items
    assert (read.key.encode(errors="surrogateescape"), read.text) == (b"\xff", "v")
    assert page.path == "/v1/cells?limit=10&consistency=stale"


def test_reads_change_nothing() -> None:
    """Only reads leave no doubt when their answer is lost."""
    assert pages(wire.LOCKS, "locks", holdfast.LockInfo, {})(5, "").changes_nothing
    assert not hold_operations.close_session("s").changes_nothing
    query = {"prefix": "a/", "owner": "", "consistency": wire.STALE}
    assert pages(wire.LOCKS, "locks", holdfast.LockInfo, query)(5, "b c").path == (
        f"{wire.LOCKS}?prefix=a%2F&consistency=stale&limit=5&after=b+c"
    )
