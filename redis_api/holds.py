"""Commands about keys: what each does with the hold that its key is. docs/faces.md has them in one table."""

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from cluster.errors import ClusterError, OutcomeUnknown
from holdfast.token_lines import Right
from lockapi import rights_needed, sight
from lockapi.gateway import Gateway
from lockapi.needs import forbidden
from lockapi.problems import ProblemError
from lockapi.requests.fields import UNSET, check_name
from lockapi.requests.locks import (
    AcquireRequest,
    ForceReleaseRequest,
    ReleaseHoldRequest,
    ReleaseRequest,
    RenewRequest,
    addition,
)
from lockstate.machine import LockMachine
from lockstate.words.ids import HoldId, OwnerName
from lockstate.words.kinds import HoldKind
from lockstate.words.results import ForceReleased, Granted, HoldView, Released, Renewed
from redis_api import spelled
from redis_api.arguments import Condition, TimeUnit, integer
from redis_api.client import Client, Started
from redis_api.errors import CommandRefused, not_supported
from redis_api.left_grants import VALUE_BYTES_MIN, Attempt, Key
from redis_api.resp import OK, Reply
from redis_api.scripts import Act, Script

_IN_THE_WAY: Final = frozenset({"lock-held", "frozen"})
"""The refusals of an acquire that mean no more than "not now"."""
_OVER: Final = frozenset({"lease-expired", "not-holder", "wrong-kind", "already-held"})
"""The refusals that mean that there is no such hold."""
_FORCED: Final = "deleted by a client of Redis"
"""The reason that the audit has of a hold that somebody else deleted."""

_SAME_VALUE: Final = (
    "a client asks for a lock that is held with the same value: it sent the command again, or it takes each"
    " node of this cluster for a server of its own (Redlock), and gets no majority: give it one address"
)

logger = logging.getLogger("redis_api")


def name_of(client: Client, key: bytes) -> str:
    """Return the name of the lock that a key is. Raises ProblemError if it is too long."""
    name = spelled.name_of(client.database, key)
    check_name("key", name)
    return name


# -- reads ---------------------------------------------------------------------------------------------------


async def holders(client: Client, names: list[str]) -> list[tuple[HoldView, ...]]:
    """Return who holds each of the names, or a subtree that it is in. Raises ProblemError, ClusterError."""
    rights = client.gateway.rights
    for name in names:
        rights_needed.check_name(rights, Right.READ, name)
    found = await _look(client, names)
    return [sight.seen(rights, each) for each in found]


async def _look(client: Client, names: list[str]) -> list[tuple[HoldView, ...]]:
    """Look at locks without regard to rights: what is found is not shown, or is the caller's own."""

    def look(machine: LockMachine) -> list[tuple[HoldView, ...]]:
        return [machine.lock(name).holders for name in names]

    return await client.gateway.read(look, client.timeout_s)


async def _holders_of(client: Client, name: str) -> list[HoldView]:
    """Return those that hold exactly this name."""
    (found,) = await _look(client, [name])
    return [hold for hold in found if hold.name == name]


def shown_value(found: tuple[HoldView, ...]) -> bytes | None:
    """Return the value of a key with these holders, None if it has none."""
    return spelled.value_of(found[0].value) if found else None


# -- to take -----------------------------------------------------------------------------------------------


async def take(client: Client, key: bytes, value: bytes, ttl_ms: int | None) -> bool:
    """Take a lock, or what an earlier attempt got without hearing of it; return whether it is held.

    Raises ProblemError, ClusterError.
    """
    name, text = name_of(client, key), spelled.value_text(value)
    known = Key(client.principal, name, text, ttl_ms is None)
    left = client.face.left.take(known)
    if left is not None and await left.is_granted() and await _adopt(client, left, value, ttl_ms):
        return True
    command = _asked(client, known, ttl_ms).command()
    attempt = client.attempt = _attempt(client, known, value, command.hold_id)
    with _outcome_of(client, attempt, value):
        await client.gateway.submit(command, Granted, client.timeout_s)
    return attempt.has_hold


def begin_take(client: Client, key: bytes, value: bytes, ttl_ms: int) -> Started | None:
    """Begin to take a lock; return None if an earlier attempt at it was left. Raises as `take`."""
    known = Key(client.principal, name_of(client, key), spelled.value_text(value), is_endless=False)
    if client.face.left.has_left(known):
        return None
    command, gateway = _asked(client, known, ttl_ms).command(), client.gateway
    begun = gateway.begin(command, client.timeout_s, client.lane)
    attempt = _attempt(client, known, value, command.hold_id)

    def finish() -> Reply:
        with _outcome_of(client, attempt, value):
            gateway.outcome(command, begun, Granted)
        return OK if attempt.has_hold else None

    return Started(begun, finish, attempt)


def _asked(client: Client, known: Key, ttl_ms: int | None) -> AcquireRequest:
    """Return the request that takes a lock."""
    request = AcquireRequest(name=known.name, value=known.value, owner=OwnerName(client.owner))
    if ttl_ms is None:
        request.no_deadline = True
    else:
        request.ttl_ms = ttl_ms
    return request


@contextmanager
def _outcome_of(client: Client, attempt: Attempt, value: bytes) -> Iterator[None]:
    """Settle an attempt by what the block raises. A lock that somebody else has is not an error."""
    is_granted = False
    try:
        yield
        is_granted = True
    except OutcomeUnknown:
        attempt.give_back()
        raise
    except ProblemError as problem:
        if attempt.key.is_endless and problem.code == "invalid-request":
            advice = "give it a time: PX, or lock(..., timeout=30) in redis-py"
            raise ProblemError(problem.code, f"{problem.detail}; {advice}") from None
        if problem.code not in _IN_THE_WAY:
            raise
        _tell_same_value(client, attempt.key.name, attempt.key.value, value)
    finally:
        attempt.settle(is_granted=is_granted)
    if is_granted:
        client.took(attempt.key.name, attempt.hold_id)


def _attempt(client: Client, known: Key, value: bytes, hold_id: HoldId) -> Attempt:
    """Return an attempt of which the client is still to hear."""
    give_back = partial(_release, client.gateway, hold_id, client.timeout_s)
    return client.face.left.begin(known, value, hold_id, give_back)


async def _adopt(client: Client, left: Attempt, value: bytes, ttl_ms: int | None) -> bool:
    """Take over a hold of which nobody was told, with a lease from now on; return whether it is there."""
    attempt = client.attempt = _attempt(client, left.key, value, left.hold_id)
    is_held = False
    try:
        await _renew(client, left.hold_id, ttl_ms)
        is_held = True
    except ProblemError as problem:
        if problem.code not in _OVER:
            attempt.settle(is_granted=False)
            attempt.give_back()
            raise
    except ClusterError:
        # As unheard of as before: the client asks again, or it is given back.
        client.attempt = None
        attempt.settle(is_granted=True)
        attempt.leave()
        raise
    attempt.settle(is_granted=is_held)
    if is_held:
        client.face.left.adopted_count += 1
        client.took(left.key.name, left.hold_id)
    return is_held


def _tell_same_value(client: Client, name: str, text: str, value: bytes) -> None:
    """Log once that a lock is refused to the very value that it has: a Redlock over nodes of one cluster."""
    face = client.face
    if face.has_told_same_value or len(value) < VALUE_BYTES_MIN:
        return
    if any(hold.value == text for hold in face.gateway.node.machine.lock(name).holders):
        face.has_told_same_value = True
        logger.warning("event=redis-same-value name=%r detail=%r", name, _SAME_VALUE)


# -- to renew ------------------------------------------------------------------------------------------------


async def _renew(client: Client, hold_id: HoldId, ttl_ms: int | None) -> None:
    """Let a hold last exactly so long from now on. Raises ProblemError, ClusterError."""
    request = RenewRequest(
        hold_id=hold_id, ttl_ms=UNSET if ttl_ms is None else ttl_ms, exact=ttl_ms is not None
    )
    await client.gateway.submit(request.command(HoldKind.LOCK), Renewed, client.timeout_s)


async def expire(client: Client, key: bytes, unit: TimeUnit, text: bytes, only: Condition) -> bool:
    """Let a hold that was taken on this connection last so long; return whether it does."""
    ttl_ms, name = unit.ttl_ms(text), name_of(client, key)
    rights_needed.check_name(client.gateway.rights, Right.ACQUIRE, name)
    found = await _holders_of(client, name)
    if not found:
        return False
    hold_id = client.own.get(name)
    if hold_id is None:
        raise CommandRefused(
            "this lock was not taken on this connection, and only its holder changes its time: compare its"
            " value first, as the scripts of lock clients do; see docs/faces.md",
            "NOPERM",
        )
    left_ms = found[0].expires_in_ms
    if not only.allows(ttl_ms, left_ms):
        return False
    if left_ms is None and ttl_ms > 0:
        raise not_supported(
            "EXPIRE of a lock without a deadline", "give the time when it is taken: SET key value NX PX ms"
        )
    if ttl_ms <= 0:
        changing = _release(client.gateway, hold_id, client.timeout_s)
    else:
        changing = _renew(client, hold_id, ttl_ms)
    is_over = await _is_over(changing)
    if is_over or ttl_ms <= 0:
        del client.own[name]
    return not is_over


async def _is_over(changing: Awaitable[object]) -> bool:
    """Do something with a hold; return whether there was none. Raises ProblemError for other refusals."""
    try:
        await changing
    except ProblemError as problem:
        if problem.code not in _OVER:
            raise
        return True
    return False


# -- to end --------------------------------------------------------------------------------------------------


async def _release(gateway: Gateway, hold_id: HoldId, timeout_s: float) -> None:
    """End a hold by its id. Raises ProblemError, ClusterError."""
    command = ReleaseHoldRequest(hold_id=hold_id).command(HoldKind.LOCK)
    await gateway.submit(command, Released, timeout_s)


async def delete(client: Client, key: bytes) -> bool:
    """End the hold of a key: that of this connection, or with the right to force, anybody's."""
    name = name_of(client, key)
    rights_needed.check_name(client.gateway.rights, Right.ACQUIRE, name)
    own = client.own.get(name)
    if own is not None:
        is_over = await _is_over(_release(client.gateway, own, client.timeout_s))
        del client.own[name]
        if not is_over:
            return True
    found = await _holders_of(client, name)
    if found and not client.gateway.rights.covers(Right.FORCE, name):
        refused = forbidden(Right.FORCE, name)
        refused.detail += ", because the lock was not taken on this connection: compare its value first"
        raise refused
    ended = [await _force(client, name, hold.token) for hold in found]
    return any(ended)


async def _force(client: Client, name: str, token: int) -> bool:
    """End one hold, whoever has it; return whether it was still there."""
    request = ForceReleaseRequest(name=name, reason=_FORCED, token=token)
    command = request.command(HoldKind.LOCK)
    return not await _is_over(client.gateway.submit(command, ForceReleased, client.timeout_s))


# -- scripts -------------------------------------------------------------------------------------------------


async def run(client: Client, script: Script, keys: list[bytes], args: list[bytes]) -> int:
    """Do what a script means. Raises ProblemError, ClusterError, CommandRefused."""
    name, text = _named(client, script, keys, args)
    request = _one_step(script, name, text, args)
    if request is not None:
        return await _changed(client, script, request)
    held = await _held_with(client, name, text)
    if held is None:
        return script.other
    left_ms = held.expires_in_ms
    if script.act is Act.REMAINING:
        return max(left_ms or 0, 0)
    if left_ms is None:
        return script.endless
    ttl_ms = integer(args[1]) * script.unit_ms
    if script.act is Act.EXTEND and args[2] == b"0":
        command = addition(name, text, ttl_ms)
        is_over = await _is_over(client.gateway.submit(command, Renewed, client.timeout_s))
        return script.other if is_over else script.done
    return await _changed(client, script, _expiry(name, text, ttl_ms))


Change = ReleaseRequest | RenewRequest
"""What is done with the hold that has a value, in one step."""


def begin_run(client: Client, script: Script, keys: list[bytes], args: list[bytes]) -> Started | None:
    """Begin what a script means; return None if that takes more than one step. Raises as `run`."""
    request = _one_step(script, *_named(client, script, keys, args), args)
    if request is None:
        return None
    gateway = client.gateway
    if isinstance(request, ReleaseRequest):
        release = request.command()
        begun = gateway.begin(release, client.timeout_s, client.lane)
        return Started(begun, lambda: _said(script, lambda: gateway.outcome(release, begun, Released)))
    renew = request.command(HoldKind.LOCK)
    begun = gateway.begin(renew, client.timeout_s, client.lane)
    return Started(begun, lambda: _said(script, lambda: gateway.outcome(renew, begun, Renewed)))


def _said(script: Script, outcome: Callable[[], object]) -> int:
    """Return what a script returns whose change has this outcome. Raises ProblemError, ClusterError."""
    try:
        outcome()
    except ProblemError as problem:
        if problem.code not in _OVER:
            raise
        return script.other
    return script.done


def _named(client: Client, script: Script, keys: list[bytes], args: list[bytes]) -> tuple[str, str]:
    """Return the name and the value that a script is about."""
    if len(keys) < script.keys_count or len(args) < script.args_count:
        raise CommandRefused(f"this script needs {script.keys_count} keys and {script.args_count} arguments")
    return name_of(client, keys[0]), spelled.value_text(args[0])


def _one_step(
    script: Script, name: str, text: str, args: list[bytes]
) -> ReleaseRequest | RenewRequest | None:
    """Return the one step that a script is, None if it has to look first."""
    if script.act is Act.DELETE:
        return _expiry(name, text, 0)
    if script.act is Act.EXPIRE and not script.endless:
        return _expiry(name, text, integer(args[1]) * script.unit_ms)
    return None


def _expiry(name: str, text: str, ttl_ms: int) -> Change:
    """Let the hold with a value last so long from now on, or end now if that is nothing."""
    if ttl_ms <= 0:
        return ReleaseRequest(name=name, value=text)
    return RenewRequest(name=name, value=text, ttl_ms=ttl_ms, exact=True)


async def _changed(client: Client, script: Script, request: Change) -> int:
    changing: Awaitable[object]
    if isinstance(request, ReleaseRequest):
        changing = client.gateway.submit(request.command(), Released, client.timeout_s)
    else:
        changing = client.gateway.submit(request.command(HoldKind.LOCK), Renewed, client.timeout_s)
    return script.other if await _is_over(changing) else script.done


async def _held_with(client: Client, name: str, text: str) -> HoldView | None:
    """Return the caller's own hold of a name with a value: whoever knows that may know the rest."""
    rights_needed.check_name(client.gateway.rights, Right.ACQUIRE, name)
    for hold in await _holders_of(client, name):
        if hold.value == text and hold.principal in ("", client.principal):
            return hold
    return None
