"""Defects of the Redis face in what becomes of answers that are lost."""

from typing import Final

import msgspec

from lockstate.words.ids import HoldId
from redis_api.shared import left_grants
from redis_api.shared.left_grants import Attempt, GiveBack, Key, LeftGrants
from tests.simulation.mutations.mutation import Mutation, Surroundings, replaced, together

_REPEATED: Final = Surroundings(
    minutes=2,
    rates={"isolate": 4.0, "pause": 4.0, "kill": 2.0},
    fault_s=(0.3, 3.0),
    settings={"redis_count": 5, "clients_count": 1},
)
"""Clients of Redis whose connections break all the time, at nodes that often wait for an outcome."""


def _also_short(grants: LeftGrants, key: Key, value: bytes, hold_id: HoldId, give_back: GiveBack) -> Attempt:
    """Follow attempts with values of any length."""
    return _begin(grants, key, value.ljust(left_grants.VALUE_BYTES_MIN), hold_id, give_back)


_begin = LeftGrants.begin


def _has_any(grants: LeftGrants, key: Key) -> bool:
    return key in grants._attempts


def _take_any(grants: LeftGrants, key: Key) -> Attempt | None:
    """Take an attempt over, whether its connection has ended or not."""
    attempt = grants._attempts.pop(key, None)
    if attempt is not None:
        attempt.is_taken = True
    return attempt


def _keep(_grants: LeftGrants, _attempt: Attempt) -> None:
    """Forget no attempt: one that was answered may be taken over when its connection is over."""


def _leave_all(attempt: Attempt) -> None:
    """Leave an attempt that was answered, too, as if nobody had heard of it."""
    attempt.is_left = True


def _has_none(_grants: LeftGrants, _key: Key) -> bool:
    return False


def _take_none(_grants: LeftGrants, _key: Key) -> Attempt | None:
    return None


def _stay(_attempt: Attempt) -> None:
    """Give nothing back."""


REDIS_REPEATS: Final = (
    Mutation(
        name="redis-short-value-adopts",
        sentence="A client of Redis gets what another one left that has the same short value.",
        found_by=("redis-short",),
        apply=replaced(LeftGrants, "begin", _also_short),
        surroundings=_REPEATED,
    ),
    Mutation(
        name="redis-adopts-from-the-living",
        sentence="A client of Redis gets the hold of a connection that waits for its answer.",
        found_by=("redis-alive", "redis-told-twice", "redis-two-holders"),
        apply=together(replaced(LeftGrants, "has_left", _has_any), replaced(LeftGrants, "take", _take_any)),
        surroundings=_REPEATED,
    ),
    Mutation(
        name="redis-equal-value-adopts",
        sentence="A client of Redis gets a hold that has its value, although the first one was answered.",
        found_by=("redis-alive", "redis-told-twice", "redis-two-holders"),
        apply=together(
            replaced(LeftGrants, "forget", _keep),
            replaced(Attempt, "answered", _leave_all),
        ),
        surroundings=_REPEATED,
    ),
    Mutation(
        name="redis-ghost-is-nobodys",
        sentence="A client of Redis that asks again is told nil of what its first attempt got.",
        found_by=("redis-ghost",),
        apply=together(replaced(LeftGrants, "has_left", _has_none), replaced(LeftGrants, "take", _take_none)),
        surroundings=_REPEATED,
    ),
    Mutation(
        name="redis-left-is-kept",
        sentence="What a client of Redis left is never given back.",
        found_by=("redis-kept",),
        apply=replaced(Attempt, "give_back", _stay),
        surroundings=msgspec.structs.replace(_REPEATED, minutes=8.0),  # few leave what nobody asks for again
    ),
)
