"""Calls that may wait in a queue: how each is carried out, over HTTP and on a stream, and what they share.

A call that still waits after its `poll_ms` is answered with 202 and where it stands.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec

from holdfast import wire
from holdfast.wire.answers import RateTakenJson, WithdrawnJson
from http_api.server.answer_bytes import Content
from http_api.server.call import Call, Reply
from http_api.v1 import schema
from lockapi import answers
from lockapi.gateway import CommandOutcome, Gateway, Unsettled
from lockapi.requests.fields import UNSET, Request, WaitingRequest
from lockapi.requests.locks import AcquireRequest, AddRequest, ConvertRequest, WithdrawRequest
from lockapi.requests.primitives import AcquirePermitsRequest, CampaignRequest, TakeRateRequest
from lockapi.requests.several import AcquireSeveralRequest
from lockstate.words import results

ACCEPTED: Final = 202
"""The status of an answer to a call that goes on waiting."""

Q = TypeVar("Q", bound=Request)


@dataclass(frozen=True, slots=True)
class WaitingCall(Generic[Q]):
    """One of these calls: the body that it takes, and what carries it out in so many seconds."""

    takes: type[Q]
    carry_out: Callable[[Gateway, Q, float], Awaitable[Content]]

    async def reply(self, gateway: Gateway, call: Call) -> Reply:
        """Answer it over HTTP. Raises ProblemError, ClusterError."""
        request = await schema.read(call, self.takes)
        content = await self.carry_out(gateway, request, call.timeout_s)
        return Reply(content.body, content.status, headers=content.lines)

    def content(self, gateway: Gateway, body: bytes, timeout_s: float) -> Awaitable[Content]:
        """Answer it for a face that has its body, which is not kept while the call waits.

        Raises ProblemError, ClusterError, also through what it returns.
        """
        return self.carry_out(gateway, schema.decode(body, self.takes), timeout_s)


def _acquiring(
    answer: Callable[[results.Granted, int, Any], msgspec.Struct],
) -> Callable[[Gateway, Any, float], Awaitable[Content]]:
    """Return what carries out requests for one hold, or one change; `answer` tells what was granted."""

    async def carry_out(gateway: Gateway, request: Any, timeout_s: float) -> Content:
        outcome = await gateway.acquire(request.command(), results.Granted, timeout_s, _poll_ms(request))
        if isinstance(outcome, Unsettled):
            return _accepted(outcome)
        return _told(answer(outcome.result, outcome.revision, request), outcome)

    return carry_out


async def _acquire_several(gateway: Gateway, request: AcquireSeveralRequest, timeout_s: float) -> Content:
    found = await gateway.acquire_several(request.command(), timeout_s, _poll_ms(request))
    if isinstance(found, Unsettled):
        return _accepted(found)
    outcome, waited_ms = found
    return _told(answers.granted_of_kinds(outcome.result, waited_ms, outcome.revision), outcome)


async def _take_rate(gateway: Gateway, request: TakeRateRequest, timeout_s: float) -> Content:
    found = await gateway.take_rate(request.command(), timeout_s, _poll_ms(request))
    if isinstance(found, Unsettled):
        return _accepted(found)
    outcome, waited_ms = found
    answer = answers.rate_taken(outcome.result, waited_ms, outcome.revision)
    told = _told(answer, outcome)
    return told._replace(lines=rate_lines(answer, outcome.result.limit, outcome.result.window_ms))


async def _withdraw(gateway: Gateway, request: WithdrawRequest, timeout_s: float) -> Content:
    withdrawn = await gateway.withdraw(request.scope(), request.request_id, timeout_s)
    return Content(answers.encode(WithdrawnJson(withdrawn, gateway.node.machine.revision)))


def _poll_ms(request: WaitingRequest) -> int | None:
    return None if request.poll_ms is UNSET else request.poll_ms


def _told(answer: msgspec.Struct, outcome: CommandOutcome[Any]) -> Content:
    return Content(answers.told(answer, is_repeated=outcome.is_repeated))


def _accepted(still: Unsettled) -> Content:
    return Content(answers.encode(answers.still_waiting(*still)), ACCEPTED)


def rate_lines(answer: RateTakenJson, limit: int, window_ms: int) -> str:
    """Return the fields of draft-ietf-httpapi-ratelimit-headers, which count whole seconds."""
    policy = f"{_POLICY};q={limit};w={_seconds(window_ms)}"
    state = f"{_POLICY};r={answer.remaining};t={_seconds(answer.reset_in_ms)}"
    return f"{wire.HEADER_RATE_POLICY}: {policy}\r\n{wire.HEADER_RATE}: {state}\r\n"


def _seconds(ms: int) -> int:
    """Return whole seconds, rounded up, so that clients that keep to them are never too fast."""
    return -(-ms // 1000)


_POLICY: Final = '"default"'
"""The name of the only policy that an answer about a rate limit speaks of; it has to have one."""

_CHANGING: Final = _acquiring(lambda result, revision, _: answers.granted(result, revision))

ACQUIRE: Final = WaitingCall(AcquireRequest, _CHANGING)
ADD: Final = WaitingCall(AddRequest, _CHANGING)
CONVERT: Final = WaitingCall(ConvertRequest, _CHANGING)
ACQUIRE_PERMITS: Final = WaitingCall(
    AcquirePermitsRequest,
    _acquiring(lambda result, revision, _: answers.permits_granted(result, revision)),
)
CAMPAIGN: Final = WaitingCall(
    CampaignRequest,
    _acquiring(lambda result, revision, request: answers.elected(result, request.value, revision)),
)
TAKE_RATE: Final = WaitingCall(TakeRateRequest, _take_rate)
SEVERAL: Final = WaitingCall(AcquireSeveralRequest, _acquire_several)
WITHDRAW: Final = WaitingCall(WithdrawRequest, _withdraw)

BY_PATH: Final[dict[str, WaitingCall[Any]]] = {
    wire.LOCK_ACQUIRE: ACQUIRE,
    wire.LOCK_ADD: ADD,
    wire.LOCK_CONVERT: CONVERT,
    wire.SEMAPHORE_ACQUIRE: ACQUIRE_PERMITS,
    wire.ELECTION_CAMPAIGN: CAMPAIGN,
    wire.ACQUIRE: SEVERAL,
    wire.RATE_TAKE: TAKE_RATE,
    wire.WAITS_WITHDRAW: WITHDRAW,
}
"""All of them: what can be called on a stream."""
