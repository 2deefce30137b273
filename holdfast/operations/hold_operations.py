"""The operations on locks and sessions, and on whatever is held. No I/O."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast import wire
from holdfast.operations import stream_forms
from holdfast.operations.operation import Operation, TimedAnswer, ask, decode, new_request_id, path_to, write
from holdfast.operations.wanted import HoldRequest
from holdfast.values.lease import Lease
from holdfast.values.words import HoldKind
from holdfast.wire.answers import (
    HandedOverJson,
    HoldGiven,
    PutOffJson,
    RenewedJson,
    SessionClosedJson,
    SessionKeptJson,
    SessionOpenedJson,
    WithdrawnJson,
)
from holdfast.wire.held import HoldRow, LockInfo, Revocation, SessionInfo
from holdfast.wire.results import Result, StreamGranted, StreamRenewed


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What was granted. `hold_id` is a secret; `names` has one name, or those of several locks."""

    kind: HoldKind
    hold_id: str
    token: int
    names: tuple[str, ...]
    mode: str
    lease: Lease


class Opened(msgspec.Struct, frozen=True):
    """A session that was opened. `session_id` is a secret; before `revision` nothing has happened to it."""

    session_id: str
    lease: Lease
    revision: int | None = None


# -- locks ------------------------------------------------------------------------------------------------


def acquire(names: Sequence[str], *, mode: str, scope: str, wanted: HoldRequest) -> Operation[Grant]:
    """Acquire a lock, or several, all or none, in one mode and scope."""
    held = tuple(names)
    return write(
        wire.LOCK_ACQUIRE,
        lambda: _wanted_locks(held, mode, scope) | wanted.fields(),
        lambda answer: grant_of("lock", decode(answer, HoldGiven), answer.asked_at_s, held, mode),
        wait_ms=wanted.longest_wait_ms,
        waits_for_ever=wanted.wait_ms is None,
        undo=lambda grant: release("lock", grant.hold_id),
        names=held,
        numbered=stream_forms.acquire(
            held,
            mode=mode,
            scope=scope,
            wanted=wanted,
            read=lambda result, asked_at_s: grant_of(
                "lock", stream_forms.granted(result), asked_at_s, held, mode
            ),
            release=lambda hold_id: release("lock", hold_id),
        ),
    )


def _wanted_locks(names: tuple[str, ...], mode: str, scope: str) -> dict[str, object]:
    kind = _unusual({"mode": mode, "scope": scope})
    if len(names) == 1:
        return {"name": names[0], **kind}
    return {"locks": [{"name": name, **kind} for name in names]}


def grant_of(
    kind: HoldKind,
    granted: HoldGiven | StreamGranted,
    asked_at_s: float,
    names: tuple[str, ...],
    mode: str = "",
) -> Grant:
    """Return what a node says was granted, over HTTP or a stream."""
    return Grant(
        kind=kind,
        hold_id=granted.hold_id,
        token=granted.token,
        names=names,
        mode=mode,
        lease=_lease_of(granted, asked_at_s),
    )


def _unusual(kind: Mapping[str, str]) -> dict[str, str]:
    """Return mode and scope, as far as they are not what the node takes without a word."""
    usual = {"mode": "exclusive", "scope": "node"}
    return {key: value for key, value in kind.items() if value != usual[key]}


def convert(hold_id: str, mode: str, wait_ms: int | None) -> Operation[int]:
    """Give a hold another mode; the answer has its token, which may be a new one."""
    longest_wait_ms = wire.WAIT_MS_MAX if wait_ms is None else wait_ms
    asked = {"hold_id": hold_id, "mode": mode, "wait_ms": longest_wait_ms or None}
    return write(
        wire.LOCK_CONVERT,
        lambda: asked | {"request_id": new_request_id()},
        lambda answer: decode(answer, HoldGiven).token,
        wait_ms=longest_wait_ms,
        waits_for_ever=wait_ms is None,
        numbered=stream_forms.convert(hold_id, mode),
    )


def add(hold_id: str, names: tuple[str, ...], mode: str, scope: str, wait_ms: int | None) -> Operation[Lease]:
    """Add locks to a hold; the answer has its token, which is a new one, and how long it may last."""
    longest_wait_ms = wire.WAIT_MS_MAX if wait_ms is None else wait_ms
    kind = _unusual({"mode": mode, "scope": scope})
    fields = {
        "hold_id": hold_id,
        "locks": [{"name": name, **kind} for name in names],
        "wait_ms": longest_wait_ms or None,
        "request_id": new_request_id(),
    }
    return write(
        wire.LOCK_ADD,
        fields,
        _added,
        wait_ms=longest_wait_ms,
        waits_for_ever=wait_ms is None,
    )


def _added(answer: TimedAnswer) -> Lease:
    granted = decode(answer, HoldGiven)
    return _lease_of(granted, answer.asked_at_s, token=granted.token)


class _Asked(msgspec.Struct):
    """What tells one request that may wait from all others: its id, and what that counts within."""

    request_id: str
    session_id: str | msgspec.UnsetType = msgspec.UNSET
    owner: str | msgspec.UnsetType = msgspec.UNSET
    hold_id: str | msgspec.UnsetType = msgspec.UNSET


def withdraw(operation: Operation[Any]) -> Operation[bool]:
    """Take back a request that waits, or what it was granted; the answer says whether there was anything."""
    asked = msgspec.json.decode(operation.body, type=_Asked)
    return write(
        wire.WAITS_WITHDRAW,
        msgspec.to_builtins(asked),
        lambda answer: decode(answer, WithdrawnJson).withdrawn,
    )


def get_lock(name: str, *, is_stale: bool) -> Operation[LockInfo]:
    """Read one lock."""
    path = path_to(wire.LOCK, name)
    query = {"consistency": wire.STALE if is_stale else ""}
    return ask(path, query, lambda answer: decode(answer, LockInfo))


# -- whatever is held -------------------------------------------------------------------------------------

_RENEW = {"lock": wire.LOCK_RENEW, "semaphore": wire.SEMAPHORE_RENEW}
_RELEASE = {
    "lock": wire.LOCK_RELEASE,
    "semaphore": wire.SEMAPHORE_RELEASE,
    "election": wire.ELECTION_RESIGN,
}


def renew(kind: HoldKind, hold_id: str, ttl_ms: int | None, *, exact: bool = False) -> Operation[Lease]:
    """Renew a hold that has a lease of its own; if `exact`, also to less than is left of it.

    It carries no request id on purpose: repeating it only starts the lease anew, and the new lease counts
    from the attempt that was answered, where a remembered outcome would count from the first.
    """
    return write(
        _RENEW[kind],
        {"hold_id": hold_id, "ttl_ms": ttl_ms, "exact": exact or None},
        _renewed,
        numbered=stream_forms.renew(
            kind,
            hold_id,
            ttl_ms,
            _renewed_on_stream,
            exact=exact,
        ),
    )


def _renewed_on_stream(result: Result, asked_at_s: float) -> Lease:
    told, revocations = stream_forms.renewed(result)
    return _lease_of(told, asked_at_s, revocations, told.token)


def _renewed(answer: TimedAnswer) -> Lease:
    told = decode(answer, RenewedJson)
    return _lease_of(told, answer.attempted_at_s, told.revocations or (), told.token)


def _lease_of(
    told: HoldGiven | RenewedJson | StreamGranted | StreamRenewed,
    asked_at_s: float,
    asked: tuple[Revocation, ...] = (),
    token: int = 0,
) -> Lease:
    """Return the lease of what a node says. Only what it says to have no deadline has none."""
    revocations = {token: asked} if asked else {}
    if isinstance(told, HoldGiven | RenewedJson):
        is_endless = told.no_deadline is True
    else:
        is_endless = told.expires_in_ms is None
    return Lease(asked_at_s, told.expires_in_ms or 0, revocations, is_endless, token)


_PUT_OFF = {
    "lock": wire.LOCK_PUT_OFF,
    "semaphore": wire.SEMAPHORE_PUT_OFF,
    "election": wire.ELECTION_PUT_OFF,
}


def put_off(kind: HoldKind, hold_id: str) -> Operation[Lease]:
    """Answer a revocation with "not yet"; the answer says for how long the hold is not forced."""
    fields = {"hold_id": hold_id, "request_id": new_request_id()}
    return write(_PUT_OFF[kind], fields, _put_off)


def _put_off(answer: TimedAnswer) -> Lease:
    return Lease(answer.attempted_at_s, decode(answer, PutOffJson).ends_in_ms)


def hand_over(hold_id: str, *, to_ticket: int | None, to_session: str | None) -> Operation[int]:
    """Give a hold to a waiter or a session; the answer has the token with which that has it."""
    fields = {
        "hold_id": hold_id,
        "to_ticket": to_ticket,
        "to_session": to_session,
        "new_hold_id": None if to_session is None else new_request_id(),
        "request_id": new_request_id(),
    }
    return write(wire.LOCK_HAND_OVER, fields, lambda answer: decode(answer, HandedOverJson).token)


def release_some(hold_id: str, names: tuple[str, ...]) -> Operation[None]:
    """Release some locks of a hold that has several."""
    fields = {"hold_id": hold_id, "names": names, "request_id": new_request_id()}
    return write(wire.LOCK_RELEASE, fields, lambda _: None)


def release(kind: HoldKind, hold_id: str) -> Operation[None]:
    """Release a hold."""
    return write(
        _RELEASE[kind],
        lambda: {"hold_id": hold_id, "request_id": new_request_id()},
        lambda _: None,
        numbered=stream_forms.release(kind, hold_id),
    )


def release_by_value(kind: HoldKind, name: str, value: str) -> Operation[None]:
    """Release the hold of a name that has this value."""
    fields = {"name": name, "value": value, "request_id": new_request_id()}
    return write(_RELEASE[_marked(kind)], fields, lambda _: None, always="value")


def renew_by_value(
    kind: HoldKind, name: str, value: str, ttl_ms: int | None, *, exact: bool = False
) -> Operation[Lease]:
    """Renew the hold of a name that has this value. Without a request id, as `renew`."""
    fields = {"name": name, "value": value, "ttl_ms": ttl_ms, "exact": exact or None}
    return write(_RENEW[_marked(kind)], fields, _renewed, always="value")


def _marked(kind: HoldKind) -> HoldKind:
    """Return a kind of holds that may carry a value. Raises ValueError for others."""
    if kind not in _RENEW:
        raise ValueError(f"kind: {kind!r}; must be lock or semaphore")
    return kind


# -- sessions ---------------------------------------------------------------------------------------------


def open_session(ttl_ms: int, labels: Mapping[str, str]) -> Operation[Opened]:
    """Open a session."""
    fields = {"ttl_ms": ttl_ms, "labels": dict(labels), "request_id": new_request_id()}
    return write(wire.SESSIONS, fields, _opened, undo=lambda opened: close_session(opened.session_id))


def _opened(answer: TimedAnswer) -> Opened:
    opened = decode(answer, SessionOpenedJson)
    return Opened(opened.session_id, Lease(answer.asked_at_s, opened.expires_in_ms), opened.revision or None)


class _Shown(msgspec.Struct):
    """What is read of a session: without its holds an answer must not say that it has none."""

    holds: tuple[HoldRow, ...]


def holdings(session_id: str) -> Operation[frozenset[tuple[str, str]]]:
    """Read what a session holds: the kind and the name of each."""
    return ask(path_to(wire.SESSION, session_id), {}, _holdings)


def _holdings(answer: TimedAnswer) -> frozenset[tuple[str, str]]:
    return frozenset((one.kind, one.name) for one in decode(answer, _Shown).holds)


def session_name(session_id: str) -> Operation[str]:
    """Read the public name of a session."""
    path = path_to(wire.SESSION, session_id)
    return ask(path, {}, lambda answer: decode(answer, SessionInfo).session_name)


def keepalive(session_id: str, ttl_ms: int | None = None) -> Operation[Lease]:
    """Keep a session alive, with another ttl from now on if given. Repeating it needs no request id."""
    path = path_to(wire.SESSION_KEEPALIVE, session_id)
    return write(path, {"ttl_ms": ttl_ms}, _kept)


def _kept(answer: TimedAnswer) -> Lease:
    kept = decode(answer, SessionKeptJson)
    revocations: dict[int, tuple[Revocation, ...]] = {}
    for one in kept.revoked or ():
        if one.revocation is not None:
            revocations[one.token] = (*revocations.get(one.token, ()), one.revocation)
    return Lease(answer.attempted_at_s, kept.expires_in_ms, revocations)


def close_session(session_id: str) -> Operation[tuple[str, ...]]:
    """Close a session; the answer names the locks that it held."""
    path = path_to(wire.SESSION, session_id)
    fields = {"request_id": new_request_id()}
    return write(path, fields, lambda answer: decode(answer, SessionClosedJson).names, method="DELETE")
