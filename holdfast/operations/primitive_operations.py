"""The operations on semaphores, rate limits, fences, elections and the audit. No I/O."""

from holdfast import wire
from holdfast.operations import stream_forms, stream_more_forms
from holdfast.operations.hold_operations import Grant, grant_of, release
from holdfast.operations.operation import Operation, ask, decode, new_request_id, path_to, write
from holdfast.operations.wanted import HoldRequest
from holdfast.values.answers import Event, EventList
from holdfast.values.words import HoldKind
from holdfast.wire.answers import FenceAdvancedJson, HoldGiven, ProclaimedJson, SemaphoreSize, Taken
from holdfast.wire.held import ElectionInfo, FenceJson, SemaphoreInfo, TokenCheck

# -- semaphores -------------------------------------------------------------------------------------------


def acquire_permits(
    name: str, *, limit: int | None, permits: int, is_strict: bool, wanted: HoldRequest
) -> Operation[Grant]:
    """Acquire permits of a semaphore."""
    asked = {"name": name, "limit": limit, "permits": permits, "strict": is_strict or None}
    return write(
        wire.SEMAPHORE_ACQUIRE,
        lambda: asked | wanted.fields(),
        lambda answer: grant_of("semaphore", decode(answer, HoldGiven), answer.asked_at_s, (name,)),
        wait_ms=wanted.longest_wait_ms,
        waits_for_ever=wanted.wait_ms is None,
        undo=lambda grant: release("semaphore", grant.hold_id),
        names=(name,),
        numbered=stream_forms.acquire_permits(
            name,
            limit=limit,
            permits=permits,
            is_strict=is_strict,
            wanted=wanted,
            read=lambda result, asked_at_s: grant_of(
                "semaphore", stream_forms.granted(result), asked_at_s, (name,)
            ),
            release=lambda hold_id: release("semaphore", hold_id),
        ),
    )


def resize(name: str, limit: int, reason: str) -> Operation[SemaphoreSize]:
    """Give a semaphore that is in use another limit."""
    fields = {"name": name, "limit": limit, "reason": reason, "request_id": new_request_id()}
    return write(wire.SEMAPHORE_RESIZE, fields, lambda answer: decode(answer, SemaphoreSize))


def get_semaphore(name: str, *, is_stale: bool) -> Operation[SemaphoreInfo]:
    """Read one semaphore."""
    path = path_to(wire.SEMAPHORE, name)
    query = {"consistency": wire.STALE if is_stale else ""}
    return ask(path, query, lambda answer: decode(answer, SemaphoreInfo))


# -- rate limits and fences -------------------------------------------------------------------------------


def take(
    name: str,
    *,
    limit: int | None,
    window_ms: int | None,
    algorithm: str | None,
    cost: int,
    wait_ms: int | None,
) -> Operation[Taken]:
    """Take from a rate limit. A place that nobody waits for any longer is given back by the nodes."""
    longest_wait_ms = wire.WAIT_MS_MAX if wait_ms is None else wait_ms
    asked = {"name": name, "limit": limit, "window_ms": window_ms, "algorithm": algorithm, "cost": cost}
    return write(
        wire.RATE_TAKE,
        lambda: asked | {"wait_ms": longest_wait_ms or None, "request_id": new_request_id()},
        lambda answer: decode(answer, Taken),
        wait_ms=longest_wait_ms,
        waits_for_ever=wait_ms is None,
        numbered=stream_more_forms.take(
            name,
            limit=limit,
            window_ms=window_ms,
            algorithm=algorithm,
            cost=cost,
            may_wait=longest_wait_ms > 0,
        ),
    )


def peek(
    name: str,
    *,
    limit: int | None,
    window_ms: int | None,
    algorithm: str | None,
    cost: int,
    is_stale: bool,
) -> Operation[Taken]:
    """Ask what `take` would answer. It is a read, though its path takes a POST."""
    path = wire.RATE_PEEK + (f"?consistency={wire.STALE}" if is_stale else "")
    fields = {"name": name, "limit": limit, "window_ms": window_ms, "algorithm": algorithm, "cost": cost}
    return write(path, fields, lambda answer: decode(answer, Taken))


def get_fence(name: str, *, is_stale: bool) -> Operation[int | None]:
    """Read the highest token that a resource has seen."""
    path = path_to(wire.FENCE, name)
    query = {"consistency": wire.STALE if is_stale else ""}
    return ask(path, query, lambda answer: decode(answer, FenceJson).highest_token)


def check_token(name: str, token: int, *, kind: HoldKind | None, is_stale: bool) -> Operation[TokenCheck]:
    """Ask whether a token belongs to a current holder. It is a read, though its path takes a POST."""
    path = wire.FENCE_CHECK + (f"?consistency={wire.STALE}" if is_stale else "")
    fields = {"name": name, "token": token, "kind": kind}
    return write(path, fields, lambda answer: decode(answer, TokenCheck))


def advance(name: str, token: int) -> Operation[int]:
    """Show a token to a resource; the answer has the highest one that it has seen."""
    return write(
        wire.FENCE_ADVANCE,
        lambda: {"name": name, "token": token, "request_id": new_request_id()},
        lambda answer: decode(answer, FenceAdvancedJson).highest_token,
        numbered=stream_more_forms.advance(name, token),
    )


# -- elections --------------------------------------------------------------------------------------------


def campaign(name: str, value: str, wanted: HoldRequest) -> Operation[Grant]:
    """Stand in an election, for a session; the answer comes when it is won."""
    asked = {key: field for key, field in wanted.fields().items() if key not in _NOT_OF_CAMPAIGNS}
    return write(
        wire.ELECTION_CAMPAIGN,
        {"name": name, "value": value} | asked,
        lambda answer: grant_of("election", decode(answer, HoldGiven), answer.asked_at_s, (name,)),
        wait_ms=wanted.longest_wait_ms,
        waits_for_ever=wanted.wait_ms is None,
        undo=lambda grant: release("election", grant.hold_id),
        names=(name,),
        always="value",
    )


_NOT_OF_CAMPAIGNS = {"ttl_ms", "lock_delay_ms", "note", "value", "value_secret", "no_deadline"}


def proclaim(hold_id: str, value: str) -> Operation[int]:
    """Tell everybody another value as the leader; the answer has the token."""
    return write(
        wire.ELECTION_PROCLAIM,
        lambda: {"hold_id": hold_id, "value": value, "request_id": new_request_id()},
        lambda answer: decode(answer, ProclaimedJson).token,
        always="value",
        numbered=stream_forms.proclaim(hold_id, value),
    )


def get_election(name: str, *, is_stale: bool) -> Operation[ElectionInfo]:
    """Read one election."""
    path = path_to(wire.ELECTION, name)
    query = {"consistency": wire.STALE if is_stale else ""}
    return ask(path, query, lambda answer: decode(answer, ElectionInfo))


# -- what happened ----------------------------------------------------------------------------------------


def audit(
    name: str, limit: int, behind: int | None, *, by_operators: bool, is_stale: bool
) -> Operation[tuple[Event, ...]]:
    """Read what happened last to a name, or to all; or what happened behind a record."""
    query = {
        "name": name,
        "limit": str(limit),
        "behind": "" if behind is None else str(behind),
        "by_operators": "true" if by_operators else "",
        "consistency": wire.STALE if is_stale else "",
    }
    return ask(wire.AUDIT, query, lambda answer: decode(answer, EventList).events)


def session_audit(session_id: str, limit: int, *, is_stale: bool) -> Operation[tuple[Event, ...]]:
    """Read what a session did last; it may have ended."""
    path = path_to(wire.SESSION_AUDIT, session_id)
    query = {"limit": str(limit), "consistency": wire.STALE if is_stale else ""}
    return ask(path, query, lambda answer: decode(answer, EventList).events)
