"""Commands about strings, on an overlay. A key that is a lock reads as the string that is its value."""

from collections.abc import Sequence

from redis_api.keys.overlay import KEEP, Act, Overlay, Slot
from redis_api.protocol.arguments import TIMES, SetOptions, TimeUnit, integer, is_int64, set_options, within
from redis_api.protocol.errors import SYNTAX, CommandRefused, wrong_arity
from redis_api.protocol.resp import OK, Reply


def get(overlay: Overlay, args: Sequence[bytes]) -> Reply:
    """GET key."""
    return overlay.read_text(args[0])


def mget(overlay: Overlay, args: Sequence[bytes]) -> Reply:
    """MGET key [key ...]: all of one moment; nil for a list."""
    slots = [overlay.look(key) for key in args]
    return [None if isinstance(slot.value, tuple) else overlay.text(slot) for slot in slots]


def strlen(overlay: Overlay, args: Sequence[bytes]) -> Reply:
    """STRLEN key."""
    return len(overlay.read_text(args[0]) or b"")


def set_(overlay: Overlay, args: Sequence[bytes]) -> Reply:
    """SET key value [NX | XX | IFEQ value | IFNE value] [GET] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]."""
    key, value, *rest = args
    options = set_options(rest)
    slot = overlay.may_change(key)
    found = overlay.read_text(key) if options.gets or options.compares else None
    if options.only_new or options.only_old:
        overlay.look(key)
    is_done = _may_set(overlay, slot, found, options)
    if is_done:
        if options.only_new:
            overlay.take(slot, value, options.ttl_ms)
        else:
            ttl_ms = KEEP if options.keeps_time else options.ttl_ms
            _write(overlay, slot, value, ttl_ms, options.if_equal)
    if options.gets:
        return found
    return OK if is_done else None


def _may_set(overlay: Overlay, slot: Slot, found: bytes | None, options: SetOptions) -> bool:
    """Whether the condition of a SET is true."""
    if options.only_new:
        return overlay.may_take(slot)
    if options.only_old:
        return slot.exists
    if options.if_equal is not None:
        return found == options.if_equal
    return options.if_other is None or found != options.if_other


def _write(overlay: Overlay, slot: Slot, value: bytes, ttl_ms: int | None, said: bytes | None = None) -> None:
    """Write a string. A time that is over ends the key."""
    if ttl_ms is not None and ttl_ms != KEEP and ttl_ms <= 0:
        overlay.remove(slot, said)
    elif ttl_ms not in (None, KEEP) and overlay.is_renewal(slot, value):
        overlay.expire(slot, ttl_ms, value)
    else:
        overlay.put(slot, value, ttl_ms, said)


def setnx(overlay: Overlay, args: Sequence[bytes]) -> Reply:
    """SETNX key value: takes a lock without a deadline."""
    slot = overlay.may_change(args[0])
    if not overlay.may_take(overlay.look(args[0])):
        return 0
    overlay.take(slot, args[1], None)
    return 1


def setting(unit: TimeUnit, name: str) -> Act:
    """Return what SETEX and PSETEX do: key time value."""

    def setex(overlay: Overlay, args: Sequence[bytes]) -> Reply:
        key, text, value = args
        ttl_ms = unit.positive_ttl_ms(text, name)
        _write(overlay, overlay.may_change(key), value, ttl_ms)
        return OK

    return setex


def getset(overlay: Overlay, args: Sequence[bytes]) -> Reply:
    """GETSET key value."""
    slot = overlay.may_change(args[0])
    found = overlay.read_text(args[0])
    _write(overlay, slot, args[1], None)
    return found


def getdel(overlay: Overlay, args: Sequence[bytes]) -> Reply:
    """GETDEL key."""
    slot = overlay.may_change(args[0])
    found = overlay.read_text(args[0])
    overlay.remove(slot)
    return found


def getex(overlay: Overlay, args: Sequence[bytes]) -> Reply:
    """GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]."""
    key, *rest = args
    words = [word.upper() for word in rest[:1]]
    if not rest:
        return overlay.read_text(key)
    slot = overlay.may_change(key)
    if words == [b"PERSIST"] and len(rest) == 1:
        found = overlay.read_text(key)
        if found is not None:
            overlay.expire(slot, None)
        return found
    if words[0] not in TIMES or len(rest) != 2:  # noqa: PLR2004 - an option and its time
        raise CommandRefused(SYNTAX)
    found = overlay.read_text(key)
    if found is not None:
        overlay.expire(slot, TIMES[words[0]].positive_ttl_ms(rest[1], "getex"))
    return found


def mset(overlay: Overlay, args: Sequence[bytes]) -> Reply:
    """MSET key value [key value ...]."""
    slots = [(overlay.may_change(key), value) for key, value in _pairs("mset", args).items()]
    for slot, value in slots:
        overlay.check_put(slot, value)
    for slot, value in slots:
        overlay.put(slot, value, None)
    return OK


def msetnx(overlay: Overlay, args: Sequence[bytes]) -> Reply:
    """MSETNX key value [key value ...]: takes locks without a deadline, all or none."""
    pairs = _pairs("msetnx", args)
    slots = [(overlay.may_change(key), value) for key, value in pairs.items()]
    if not all(overlay.may_take(overlay.look(key)) for key in pairs):
        return 0
    for slot, value in slots:
        overlay.take(slot, value, None)
    return 1


def _pairs(command: str, args: Sequence[bytes]) -> dict[bytes, bytes]:
    """Read keys and values. Raises CommandRefused."""
    if len(args) % 2:
        raise wrong_arity(command)
    return dict(zip(args[::2], args[1::2], strict=True))


def getrange(overlay: Overlay, args: Sequence[bytes]) -> Reply:
    """GETRANGE key start end."""
    first, last = integer(args[1]), integer(args[2])
    text = overlay.read_text(args[0]) or b""
    return text[within(first, last, len(text))]


def append(overlay: Overlay, args: Sequence[bytes]) -> Reply:
    """APPEND key value."""
    slot = overlay.may_change(args[0])
    value = (overlay.read_text(args[0]) or b"") + args[1]
    overlay.put(slot, value)
    return len(value)


def adding(sign: int, *, is_given: bool) -> Act:
    """Return what INCR, DECR, INCRBY and DECRBY do."""

    def add(overlay: Overlay, args: Sequence[bytes]) -> Reply:
        slot = overlay.may_change(args[0])
        amount = sign * integer(args[1]) if is_given else sign
        if not is_int64(amount):
            raise CommandRefused("decrement would overflow")
        found = overlay.read_text(args[0])
        number = (0 if found is None else integer(found)) + amount
        if not is_int64(number):
            raise CommandRefused("increment or decrement would overflow")
        overlay.put(slot, b"%d" % number)
        return number

    return add
