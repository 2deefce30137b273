"""A network worse than any: whole Raft messages are lost, repeated, held back and sent on later.

TCP does nothing of the kind, and a sealed link would end with the first of these. So it is the peer that does
it, with the keys of its link (resealing.py): it attacks the guards, which must keep the cluster safe whatever
comes; they need not keep it alive.
"""

from random import Random
from typing import TYPE_CHECKING, Final

import msgspec

from cluster.peers.link import FrameKind
from tests.simulation.faults.resealing import frames_in

if TYPE_CHECKING:
    from tests.simulation.world.endpoint import Endpoint
    from tests.simulation.world.network import Network

_LENGTH_BYTES: Final = 4
_RAFT_FRAMES: Final = (bytes((0x92, FrameKind.RAFT)), bytes((0x93, FrameKind.RAFT)))
"""How frames with a Raft message begin, behind their length: an array of two or three, and the kind."""


class Chances(msgspec.Struct, frozen=True):
    """How often each thing happens to a message, 0 to 1, and how late a late one is."""

    lost: float
    repeated: float
    late: float
    late_us_max: int


class Hostile:
    """Stands between processes and the network, and does harm as `chances` say."""

    def __init__(self, network: "Network", chances: Chances, random: Random) -> None:
        self._network = network
        self._chances = chances
        self._random = random
        self.counts: dict[str, int] = {"message-lost": 0, "message-repeated": 0, "message-late": 0}

    def pass_on(self, endpoint: "Endpoint", data: bytes) -> list[bytes]:
        """Return what shall leave now. `data` holds whole frames: nodes write no parts of them."""
        out = []
        for frame in frames_in(data):
            if frame.startswith(_RAFT_FRAMES, _LENGTH_BYTES):
                out += self._fate(endpoint, frame)
            else:
                out.append(frame)
        return out

    def _fate(self, endpoint: "Endpoint", frame: bytes) -> list[bytes]:
        dice, chances = self._random.random(), self._chances
        if dice < chances.lost:
            self.counts["message-lost"] += 1
            return []
        dice -= chances.lost
        if dice < chances.repeated:
            self.counts["message-repeated"] += 1
            self._send_later(endpoint, frame)
            return [frame]
        dice -= chances.repeated
        if dice < chances.late:
            self.counts["message-late"] += 1
            self._send_later(endpoint, frame)
            return []
        return [frame]

    def _send_later(self, endpoint: "Endpoint", frame: bytes) -> None:
        delay_us = self._random.randrange(1, self._chances.late_us_max)
        self._network.scheduler.after(delay_us, self._send, endpoint.source, endpoint.target, frame)

    def _send(self, source: str, target: str, frame: bytes) -> None:
        """Send on whatever connection there is between the two by now."""
        for endpoint in self._network.between(source, target):
            if endpoint.is_authenticated and not endpoint.is_closing():
                endpoint.say(frame)
                return
