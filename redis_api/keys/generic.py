"""Commands about keys of any type, on an overlay."""

from collections.abc import Sequence
from typing import Final

from redis_api.keys.overlay import Act, Overlay
from redis_api.protocol.arguments import TimeUnit, condition, unix_ms
from redis_api.protocol.errors import SYNTAX, CommandRefused
from redis_api.protocol.resp import Reply, Status

_NO_KEY: Final = -2
_NO_END: Final = -1


def exists(overlay: Overlay, args: Sequence[bytes]) -> Reply:
    """EXISTS key [key ...]."""
    return sum([overlay.look(key).exists for key in args])


def type_(overlay: Overlay, args: Sequence[bytes]) -> Reply:
    """TYPE key."""
    slot = overlay.look(args[0])
    return Status("list" if isinstance(slot.value, tuple) else "string" if slot.exists else "none")


def delete(overlay: Overlay, args: Sequence[bytes]) -> Reply:
    """DEL key [key ...]."""
    slots = [overlay.may_change(key) for key in args]
    for slot in slots:
        overlay.check_remove(slot)
    return sum([overlay.remove(slot) for slot in slots])


def delex(overlay: Overlay, args: Sequence[bytes]) -> Reply:
    """DELEX key [IFEQ value | IFNE value]."""
    key, *rest = args
    slot = overlay.may_change(key)
    if rest:
        words, value = rest[0].upper(), rest[-1]
        if words not in (b"IFEQ", b"IFNE") or len(rest) != 2:  # noqa: PLR2004 - a condition and its value
            raise CommandRefused(SYNTAX)
        found = overlay.read_text(key)
        if found is None or (found == value) != (words == b"IFEQ"):
            return 0
        return int(overlay.remove(slot, value))
    overlay.look(key)
    return int(overlay.remove(slot))


def expiring(unit: TimeUnit, name: str) -> Act:
    """Return what a command does that sets a time to live: key time [NX | XX | GT | LT]."""

    def expire(overlay: Overlay, args: Sequence[bytes]) -> Reply:
        key, text, *rest = args
        only = condition(rest)
        ttl_ms = unit.ttl_ms(text, name)
        slot = overlay.may_change(key)
        if not overlay.look(key).exists:
            return 0
        if rest and not only.allows(ttl_ms, overlay.left_ms(slot)):
            return 0
        overlay.expire(slot, ttl_ms)
        return 1

    return expire


def remaining(unit_ms: int, *, is_moment: bool = False) -> Act:
    """Return what a command does that tells the time to live."""

    def ttl(overlay: Overlay, args: Sequence[bytes]) -> Reply:
        slot = overlay.look(args[0])
        if not slot.exists:
            return _NO_KEY
        left_ms = overlay.left_ms(slot)
        if left_ms is None:
            return _NO_END
        shown_ms = left_ms + (unix_ms() if is_moment else 0)
        return (shown_ms + unit_ms // 2) // unit_ms

    return ttl


def persist(overlay: Overlay, args: Sequence[bytes]) -> Reply:
    """PERSIST key."""
    slot = overlay.may_change(args[0])
    if not overlay.look(args[0]).exists or overlay.left_ms(slot) is None:
        return 0
    overlay.expire(slot, None)
    return 1


def token(overlay: Overlay, args: Sequence[bytes]) -> Reply:
    """HF.TOKEN key [value]: the fencing token of the holder; with a value only if it has that."""
    slot = overlay.look(args[0])
    if slot.taken is not None:
        raise CommandRefused("the token of a lock is known when the transaction that takes it is applied")
    if not slot.is_lock or (len(args) > 1 and overlay.text(slot) != args[1]):
        return None
    return slot.holds[0].token
