"""The client's pure rules: lease arithmetic, retry decisions, fencing, names."""

import threading

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast import _protocol, wire
from holdfast._errors import _REFUSALS
from holdfast._exchange import ATTEMPT_S_MAX, Done, Exchange, Retry
from holdfast._protocol import Lease, Request
from tests.support import http_contract

READ = Request(method="GET", path="/")
WRITE = Request(method="POST", path="/", body=b"{}", request_id="r")


def _exchange(request: Request = WRITE, *, nodes: int = 3, timeout_s: float = 10.0) -> Exchange:
    return Exchange(request, nodes_count=nodes, node=0, now_s=100.0, timeout_s=timeout_s)


def _problem(code: str, **fields: object) -> bytes:
    return msgspec.json.encode({"code": code, "detail": "d", "outcome": wire.PROBLEMS[code].outcome} | fields)


@given(asked_at_s=st.floats(0, 1e9), expires_in_ms=st.integers(0, 24 * 3600 * 1000))
def test_a_lease_is_valid_for_less_than_the_cluster_says(asked_at_s: float, expires_in_ms: int) -> None:
    """Validity counts from before the request, less a rounding and an allowance for a slow clock."""
    lease = Lease(asked_at_s, expires_in_ms)
    granted_s = lease.valid_until_s - asked_at_s
    assert 0 <= granted_s <= max(0.0, (expires_in_ms - 1) / 1000 * 0.9981) + 1e-6
    assert lease.remaining_s(asked_at_s + expires_in_ms / 1000 + 1e-6) == 0
    assert lease.renew_at_s <= max(asked_at_s + 0.01, lease.valid_until_s)


@pytest.mark.parametrize(
    ("expires_in_ms", "valid_ms"), [(0, 0), (1, 0), (50, 48), (1000, 997), (30_000, 29_939)]
)
def test_lease_examples(expires_in_ms: int, valid_ms: int) -> None:
    """One millisecond and one part in 500, rounded up, are taken off."""
    assert Lease(5.0, expires_in_ms).remaining_s(5.0) == pytest.approx(valid_ms / 1000)


def test_attempts_go_round_the_nodes() -> None:
    """Each failure turns to the next node at once; when all have failed the client waits, ever longer."""
    exchange = _exchange()
    nodes, delays_s = [], []
    for _ in range(9):
        nodes.append(exchange.attempt(100.0).node)
        delays_s.append(exchange.on_silence("x", was_sent=False, now_s=100.0, jitter=1.0).delay_s)
    assert nodes == [0, 1, 2] * 3
    assert delays_s == [0, 0, 0.05, 0, 0, 0.1, 0, 0, 0.2]


def test_retry_after_is_honoured() -> None:
    """A node's wish is a lower bound, spread upwards by half so that clients do not come back together."""
    for jitter in (0.0, 1.0):
        step = _exchange().on_answer(
            429, _problem("overloaded", retry_after_ms=400), now_s=100.0, jitter=jitter
        )
        assert step == Retry(0.4 * (1 + jitter / 2))


def test_an_attempt_has_a_share_of_the_deadline() -> None:
    """One node gets at most a share of the time, so that the others can be asked, too."""
    first = _exchange(timeout_s=60.0).attempt(100.0)
    assert first.answer_ms == ATTEMPT_S_MAX * 1000
    assert first.give_up_s > ATTEMPT_S_MAX
    assert _exchange(timeout_s=3.0).attempt(100.0).answer_ms == 1000
    assert _exchange(timeout_s=3.0).attempt(102.9).give_up_s == pytest.approx(0.1)


def test_a_wait_comes_on_top_of_the_deadline() -> None:
    """A repeated waiting acquire listens for the rest of its wait; the deadline counts from its end."""
    exchange = _exchange(Request(method="POST", path="/", wait_ms=20_000), timeout_s=6.0)
    assert exchange.attempt(100.0).give_up_s == pytest.approx(22.25)
    assert exchange.attempt(115.0).give_up_s == pytest.approx(7.25)
    assert exchange.attempt(125.0).give_up_s == pytest.approx(1.0)
    assert isinstance(exchange.on_silence("x", was_sent=True, now_s=125.9, jitter=0), Retry)
    with pytest.raises(holdfast.OutcomeUnknown):
        exchange.on_silence("x", was_sent=True, now_s=126.0, jitter=0)


def test_the_worst_that_is_possible_is_told() -> None:
    """Only when no attempt can have had an effect is it Unavailable; a read never can."""
    late_s = 110.0
    with pytest.raises(holdfast.Unavailable):
        _exchange().on_silence("x", was_sent=False, now_s=late_s, jitter=0)
    with pytest.raises(holdfast.OutcomeUnknown):
        _exchange().on_silence("x", was_sent=True, now_s=late_s, jitter=0)
    with pytest.raises(holdfast.Unavailable):
        _exchange(READ).on_silence("x", was_sent=True, now_s=late_s, jitter=0)
    with pytest.raises(holdfast.Unavailable):
        _exchange().on_answer(503, _problem("no-leader"), now_s=late_s, jitter=0)
    with pytest.raises(holdfast.OutcomeUnknown):
        _exchange().on_answer(503, b"<html>", now_s=late_s, jitter=0)


@pytest.mark.parametrize("body", [b"", b"[]", b'"x"', b'{"code": 5}', b'{"retry_after_ms": "soon"}', b"\xff"])
def test_a_body_that_is_no_problem_document_is_survived(body: bytes) -> None:
    """Whatever a proxy says, the status decides."""
    assert isinstance(_exchange().on_answer(503, body, now_s=100.0, jitter=0), Retry)
    with pytest.raises(holdfast.Refused) as caught:
        _exchange().on_answer(404, body, now_s=100.0, jitter=0)
    assert caught.value.code == "http-404"


def test_success_is_the_body() -> None:
    """Every status of the 2xx kind ends the exchange."""
    assert _exchange().on_answer(201, b"{}", now_s=100.0, jitter=0) == Done(b"{}")


def test_every_code_is_refused_or_repeated_as_the_table_says() -> None:
    """Each code of the public table is repeated, refused or unknown, by its status."""
    for code, kind in wire.PROBLEMS.items():
        if kind.status in {421, 429, 503, 504}:
            step = _exchange().on_answer(kind.status, _problem(code), now_s=100.0, jitter=0)
            assert isinstance(step, Retry)
        elif code == "internal":
            with pytest.raises(holdfast.OutcomeUnknown):
                _exchange().on_answer(kind.status, _problem(code), now_s=100.0, jitter=0)
        else:
            with pytest.raises(holdfast.Refused) as caught:
                _exchange().on_answer(kind.status, _problem(code), now_s=100.0, jitter=0)
            assert caught.value.code == code
    assert set(_REFUSALS) <= set(wire.PROBLEMS)


@given(st.text(min_size=1))
def test_a_name_is_one_part_of_the_path(name: str) -> None:
    """No name can add a path part, a query or a fragment."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    path = _protocol.get_lock(name, is_stale=False).path
    assert path.startswith("/v1/locks/")
    assert not set(path.removeprefix("/v1/locks/")) & set("/?#")


def test_requests_say_only_what_was_asked() -> None:
    """Fields that were not given are left to the node."""
    request = _protocol.acquire(
        "a", session_id="", ttl_ms=500, owner="", mode="exclusive", wait_ms=0, lock_delay_ms=0, note=""
    )
    assert set(msgspec.json.decode(request.body)) == {"name", "ttl_ms", "mode", "request_id"}
    for path, built in (
        (wire.LOCK_ACQUIRE, request),
        (wire.LOCK_RENEW, _protocol.renew("h", 5)),
        (wire.LOCK_RELEASE, _protocol.release("h")),
        (wire.LOCK_FORCE_RELEASE, _protocol.force_release("a", "why", 5)),
        (wire.SESSIONS, _protocol.open_session(500, {"a": "b"})),
    ):
        assert built.path == path
        assert set(msgspec.json.decode(built.body)) <= set(http_contract.REQUEST_FIELDS[f"POST {path}"])


def test_a_fenced_resource_refuses_older_tokens() -> None:
    """Equal and larger tokens pass, smaller ones are stale, from the token it was made with on."""
    resource = holdfast.FencedResource(highest_token=4)
    resource.check(4)
    resource.check(9)
    resource.check(9)
    with pytest.raises(holdfast.StaleToken) as caught:
        resource.check(8)
    assert (caught.value.token, caught.value.highest_token, caught.value.code) == (8, 9, "stale-token")
    assert resource.highest_token == 9


def test_a_fenced_resource_serves_several_threads() -> None:
    """Whatever the interleaving, each thread's accepted tokens never go back behind the highest."""
    resource = holdfast.FencedResource()
    accepted: list[int] = []

    def work(tokens: range) -> None:
        for token in tokens:
            try:
                resource.check(token)
            except holdfast.StaleToken:
                continue
            accepted.append(token)

    threads = [threading.Thread(target=work, args=(range(i, 3000, 4),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert resource.highest_token == 2999
    assert 2999 in accepted


def test_what_is_exported_exists() -> None:
    """`__all__` is sorted and true."""
    assert sorted(holdfast.__all__) == holdfast.__all__
    assert all(hasattr(holdfast, name) for name in holdfast.__all__)
