"""The exchange: which node is asked next, when, and what the caller is told in the end."""

import msgspec
import pytest

import holdfast
from holdfast import wire
from holdfast.operations.exchange import (
    ATTEMPT_S_MAX,
    GRACE_S,
    SLICE_S,
    SLICE_S_MIN,
    Answered,
    Attempt,
    Exchange,
    Retry,
)
from holdfast.operations.operation import Operation, TimedAnswer, write
from holdfast.values.errors import _REFUSALS


def _body(answer: TimedAnswer) -> bytes:
    return answer.body


READ = Operation(method="GET", path="/", read=_body)
WRITE = write("/", {"request_id": "r"}, _body)


def _new(operation: Operation[bytes] = WRITE, *, nodes: int = 3, timeout_s: float = 10.0) -> Exchange[bytes]:
    return Exchange(operation, nodes_count=nodes, node=0, now_s=100.0, timeout_s=timeout_s)


def _problem(code: str, **fields: object) -> bytes:
    return msgspec.json.encode({"code": code, "detail": "d", "outcome": wire.PROBLEMS[code].outcome} | fields)


def _answer_ms(attempt: Attempt) -> int:
    return int(attempt.headers[wire.HEADER_TIMEOUT_MS])


def test_attempts_go_round_the_nodes() -> None:
    """Each failure turns to the next node at once; when all have failed the client waits, ever longer."""
    exchange = _new()
    nodes, delays_s = [], []
    for _ in range(9):
        nodes.append(exchange.attempt(100.0).node)
        delays_s.append(exchange.on_silence("x", was_sent=False, now_s=100.0, jitter=1.0).delay_s)
    assert nodes == [0, 1, 2] * 3
    assert delays_s == [0, 0, 0.05, 0, 0, 0.1, 0, 0, 0.2]


def test_retry_after_is_honoured() -> None:
    """A node's wish is a lower bound, spread upwards by half so that clients do not come back together."""
    for jitter in (0.0, 1.0):
        step = _new().on_answer(429, _problem("overloaded", retry_after_ms=400), now_s=100.0, jitter=jitter)
        assert step == Retry(0.4 * (1 + jitter / 2))


def test_an_attempt_has_a_share_of_the_deadline() -> None:
    """One node gets at most a share of the time, so that the others can be asked, too."""
    first = _new(timeout_s=60.0).attempt(100.0)
    assert _answer_ms(first) == ATTEMPT_S_MAX * 1000
    assert first.give_up_s > ATTEMPT_S_MAX
    assert _answer_ms(_new(timeout_s=3.0).attempt(100.0)) == 1000
    assert _new(timeout_s=3.0).attempt(102.9).give_up_s == pytest.approx(0.1)


def _waiting(wait_ms: int = 20_000, *, for_ever: bool = False) -> Operation[bytes]:
    return write("/", {"request_id": "r"}, _body, wait_ms=wait_ms, waits_for_ever=for_ever)


def _poll_ms(attempt: Attempt) -> int | None:
    asked: dict[str, object] = msgspec.json.decode(attempt.body)
    poll_ms = asked.get("poll_ms")
    assert poll_ms is None or isinstance(poll_ms, int)
    return poll_ms


def test_a_wait_without_an_end_gives_up_without_nodes() -> None:
    """It ends `timeout_s` after a node has said for the last time that it still waits."""
    exchange = _new(_waiting(wire.WAIT_MS_MAX, for_ever=True), timeout_s=10.0)
    exchange.attempt(5000.0)
    assert isinstance(exchange.on_answer(202, b"{}", now_s=5004.0, jitter=0.0), Retry)
    exchange.attempt(5004.0)
    assert isinstance(exchange.on_silence("reset", was_sent=True, now_s=5004.1, jitter=0.0), Retry)
    exchange.attempt(5005.0)
    assert isinstance(exchange.on_silence("hangs", was_sent=True, now_s=5013.0, jitter=0.0), Retry)
    exchange.attempt(5013.0)
    with pytest.raises(holdfast.OutcomeUnknown):
        exchange.on_silence("reset", was_sent=False, now_s=5014.0, jitter=0.0)


def test_a_wait_is_asked_for_in_slices() -> None:
    """A node has a slice and the time of an answer, then it hangs; the last slice ends with the wait."""
    exchange = _new(_waiting(), timeout_s=6.0)
    first = exchange.attempt(100.0)
    assert _poll_ms(first) == SLICE_S * 1000
    assert first.give_up_s == pytest.approx(SLICE_S + 2.0 + GRACE_S)
    last = exchange.attempt(118.0)
    assert _poll_ms(last) is None
    assert last.give_up_s == pytest.approx(2.0 + 2.0 + GRACE_S)
    after = exchange.attempt(125.0)
    assert _poll_ms(after) is None
    assert after.give_up_s == pytest.approx(1.0)
    assert isinstance(exchange.on_silence("x", was_sent=True, now_s=125.9, jitter=0), Retry)
    with pytest.raises(holdfast.OutcomeUnknown):
        exchange.on_silence("x", was_sent=True, now_s=126.0, jitter=0)


def test_a_wait_goes_on_where_it_stands() -> None:
    """The node that says that a request still waits is asked again at once, but not in a hurry."""
    exchange = _new(_waiting())
    exchange.attempt(100.0)
    assert exchange.on_answer(202, b"{}", now_s=104.0, jitter=0) == Retry(0.0)
    assert exchange.attempt(104.0).node == 0
    hurried = exchange.on_answer(202, b"{}", now_s=104.0, jitter=0)
    assert isinstance(hurried, Retry)
    assert hurried.delay_s == pytest.approx(SLICE_S_MIN)


@pytest.mark.parametrize("status", [408, 502, 504, 524])
def test_a_proxy_without_patience_is_asked_for_less(status: int) -> None:
    """A request that it cut off is asked again in shorter slices, also one that it cut again."""
    exchange = _new(_waiting(), nodes=1)
    exchange.attempt(100.0)
    assert isinstance(exchange.on_answer(status, b"<html>", now_s=102.0, jitter=0), Retry)
    assert _poll_ms(exchange.attempt(102.0)) == 1200
    assert isinstance(exchange.on_silence("reset", was_sent=True, now_s=103.0, jitter=0), Retry)
    assert _poll_ms(exchange.attempt(103.0)) == 600


def test_a_cut_shows_once_that_there_is_a_way() -> None:
    """A wait without an end that is cut off again and again, and never answered, gives up."""
    exchange = _new(_waiting(wire.WAIT_MS_MAX, for_ever=True), nodes=1, timeout_s=10.0)
    exchange.attempt(100.0)
    assert isinstance(exchange.on_answer(504, b"", now_s=160.0, jitter=0), Retry)
    exchange.attempt(160.0)
    with pytest.raises(holdfast.OutcomeUnknown):
        exchange.on_answer(504, b"", now_s=170.0, jitter=0)


def test_a_quick_failure_is_not_a_cut() -> None:
    """A proxy without nodes behind it, and a node that was just killed, change no slice."""
    exchange = _new(_waiting(), nodes=1)
    exchange.attempt(100.0)
    exchange.on_answer(502, b"", now_s=100.1, jitter=0)
    exchange.attempt(100.2)
    exchange.on_silence("reset", was_sent=True, now_s=100.3, jitter=0)
    assert _poll_ms(exchange.attempt(100.4)) == SLICE_S * 1000


def test_the_worst_that_is_possible_is_reported() -> None:
    """Only when no attempt can have had an effect is it Unavailable; a read never can."""
    late_s = 110.0
    with pytest.raises(holdfast.Unavailable):
        _new().on_silence("x", was_sent=False, now_s=late_s, jitter=0)
    with pytest.raises(holdfast.OutcomeUnknown):
        _new().on_silence("x", was_sent=True, now_s=late_s, jitter=0)
    with pytest.raises(holdfast.Unavailable):
        _new(READ).on_silence("x", was_sent=True, now_s=late_s, jitter=0)
    with pytest.raises(holdfast.Unavailable):
        _new().on_answer(503, _problem("no-leader"), now_s=late_s, jitter=0)
    with pytest.raises(holdfast.OutcomeUnknown):
        _new().on_answer(503, b"<html>", now_s=late_s, jitter=0)


def test_a_refusal_of_a_repetition_settles_only_what_the_cluster_decides() -> None:
    """It knows the first attempt by its id. A node that refuses to ask it knows nothing of one before."""
    settled, unknown = set(), set()
    for code, kind in wire.PROBLEMS.items():
        exchange = _new()
        exchange.on_silence("reset", was_sent=True, now_s=100.0, jitter=0)
        try:
            exchange.on_answer(kind.status, _problem(code), now_s=110.0, jitter=0)
        except holdfast.Refused:
            settled.add(code)
        except holdfast.OutcomeUnknown as error:
            unknown.add(error.request_id)
    assert unknown == {"r"}
    assert settled == {code for code, kind in wire.PROBLEMS.items() if kind.status in (409, 410)} - {
        "member-change-refused",
        "member-change-pending",
    }
    reading = _new(READ)
    reading.on_silence("reset", was_sent=True, now_s=100.0, jitter=0)
    with pytest.raises(holdfast.AccessDenied):
        reading.on_answer(403, _problem("forbidden"), now_s=110.0, jitter=0)


@pytest.mark.parametrize("body", [b"", b"[]", b'"x"', b'{"code": 5}', b'{"retry_after_ms": "soon"}', b"\xff"])
def test_a_body_that_is_not_a_problem_document_is_survived(body: bytes) -> None:
    """Whatever a proxy says, the status decides; another web server at every URL is told at once."""
    assert isinstance(_new().on_answer(503, body, now_s=100.0, jitter=0), Retry)
    exchange = _new(nodes=2)
    assert isinstance(exchange.on_answer(404, body, now_s=100.0, jitter=0), Retry)
    with pytest.raises(holdfast.Unavailable, match="not a Holdfast node") as caught:
        exchange.on_answer(501, body, now_s=100.0, jitter=0)
    assert caught.value.code == "not-a-node"


def test_each_node_is_named_with_its_reason() -> None:
    """And the next step for the last of them."""
    urls = ("http://a:7700", "http://b:7700")
    exchange = Exchange(READ, nodes_count=2, node=0, now_s=100.0, timeout_s=5, urls=urls)
    exchange.on_silence("http://a:7700: no connection: refused", was_sent=False, now_s=100.0, jitter=0)
    with pytest.raises(holdfast.Unavailable) as caught:
        exchange.on_answer(503, _problem("no-leader"), now_s=105.0, jitter=0)
    text = str(caught.value)
    assert text.startswith("not done: http://a:7700: no connection: refused; http://b:7700: ")
    assert "More than half of the nodes have to run" in text
    assert exchange.why_left(0) == "http://a:7700: no connection: refused"


def test_success_is_the_value_that_the_operation_reads() -> None:
    """Every status of the 2xx kind ends the exchange, at the node that answered."""
    exchange = _new()
    exchange.on_silence("x", was_sent=True, now_s=100.0, jitter=0)
    assert exchange.on_answer(201, b"{}", now_s=100.0, jitter=0) == Answered(b"{}", node=1)


def test_an_answer_knows_when_it_was_asked_for() -> None:
    """The operation reads the answer with the times of its beginning and of the attempt that succeeded."""
    times: Operation[tuple[float, float]] = Operation(
        method="POST", path="/", read=lambda answer: (answer.asked_at_s, answer.attempted_at_s)
    )
    exchange = Exchange(times, nodes_count=2, node=0, now_s=100.0, timeout_s=10.0)
    exchange.attempt(100.5)
    exchange.on_silence("x", was_sent=True, now_s=101.0, jitter=0)
    exchange.attempt(101.5)
    assert exchange.on_answer(200, b"", now_s=102.0, jitter=0) == Answered((100.0, 101.5), node=1)


def test_an_attempt_is_what_goes_over_the_wire() -> None:
    """It carries the operation as it is, with the headers that tell the node its id and our patience."""
    attempt = _new().attempt(100.0)
    assert (attempt.method, attempt.path, attempt.body) == ("POST", "/", b'{"request_id":"r"}')
    assert attempt.headers == {
        wire.HEADER_TIMEOUT_MS: "3000",
        wire.HEADER_REQUEST_ID: "r",
        "Content-Type": wire.JSON,
    }
    assert set(_new(READ).attempt(100.0).headers) == {wire.HEADER_TIMEOUT_MS}


def test_every_code_is_refused_or_repeated_as_the_table_says() -> None:
    """Each code of the public table is repeated, refused or unknown, by its status."""
    for code, kind in wire.PROBLEMS.items():
        if kind.status in {421, 429, 503, 504}:
            step = _new().on_answer(kind.status, _problem(code), now_s=100.0, jitter=0)
            assert isinstance(step, Retry)
        elif code == "internal":
            with pytest.raises(holdfast.OutcomeUnknown):
                _new().on_answer(kind.status, _problem(code), now_s=100.0, jitter=0)
        else:
            with pytest.raises(holdfast.Refused) as caught:
                _new().on_answer(kind.status, _problem(code), now_s=100.0, jitter=0)
            assert caught.value.code == code
    assert set(_REFUSALS) <= set(wire.PROBLEMS)


def test_too_many_requests_are_no_end() -> None:
    """Another node has room, and this one later; what a principal holds goes by itself nowhere."""
    exchange, asked, delays_s = _new(), [], []
    for retry_after_ms in (800, 60_000, 400, 800):
        asked.append(exchange.attempt(100.0).node)
        body = _problem("too-many-requests", retry_after_ms=retry_after_ms)
        step = exchange.on_answer(429, body, now_s=100.0, jitter=0)
        assert isinstance(step, Retry)
        delays_s.append(step.delay_s)
    assert asked == [0, 1, 2, 2]  # the last one as the first that has room again
    assert delays_s == [0, 0, pytest.approx(0.4), pytest.approx(0.8)]
    with pytest.raises(holdfast.QuotaExceeded):
        _new().on_answer(409, _problem("quota-exceeded", quota="holds"), now_s=100.0, jitter=0)


def test_a_node_without_room_is_not_asked_while_another_one_fails() -> None:
    """It is asked when it said so; the others as always until then."""
    exchange = _new(nodes=2)
    body = _problem("too-many-requests", retry_after_ms=2000)
    assert exchange.on_answer(429, body, now_s=100.0, jitter=0) == Retry(0)
    for _ in range(3):
        assert exchange.attempt(100.0).node == 1
        assert exchange.on_silence("reset", was_sent=False, now_s=100.0, jitter=0).delay_s < 0.5
    exchange.on_silence("reset", was_sent=False, now_s=102.0, jitter=0)
    assert exchange.attempt(102.0).node == 0


def test_a_node_that_starts_is_left_for_the_next_one_at_once() -> None:
    """It says when it may be asked again; the others need not wait for that."""
    exchange = _new(nodes=2)
    body = _problem("not-ready", retry_after_ms=1000)
    assert exchange.on_answer(503, body, now_s=100.0, jitter=0) == Retry(0)
    assert exchange.attempt(100.0).node == 1
    alone = _new(nodes=1)
    assert alone.on_answer(503, body, now_s=100.0, jitter=0) == Retry(1)


def test_nodes_that_all_have_no_room_in_time_are_given_up() -> None:
    """Nobody waits for what would come behind the deadline."""
    exchange = _new(nodes=2)
    body = _problem("too-many-requests", retry_after_ms=60_000)
    assert exchange.on_answer(429, body, now_s=100.0, jitter=0) == Retry(0)
    with pytest.raises(holdfast.Unavailable) as caught:
        exchange.on_answer(429, body, now_s=100.0, jitter=0)
    assert caught.value.code == "too-many-requests"


def test_a_driver_needs_neither_a_loop_nor_a_thread() -> None:
    """Plain calls drive the exchange: send what it says, report how it went, wait as long as it says."""
    script = iter([None, (503, _problem("no-leader", retry_after_ms=200)), (200, b"done")])
    exchange, now_s, asked = _new(nodes=2), 100.0, []
    while True:
        attempt = exchange.attempt(now_s)
        asked.append(attempt.node)
        answer = next(script)
        step = (
            exchange.on_silence("reset", was_sent=True, now_s=now_s, jitter=0)
            if answer is None
            else exchange.on_answer(*answer, now_s=now_s, jitter=0)
        )
        if isinstance(step, Answered):
            break
        now_s += step.delay_s
    assert (step.value, asked) == (b"done", [0, 1, 0])
    assert now_s == pytest.approx(100.2)


def _untrusted(exchange: Exchange[bytes]) -> Retry:
    return exchange.on_no_trust("wrong", was_sent=False, now_s=100.0, jitter=0)


def test_nodes_that_cannot_be_trusted_end_it_when_there_are_no_others() -> None:
    """One round is enough: certificates do not change while somebody waits."""
    exchange = _new(nodes=2)
    assert isinstance(_untrusted(exchange), Retry)
    with pytest.raises(holdfast.TlsRefused):
        _untrusted(exchange)


def test_a_round_of_untrusted_nodes_is_without_gaps() -> None:
    """A node that was wrong hours ago may have been put right: it is asked once more."""
    exchange = _new(nodes=2)
    _untrusted(exchange)
    for _ in range(2):
        exchange.on_silence("reset", was_sent=False, now_s=100.0, jitter=0)
    assert exchange.attempt(100.0).node == 1
    assert isinstance(_untrusted(exchange), Retry)


def test_what_may_be_done_stays_in_doubt_whatever_certificates_say() -> None:
    """An answer was lost before; that no node is trusted now does not take the request back."""
    exchange = _new(nodes=2)
    exchange.on_silence("reset", was_sent=True, now_s=100.0, jitter=0)
    _untrusted(exchange)
    with pytest.raises(holdfast.OutcomeUnknown):
        _untrusted(exchange)
    doubtful = _new(nodes=1)
    with pytest.raises(holdfast.OutcomeUnknown):
        doubtful.on_no_trust("wrong", was_sent=True, now_s=100.0, jitter=0)
