"""What known scripts mean, as programs on an overlay: for keys that are cells, and within transactions."""

from collections.abc import Sequence

from redis_api.keys.overlay import Overlay, Slot
from redis_api.lua.scripts import Meaning, Script
from redis_api.protocol.arguments import integer
from redis_api.protocol.resp import Reply


def run(overlay: Overlay, script: Script, keys: Sequence[bytes], args: Sequence[bytes]) -> Reply:
    """Do what a script means. Raises ProblemError, CommandRefused."""
    slot, value = overlay.may_change(keys[0]), args[0]
    found = overlay.read_text(keys[0])
    if found is None and script.missing is not None:
        return script.missing
    if found != value:
        return script.other
    if script.act is Meaning.REMAINING:
        return max(overlay.left_ms(slot) or 0, 0)
    if script.act is Meaning.DELETE:
        if script.signals:
            signal = overlay.may_change(keys[1])
            overlay.check_remove(slot, value)
            overlay.put(signal, [b"1"], integer(args[1]))
        overlay.remove(slot, value)
        return script.done
    return _expire(overlay, script, slot, args)


def _expire(overlay: Overlay, script: Script, slot: Slot, args: Sequence[bytes]) -> Reply:
    """Let a key that has the value last so long."""
    ttl_ms = integer(args[1]) * script.unit_ms
    if script.act is Meaning.EXTEND or script.endless:
        left_ms = overlay.left_ms(slot)
        if left_ms is None:
            return script.endless
        if script.act is Meaning.EXTEND and args[2] == b"0":
            ttl_ms += left_ms
    overlay.expire(slot, ttl_ms, args[0])
    return script.done
