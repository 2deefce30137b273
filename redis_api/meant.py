"""What known scripts mean, as programs on an overlay: for keys that are cells, and within transactions."""

from collections.abc import Sequence
from typing import NamedTuple

from redis_api.arguments import integer
from redis_api.client import Client
from redis_api.errors import CommandRefused
from redis_api.overlay import Overlay, Slot
from redis_api.resp import Reply
from redis_api.scripts import Act, Script


class Meant(NamedTuple):
    """What EVAL asks for."""

    script: Script
    keys: list[bytes]
    args: list[bytes]


def loaded(client: Client, args: Sequence[bytes]) -> Meant:
    """Read EVAL script numkeys [key ...] [arg ...]. Raises UnknownScript, CommandRefused."""
    _, script = client.face.scripts.load(args[0])
    return _meant(script, args[1:])


def known(client: Client, args: Sequence[bytes]) -> Meant:
    """Read EVALSHA sha1 numkeys [key ...] [arg ...]. Raises CommandRefused."""
    script = client.face.scripts.get(args[0])
    if script is None:
        raise CommandRefused("No matching script. Please use EVAL.", "NOSCRIPT")
    return _meant(script, args[1:])


def _meant(script: Script, args: Sequence[bytes]) -> Meant:
    count = integer(args[0])
    if count < 0:
        raise CommandRefused("Number of keys can't be negative")
    if count > len(args) - 1:
        raise CommandRefused("Number of keys can't be greater than number of args")
    keys, given = list(args[1 : 1 + count]), list(args[1 + count :])
    if len(keys) < script.keys_count or len(given) < script.args_count:
        raise CommandRefused(f"this script needs {script.keys_count} keys and {script.args_count} arguments")
    return Meant(script, keys, given)


def eval_(overlay: Overlay, args: Sequence[bytes]) -> Reply:
    """EVAL in a transaction."""
    return run(overlay, *loaded(overlay.client, args))


def evalsha(overlay: Overlay, args: Sequence[bytes]) -> Reply:
    """EVALSHA in a transaction."""
    return run(overlay, *known(overlay.client, args))


def run(overlay: Overlay, script: Script, keys: Sequence[bytes], args: Sequence[bytes]) -> Reply:
    """Do what a script means. Raises ProblemError, CommandRefused."""
    slot, value = overlay.may_change(keys[0]), args[0]
    if overlay.text(overlay.look(keys[0])) != value:
        return script.other
    if script.act is Act.REMAINING:
        return max(overlay.left_ms(slot) or 0, 0)
    if script.act is Act.DELETE:
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
    if script.act is Act.EXTEND or script.endless:
        left_ms = overlay.left_ms(slot)
        if left_ms is None:
            return script.endless
        if script.act is Act.EXTEND and args[2] == b"0":
            ttl_ms += left_ms
    overlay.expire(slot, ttl_ms, args[0])
    return script.done
