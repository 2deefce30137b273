"""Commands about lists, on an overlay."""

from collections.abc import Sequence

from redis_api.keys.overlay import Act, Overlay
from redis_api.protocol.arguments import integer, within
from redis_api.protocol.errors import NEGATIVE, CommandRefused, wrong_arity
from redis_api.protocol.resp import NO_LIST, OK, Reply


def pushing(*, at_head: bool) -> Act:
    """Return what LPUSH and RPUSH do: key element [element ...]."""

    def push(overlay: Overlay, args: Sequence[bytes]) -> Reply:
        key, *added = args
        slot = overlay.may_change(key)
        items = overlay.read_items(key)
        items = (*reversed(added), *items) if at_head else (*items, *added)
        overlay.put(slot, items)
        return len(items)

    return push


def popping(*, at_head: bool) -> Act:
    """Return what LPOP and RPOP do: key [count]."""

    def pop(overlay: Overlay, args: Sequence[bytes]) -> Reply:
        key, *rest = args
        if len(rest) > 1:
            raise wrong_arity("lpop" if at_head else "rpop")
        count = _count(rest[0]) if rest else 1
        slot = overlay.may_change(key)
        items = overlay.read_items(key)
        if not items:
            return NO_LIST if rest else None
        found = list(items[:count] if at_head else items[::-1][:count])
        left = items[len(found) :] if at_head else items[: len(items) - len(found)]
        if found:
            overlay.put(slot, left)
        return found if rest else found[0]

    return pop


def _count(text: bytes) -> int:
    """Read how many elements are wanted. Raises CommandRefused."""
    try:
        count = integer(text)
    except CommandRefused:
        count = -1
    if count < 0:
        raise CommandRefused(NEGATIVE)
    return count


def length(overlay: Overlay, args: Sequence[bytes]) -> Reply:
    """LLEN key."""
    return len(overlay.read_items(args[0]))


def span(overlay: Overlay, args: Sequence[bytes]) -> Reply:
    """LRANGE key start stop."""
    return list(_span(overlay, args))


def index(overlay: Overlay, args: Sequence[bytes]) -> Reply:
    """LINDEX key index."""
    items = overlay.read_items(args[0])
    if not items:
        return None
    place = integer(args[1])
    return items[place] if -len(items) <= place < len(items) else None


def trim(overlay: Overlay, args: Sequence[bytes]) -> Reply:
    """LTRIM key start stop."""
    slot = overlay.may_change(args[0])
    left = _span(overlay, args)
    if slot.exists:
        overlay.put(slot, left)
    return OK


def _span(overlay: Overlay, args: Sequence[bytes]) -> tuple[bytes, ...]:
    """Return the elements of the list `args[0]` from one place to another. Raises CommandRefused."""
    first, last = integer(args[1]), integer(args[2])
    items = overlay.read_items(args[0])
    return items[within(first, last, len(items))]


def popping_first(*, at_head: bool) -> Act:
    """Return what BLPOP and BRPOP do where nobody can wait: key [key ...] timeout."""

    def pop(overlay: Overlay, args: Sequence[bytes]) -> Reply:
        seconds(args[-1])
        for key in args[:-1]:
            slot = overlay.may_change(key)
            items = overlay.read_items(key)
            if items:
                overlay.put(slot, items[1:] if at_head else items[:-1])
                return [key, items[0] if at_head else items[-1]]
        return NO_LIST

    return pop


def seconds(text: bytes) -> float:
    """Read the timeout of a command that waits, 0 for ever. Raises CommandRefused."""
    try:
        found = float(text)
    except ValueError:
        raise CommandRefused("timeout is not a float or out of range") from None
    if not found < float("inf") or found != found or b"_" in text:  # noqa: PLR0124 - not a number
        raise CommandRefused("timeout is not a float or out of range")
    if found < 0:
        raise CommandRefused("timeout is negative")
    return found
