"""What etcd's clients say over gRPC, in protobuf written by hand: only the fields that are used.

The numbers of the fields are those of etcd's rpc.proto and v3lock.proto. All calls share one connection, as
those of etcd's own client do.
"""

from collections.abc import Sequence
from typing import Final

from lab.peers.closed_loop import Worker
from lab.peers.connection import Address
from lab.peers.grpc import Grpc, head_of_call

_VARINT, _BYTES = 0, 2
_SEVEN_BITS: Final = 0x7F


def varint(value: int) -> bytes:
    """Return a number as protobuf writes it."""
    data = bytearray()
    while value > _SEVEN_BITS:
        data.append(value & _SEVEN_BITS | 0x80)
        value >>= 7
    return bytes([*data, value])


def field(number: int, value: int | bytes) -> bytes:
    """Return a field of a message."""
    if isinstance(value, int):
        return varint(number << 3 | _VARINT) + varint(value)
    return varint(number << 3 | _BYTES) + varint(len(value)) + value


def after_header(message: bytes) -> bytes:
    """Return an answer of etcd without its header, which is always its first field and short."""
    assert message[:1] == b"\x0a", message
    assert message[1] <= _SEVEN_BITS, message
    return message[2 + message[1] :]


class OwnLocks(Grpc):
    """Keys with one lease."""

    def __init__(self, address: Address, lease: int) -> None:
        super().__init__()
        self._transaction = head_of_call(address, "/etcdserverpb.KV/Txn")
        self._delete = head_of_call(address, "/etcdserverpb.KV/DeleteRange")
        self._lease = lease

    def acquire(self, worker: Worker) -> None:
        """Make the key, if there is none."""
        key = worker.name.encode()
        compare = field(3, key) + field(4, 0)  # version 0; target and result are what they are if not said
        put = field(1, key) + field(3, self._lease)
        self.ask(worker, self._transaction, field(1, compare) + field(2, field(2, put)), self._made)

    @staticmethod
    def _made(worker: Worker, message: bytes) -> None:
        if after_header(message)[:2] == b"\x10\x01":  # succeeded
            worker.acquired(b"")
        else:
            worker.failed(f"not acquired: {message!r}")

    def release(self, worker: Worker, held: bytes) -> None:
        """Delete the key."""
        del held
        self.ask(worker, self._delete, field(1, worker.name.encode()), self._deleted)

    @staticmethod
    def _deleted(worker: Worker, message: bytes) -> None:
        if after_header(message)[:2] == b"\x10\x01":  # deleted: 1
            worker.released()
        else:
            worker.failed(f"not released: {message!r}")


class Queue(Grpc):
    """etcd's lock service: acquire waits. Each worker has a lease of its own, or it would be let in twice."""

    def __init__(self, address: Address, leases: Sequence[int]) -> None:
        super().__init__()
        self._lock = head_of_call(address, "/v3lockpb.Lock/Lock")
        self._unlock = head_of_call(address, "/v3lockpb.Lock/Unlock")
        self._leases = leases

    def acquire(self, worker: Worker) -> None:
        """Wait for the lock."""
        message = field(1, worker.name.encode()) + field(2, self._leases[worker.number])
        self.ask(worker, self._lock, message, self._locked)

    @staticmethod
    def _locked(worker: Worker, message: bytes) -> None:
        key = after_header(message)
        assert key[:1] == b"\x12", message
        worker.acquired(key[2:])

    def release(self, worker: Worker, held: bytes) -> None:
        """Unlock."""
        self.ask(worker, self._unlock, field(1, held), lambda worker, _: worker.released())
