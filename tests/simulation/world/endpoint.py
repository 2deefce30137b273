"""One end of a simulated connection: asyncio's transport above, pieces on a path below."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.faults.resealing import Resealer
from tests.simulation.world.event_loop import NodeLoop

if TYPE_CHECKING:
    from tests.simulation.world.network import Network

WINDOW_BYTES: Final = 1 << 20
"""What may be under way or unread at the other end."""
KERNEL_BYTES: Final = 1 << 20
"""What the kernel takes besides; the rest waits in the transport."""
READ_BYTES: Final = 256 * 1024
"""What one read returns at most."""


class Endpoint(asyncio.Transport):
    """One end. `other` is the far end, whose process may be gone."""

    def __init__(self, network: "Network", loop: NodeLoop, target: str) -> None:
        super().__init__()
        self.loop = loop
        self.source = loop.name
        self.target = target
        self.number = 0
        self.other: Endpoint
        self.protocol: Any = None
        self.is_gone = False
        """No process has it open: what comes is refused."""
        self.is_between_nodes = True
        self._network = network
        self._path = network.path(self.source, target)
        self._resealing: Resealer | None = None
        self._queue: deque[bytes | None] = deque()
        self._queued_bytes = 0
        self._under_way_bytes = 0
        self._last_arrival_us = 0
        self._free_at_us = 0
        self._inbox: deque[bytes | None] = deque()
        self._is_read_due = False
        self._is_paused = False
        self._is_closing = False
        self._is_over = False

    # -- asyncio.Transport ----------------------------------------------------------------------------------

    def begin(self, factory: Callable[[], Any]) -> None:
        """Hand the connection to its process, which may learn at once that it is gone."""
        self.protocol = factory()
        self.protocol.connection_made(self)
        if self.is_gone:
            self._is_over = False
            self.loop.call_soon(self._lost, ConnectionResetError("connection reset by peer"))
        else:
            self._read_later()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send, sooner or later."""
        if self._is_closing or self.is_gone or not data:
            return
        network = self._network
        if not (network.was_ever_hostile and self.is_between_nodes):
            self.enqueue(bytes(data))
            return
        resealer = self._resealer()
        plain = bytes(data) if resealer is None else resealer.open(bytes(data))
        for frame in [plain] if network.hostile is None else network.hostile.pass_on(self, plain):
            self.say(frame)

    def _resealer(self) -> Resealer | None:
        """Return what seals in place of our process, None while nothing is sealed here."""
        sealer = getattr(self.protocol, "sealer", None)
        if self._resealing is None and sealer is not None:
            self._resealing = Resealer(sealer.key)
        return self._resealing

    def say(self, frames: bytes) -> None:
        """Send whole frames as our process would, sealed if its link is; in a hostile world only."""
        resealer = self._resealer()
        self.enqueue(frames if resealer is None else resealer.seal(frames))

    def enqueue(self, data: bytes) -> None:
        """Put bytes at the end of what is to be sent, whoever they are from."""
        if self._path.tampering is not None:
            data = self._path.tampering.pass_on(data)
            if not data:
                return
        self._queue.append(data)
        self._queued_bytes += len(data)
        self.pump()

    def get_write_buffer_size(self) -> int:
        """Return what the kernel has not taken."""
        return max(0, self._queued_bytes - KERNEL_BYTES)

    def close(self) -> None:
        """Close; what was written still leaves."""
        if not self._is_closing:
            self._is_closing = True
            self._queue.append(None)
            self.pump()
            self.loop.call_soon(self._lost, None)

    def abort(self) -> None:
        """Close at once; nothing more leaves."""
        if not self._is_over:
            self._is_closing = True
            self.vanish(is_silent=False)
            self.loop.call_soon(self._lost, None)

    def is_closing(self) -> bool:
        """Whether it is closed or about to be."""
        return self._is_closing

    @property
    def is_authenticated(self) -> bool:
        """Whether both processes have let each other in, as far as this end knows."""
        return bool(getattr(self.protocol, "is_open", False))

    def is_reading(self) -> bool:
        """Whether its process reads what comes."""
        return not (self._is_paused or self._is_closing)

    def pause_reading(self) -> None:
        """Read nothing for now."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """Read on."""
        self._is_paused = False
        self._read_later()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the other end's address."""
        return (self.target, 0) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: nobody asks to be told."""

    def _lost(self, error: Exception | None) -> None:
        if not self._is_over:
            self._is_over = True
            if self.protocol is not None:
                self.protocol.connection_lost(error)
            if not self._queue:
                self._forget()

    # -- sending --------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Put on the path what may leave now."""
        path, queue, network = self._path, self._queue, self._network
        while queue and not path.is_cut and self._under_way_bytes < WINDOW_BYTES:
            data = queue.popleft()
            now_us = self.loop.now_us
            arrival_us = now_us + path.delay(network.random)
            if data is not None:
                if network.split_chance and len(data) > 1 and network.random.random() < network.split_chance:
                    at = network.random.randrange(1, len(data))
                    queue.appendleft(data[at:])
                    data = data[:at]
                self._queued_bytes -= len(data)
                self._under_way_bytes += len(data)
                if path.bytes_per_s:
                    self._free_at_us = (
                        max(now_us, self._free_at_us) + len(data) * 1_000_000 // path.bytes_per_s
                    )
                    arrival_us += self._free_at_us - now_us
            self._last_arrival_us = max(arrival_us, self._last_arrival_us)
            network.scheduler.at(self._last_arrival_us, self.other.arrive, data)
        if not queue and self._is_over:
            self._forget()

    # -- receiving ------------------------------------------------------------------------------------------

    def arrive(self, data: bytes | None) -> None:
        """Take a piece from the path; None is the end of the stream."""
        if self.is_gone:
            if self.source not in self._network.down:
                self._refuse()
            return
        if self._is_closing:
            return
        self._inbox.append(data)
        if self.protocol is not None:
            self._read_later()

    def _refuse(self) -> None:
        """Answer that there is no such connection, if the answer finds its way."""
        network = self._network
        if not network.path(self.source, self.target).is_cut and not self.other.is_gone:
            network.scheduler.after(network.delay(self.source, self.target), self.other.reset)

    def reset(self) -> None:
        """Learn that the connection is gone."""
        if not self.is_gone:
            self._become_gone()
            self._is_closing = True
            self.loop.call_soon(self._lost, ConnectionResetError("connection reset by peer"))

    def _read_later(self) -> None:
        if not self._is_read_due and self._inbox and not self._is_paused:
            self._is_read_due = True
            self.loop.call_now(self._read)

    def _read(self) -> None:
        self._is_read_due = False
        if self._is_paused or self._is_closing:
            return
        inbox, parts, size_bytes = self._inbox, [], 0
        while inbox and size_bytes < READ_BYTES:
            data = inbox[0]
            if data is None:
                break
            inbox.popleft()
            parts.append(data)
            size_bytes += len(data)
        if parts:
            self.other.were_read(size_bytes)
            self.protocol.data_received(parts[0] if len(parts) == 1 else b"".join(parts))
        elif inbox:
            inbox.clear()
            if not self.protocol.eof_received():
                self.close()
        if inbox and not self._is_closing:
            self._read_later()

    def were_read(self, size_bytes: int) -> None:
        """Record that the other process has read so much: there is room again."""
        self._under_way_bytes -= size_bytes
        if self._queue:
            self.pump()

    # -- the end --------------------------------------------------------------------------------------------

    def vanish(self, *, is_silent: bool) -> None:
        """Let go of the connection; the other end is told at once, or when it sends something."""
        if not self.is_gone:
            self._become_gone()
            if not is_silent:
                self._refuse()

    def process_ended(self) -> None:
        """Close as the kernel does for a process that ended: unread bytes make it a reset."""
        if self._inbox or self.protocol is None:
            self.vanish(is_silent=False)
        else:
            self.is_gone = self._is_closing = self._is_over = True
            self._queue.append(None)
            self.pump()

    def break_here(self) -> None:
        """Find the connection broken, without the other end knowing."""
        if not self.is_gone and not self._is_over:
            self._become_gone()
            self._is_closing = True
            self.loop.call_soon(self._lost, ConnectionResetError("connection reset"))

    def _become_gone(self) -> None:
        self.is_gone = True
        self._queue.clear()
        self._inbox.clear()
        self._queued_bytes = 0
        self._forget()

    def _forget(self) -> None:
        self._network.forget(self)
