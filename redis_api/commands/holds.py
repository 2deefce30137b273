"""What lock clients do most, each by one command of the log: take a lock, and end or renew it by its value.

All else that commands do with keys is a transaction of what they read and change (`overlay.py`). That would
be right here as well, but a take would have to look at the state before, and compare. Two things make it safe
to leave that out. A cell is only made in a step that compares that nobody holds its name, so none appears
while a lock is held. And a take that was granted beside a cell finds it when it hears of the grant, because
the state of this node is then that of the grant or a newer one: it gives the hold back and answers nil.
Meanwhile nobody has seen the hold, since a key that is a cell is read as one.
"""

import logging
from collections.abc import Awaitable, Sequence
from functools import lru_cache, partial
from typing import Final

from cluster.errors import ClusterError, OutcomeUnknown
from holdfast.token_lines import Right
from lockapi import rights_needed
from lockapi.gateway import Gateway
from lockapi.problems import ProblemError
from lockapi.requests.fields import UNSET, check_name
from lockapi.requests.locks import (
    ByValue,
    ReleaseHoldRequest,
    RenewRequest,
    addition,
    ending,
    lasting,
    taking,
)
from lockstate.machine import LockMachine
from lockstate.words.ids import HoldId
from lockstate.words.kinds import HoldKind
from lockstate.words.results import Granted, Released, Renewed
from lockstate.words.views import HoldView
from redis_api.keys import cell_values, known_scripts
from redis_api.keys.overlay import Overlay, lasting_ms
from redis_api.keys.transact import transact
from redis_api.lua.scripts import Meaning, Script
from redis_api.protocol import spelled
from redis_api.protocol.arguments import integer
from redis_api.protocol.errors import IN_THE_WAY, CommandRefused
from redis_api.protocol.resp import OK, Reply
from redis_api.shared.client import Client, Started
from redis_api.shared.left_grants import VALUE_BYTES_MIN, Attempt, GiveBack, Key

_OVER: Final = frozenset({"lease-expired", "not-holder", "wrong-kind", "already-held"})
"""The refusals that mean that there is no such hold."""

_SAME_VALUE: Final = (
    "a client asks for a lock that is held with the same value: it sent the command again, or it takes each"
    " node of this cluster for a server of its own (Redlock), and gets no majority: give it one address"
)

_NAMES_KEPT_MAX: Final = 4096
"""Names that are kept, 6 MB at most: who takes a lock releases it, and comes again."""

logger = logging.getLogger("redis_api")


def name_of(client: Client, key: bytes) -> str:
    """Return the name of the lock that a key is. Raises ProblemError if it is too long."""
    return _name_of(client.database, key)


@lru_cache(_NAMES_KEPT_MAX)
def _name_of(database: int, key: bytes) -> str:
    name = spelled.name_of(database, key)
    check_name("key", name)
    return name


# -- to take -----------------------------------------------------------------------------------------------


async def take(client: Client, key: bytes, value: bytes, ttl_ms: int | None) -> bool:
    """Take a lock, or what an earlier attempt got without hearing of it; return whether it is held.

    Raises ProblemError, ClusterError.
    """
    name, text = name_of(client, key), spelled.value_text(value)
    if _is_cell(client, name) and await client.gateway.read(
        lambda machine: machine.cell(name.encode()) is not None, client.timeout_s
    ):
        return False
    known = Key(client.principal, name, text, ttl_ms is None)
    ttl_ms = None if ttl_ms is None else lasting_ms(ttl_ms)
    if await adopt_left(client, known, value, ttl_ms) is not None:
        return True
    if client.is_gone:
        return False  # nobody would hear of it
    command = taking(name, text, client.owner, ttl_ms)
    attempt = client.attempt = begin_attempt(client, known, value, command.hold_id)
    try:
        await client.gateway.submit(command, Granted, client.timeout_s)
    except BaseException as error:  # noqa: BLE001 - raised again
        _fail(client, attempt, value, error)
        return False
    return _is_taken(client, attempt)


def begin_take(client: Client, key: bytes, value: bytes, ttl_ms: int) -> Started | None:
    """Begin to take a lock; return None if it is to be looked at first. Raises as `take`."""
    gateway = client.gateway
    known = Key(gateway.principal.name, name_of(client, key), spelled.value_text(value), is_endless=False)
    if client.face.left.has_left(known) or _is_cell(client, known.name):
        return None
    command = taking(known.name, known.value, client.owner, lasting_ms(ttl_ms))
    begun = gateway.begin(command, client.timeout_s, client.lane)
    attempt = begin_attempt(client, known, value, command.hold_id)

    def finish() -> Reply:
        try:
            gateway.outcome(command, begun, Granted)
        except Exception as error:  # noqa: BLE001 - raised again
            _fail(client, attempt, value, error)
            return None
        return OK if _is_taken(client, attempt) else None

    return Started(begun, finish, attempt)


def _is_taken(client: Client, attempt: Attempt) -> bool:
    """Settle an attempt that was granted a hold; return whether the client has it now."""
    is_granted = not gave_way(client, attempt)
    attempt.settle(is_granted=is_granted)
    if is_granted:
        client.took(attempt.key.name, attempt.hold_id)
    return is_granted


def _fail(client: Client, attempt: Attempt, value: bytes, error: BaseException) -> None:
    """Settle an attempt that got nothing, and raise why, unless a lock is held: that is not an error."""
    attempt.settle(is_granted=False)
    if isinstance(error, OutcomeUnknown):
        attempt.give_back()
    if not isinstance(error, ProblemError):
        raise error
    key = attempt.key
    if key.is_endless and error.code == "invalid-request":
        advice = "give it a time: PX, or lock(..., timeout=30) in redis-py"
        raise ProblemError(error.code, f"{error.detail}; {advice}") from None
    if error.code not in IN_THE_WAY:
        raise error
    _tell_same_value(client, key.name, key.value, value)


def begin_attempt(
    client: Client, known: Key, value: bytes, hold_id: HoldId, give_back: GiveBack | None = None
) -> Attempt:
    """Return an attempt of which the client is still to hear. Without `give_back` the hold is released."""
    release = partial(_release, client.gateway, hold_id, client.timeout_s)
    return client.face.left.begin(known, value, hold_id, give_back or release)


def gave_way(client: Client, attempt: Attempt) -> bool:
    """Give back a hold that was granted beside a cell; return whether it was."""
    if not _is_cell(client, attempt.key.name):
        return False
    attempt.give_back()
    return True


async def adopt_left(client: Client, known: Key, value: bytes, ttl_ms: int | None) -> int | None:
    """Take over a hold of which nobody was told, with a lease from now on; return its token, None if none is.

    Raises ProblemError, ClusterError.
    """
    # One that was left after another may have a hold although that had none.
    while not client.is_gone and (left := client.face.left.take(known)) is not None:
        token = await _adopt(client, left, value, ttl_ms)
        if token is not None:
            return token
    return None


async def _adopt(client: Client, left: Attempt, value: bytes, ttl_ms: int | None) -> int | None:
    """Take over what was left of one attempt. Raises ProblemError, ClusterError."""
    known = left.key
    # From now on: if this connection ends as well, the next one waits for the same outcome.
    attempt = client.attempt = begin_attempt(client, known, value, left.hold_id)
    token: int | None = None
    try:
        if await left.is_granted():
            token = await _renew(client, left.hold_id, ttl_ms)
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
    attempt.settle(is_granted=token is not None)
    if token is None:
        client.face.left.forget(attempt)
    else:
        client.face.left.adopted_count += 1
        client.took(known.name, left.hold_id)
    return token


def _tell_same_value(client: Client, name: str, text: str, value: bytes) -> None:
    """Log once that a lock is refused to the very value that it has: a Redlock over nodes of one cluster."""
    face = client.face
    if face.has_told_same_value or len(value) < VALUE_BYTES_MIN:
        return
    if any(hold.value == text for hold in face.gateway.node.machine.holders(name)):
        face.has_told_same_value = True
        logger.warning("event=redis-same-value name=%r detail=%r", name, _SAME_VALUE)


# -- to renew ------------------------------------------------------------------------------------------------


async def _renew(client: Client, hold_id: HoldId, ttl_ms: int | None) -> int:
    """Let a hold last exactly so long from now on; return its token. Raises ProblemError, ClusterError."""
    request = RenewRequest(
        hold_id=hold_id, ttl_ms=UNSET if ttl_ms is None else ttl_ms, exact=ttl_ms is not None
    )
    renewed = await client.gateway.submit(request.command(HoldKind.LOCK), Renewed, client.timeout_s)
    return renewed.result.token


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


# -- scripts -------------------------------------------------------------------------------------------------


async def run(client: Client, script: Script, keys: Sequence[bytes], args: Sequence[bytes]) -> Reply:
    """Do what a script means. Raises ProblemError, ClusterError, CommandRefused.

    For a lock it is one command of the log, which finds the hold by its value; for all else, a program.
    """
    name, text = name_of(client, keys[0]), spelled.value_text(args[0])

    def program(overlay: Overlay) -> Reply:
        return known_scripts.run(overlay, script, keys, args)

    if script.takes_steps or _is_cell(client, name):
        return await transact(client, program)
    done = await _run_on_lock(client, script, name, text, args)
    if done == script.other and _is_cell(client, name):
        return await transact(client, program)
    return done


Change = tuple[ByValue, type[Released | Renewed]]
"""What is done with the hold that has a value, in one step, and what that gives."""


def begin_run(client: Client, script: Script, keys: Sequence[bytes], args: Sequence[bytes]) -> Started | None:
    """Begin what a script means; return None if that takes more than one step. Raises as `run`."""
    name, text = name_of(client, keys[0]), spelled.value_text(args[0])
    change = None if script.takes_steps or _is_cell(client, name) else _one_step(script, name, text, args)
    if change is None:
        return None
    gateway, (command, gives) = client.gateway, change
    begun = gateway.begin(command, client.timeout_s, client.lane)

    def finish() -> Reply:
        try:
            gateway.outcome(command, begun, gives)
        except ProblemError as problem:
            if problem.code not in _OVER:
                raise
            _check_no_cell(client, name, args[0])
            return script.other
        return script.done

    return Started(begun, finish)


def _check_no_cell(client: Client, name: str, value: bytes) -> None:
    """Refuse a script that found no hold if its key is a string with the value. Raises CommandRefused.

    It was none, as far as this node knew, when the script was begun; what is behind it has begun.
    """
    cell = client.face.gateway.node.machine.cell(name.encode())
    found = None if cell is None else cell_values.decode(cell.value)
    if isinstance(found, tuple) or found == value:
        raise CommandRefused("the key has become a string: run the script again", "TRYAGAIN") from None


def _is_cell(client: Client, name: str) -> bool:
    """Whether a name is a cell in what this node has applied, whatever its caller may still ask."""
    return name.encode() in client.face.gateway.node.machine.state.cells


async def _run_on_lock(client: Client, script: Script, name: str, text: str, args: Sequence[bytes]) -> int:
    """Do what a script means with the hold of a name that has a value. Raises ProblemError, ClusterError."""
    change = _one_step(script, name, text, args)
    if change is not None:
        return await _changed(client, script, change)
    held = await _held_with(client, name, text)
    if held is None:
        return script.other
    left_ms = held.expires_in_ms
    if script.act is Meaning.REMAINING:
        return max(left_ms or 0, 0)
    if left_ms is None:
        return script.endless
    ttl_ms = integer(args[1]) * script.unit_ms
    if script.act is Meaning.EXTEND and args[2] == b"0":
        command = addition(name, text, ttl_ms)
        is_over = await _is_over(client.gateway.submit(command, Renewed, client.timeout_s))
        return script.other if is_over else script.done
    return await _changed(client, script, _expiry(name, text, ttl_ms))


def _one_step(script: Script, name: str, text: str, args: Sequence[bytes]) -> Change | None:
    """Return the one step that a script is, None if it has to look first."""
    if script.act is Meaning.DELETE:
        return _expiry(name, text, 0)
    if script.act is Meaning.EXPIRE and not script.endless:
        return _expiry(name, text, integer(args[1]) * script.unit_ms)
    return None


def _expiry(name: str, text: str, ttl_ms: int) -> Change:
    """Let the hold with a value last so long from now on, or end now if that is nothing."""
    if ttl_ms <= 0:
        return ending(name, text), Released
    return lasting(name, text, lasting_ms(ttl_ms)), Renewed


async def _changed(client: Client, script: Script, change: Change) -> int:
    command, gives = change
    changing = client.gateway.submit(command, gives, client.timeout_s)
    return script.other if await _is_over(changing) else script.done


async def _held_with(client: Client, name: str, text: str) -> HoldView | None:
    """Return the caller's own hold of a name with a value: whoever knows that may know the rest."""
    rights_needed.check_name(client.gateway.rights, Right.ACQUIRE, name)

    def look(machine: LockMachine) -> tuple[HoldView, ...]:
        return machine.holders(name)

    for hold in await client.gateway.read(look, client.timeout_s):
        if hold.name == name and hold.value == text and hold.principal in ("", client.principal):
            return hold
    return None
