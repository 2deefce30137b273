"""What a node sends to whoever leads."""

import msgspec

from cluster.commands.forwarded import Forwarded, TakenCommands, frame
from lockstate.versions import RULES_WHOLE


def test_who_asks_stands_last_on_the_wire() -> None:
    """Releases without principals are sent what they read and no more, and what they send is read."""
    taken = TakenCommands([1], [b"one"], ["ann"])
    told = msgspec.msgpack.encode(frame(3, "n2.run", taken, RULES_WHOLE))
    assert msgspec.msgpack.decode(told) == [3, "n2.run", [1], [b"one"], ["ann"]]
    assert msgspec.msgpack.decode(told, type=Forwarded) == Forwarded(3, "n2.run", [1], [b"one"], ["ann"])
    old = (3, "n2.run", [1], [b"one"])
    assert frame(3, "n2.run", taken, RULES_WHOLE - 1) == old, "release 0.1.0 cuts who sends it more"
    assert frame(3, "n2.run", TakenCommands([1], [b"one"], []), RULES_WHOLE) == old
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(old), type=Forwarded) == Forwarded(*old)
