"""etcd: three nodes, over its JSON gateway and over gRPC.

Own locks are keys made by a transaction that finds none, and bound to a lease, and deleted afterwards: two
commits for a cycle. The lease is granted before and shared, as that of a client's session: with one for each
acquire a cycle would cost three commits. A contended lock is etcd's own lock service.
"""

import base64
import http.client
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from lab.peers import etcd_grpc
from lab.peers.closed_loop import Lean, Worker
from lab.peers.connection import Address
from lab.peers.http1 import Http1, post
from lab.peers.system import Programs, Running, Way, find_program, free_addresses, programs

NODES: Final = 3
LEASE_S: Final = 3600
"""Longer than any step: nothing has to keep leases alive meanwhile."""
ASK_S: Final = 5.0


def _text(data: bytes) -> str:
    """Return bytes as the gateway wants them."""
    return base64.b64encode(data).decode()


class OwnLocks(Http1):
    """Keys with one lease, over the gateway."""

    def __init__(self, address: Address, lease: int) -> None:
        super().__init__()
        self._transaction = post(address, "/v3/kv/txn")
        self._delete = post(address, "/v3/kv/deleterange")
        self._lease = lease

    def acquire(self, worker: Worker) -> None:
        """Make the key, if there is none."""
        key = _text(worker.name.encode())
        body = (
            f'{{"compare":[{{"target":"VERSION","key":"{key}","version":"0"}}],"success":'
            f'[{{"requestPut":{{"key":"{key}","lease":"{self._lease}"}}}}]}}'
        )
        self.ask(worker, self._transaction, body.encode(), self._made)

    @staticmethod
    def _made(worker: Worker, body: bytes) -> None:
        if b'"succeeded":true' in body:
            worker.acquired(b"")
        else:
            worker.failed(f"not acquired: {body.decode()}")

    def release(self, worker: Worker, held: bytes) -> None:
        """Delete the key."""
        del held
        self.ask(worker, self._delete, f'{{"key":"{_text(worker.name.encode())}"}}'.encode(), self._deleted)

    @staticmethod
    def _deleted(worker: Worker, body: bytes) -> None:
        if b'"deleted":"1"' in body:
            worker.released()
        else:
            worker.failed(f"not released: {body.decode()}")


class Queue(Http1):
    """etcd's lock service over the gateway: acquire waits. Each client has a lease of its own."""

    def __init__(self, address: Address, lease: int) -> None:
        super().__init__()
        self._lock, self._unlock = post(address, "/v3/lock/lock"), post(address, "/v3/lock/unlock")
        self._lease = lease

    def acquire(self, worker: Worker) -> None:
        """Wait for the lock."""
        body = f'{{"name":"{_text(worker.name.encode())}","lease":"{self._lease}"}}'
        self.ask(worker, self._lock, body.encode(), self._locked)

    @staticmethod
    def _locked(worker: Worker, body: bytes) -> None:
        worker.acquired(json.loads(body)["key"].encode())

    def release(self, worker: Worker, held: bytes) -> None:
        """Unlock."""
        self.ask(worker, self._unlock, b'{"key":"%b"}' % held, lambda worker, _: worker.released())


def call(address: Address, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Ask the gateway for something that is not measured. Raises OSError."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=ASK_S)
    try:
        connection.request("POST", path, json.dumps(body))
        response = connection.getresponse()
        data = response.read()
    except http.client.HTTPException as error:
        raise ConnectionError(str(error)) from error
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise ConnectionError(f"{path}: {response.status} {data[:300].decode(errors='replace')}")
    answer: dict[str, Any] = json.loads(data)
    return answer


def grant(address: Address) -> int:
    """Return a new lease."""
    return int(call(address, "/v3/lease/grant", {"TTL": LEASE_S})["ID"])


class Etcd:
    """etcd, three nodes."""

    name: Final = "etcd"
    nodes: Final = NODES

    def missing(self) -> list[str]:
        """Return the package of etcd unless it is there."""
        return [] if find_program("etcd") else ["etcd-server"]

    @contextmanager
    def running(self, directory: Path, workers: int) -> Iterator[Running]:
        """Start three nodes."""
        del workers
        with programs(self.name) as started:
            clients = _start(started, directory)
            started.wait(lambda: _leader(clients) is not None)
            yield Running(started.pids, _ways(clients))


def _start(started: Programs, directory: Path) -> list[Address]:
    """Start the nodes; return where clients find them."""
    path = find_program("etcd")
    assert path, "asked before: missing()"
    clients, peers = free_addresses(NODES), free_addresses(NODES)
    members = ",".join(f"n{number}=http://{peer.netloc}" for number, peer in enumerate(peers, 1))
    for number, (client, peer) in enumerate(zip(clients, peers, strict=True), 1):
        node = directory / f"n{number}"
        node.mkdir()
        options = {
            "name": f"n{number}",
            "data-dir": str(node / "data"),
            "listen-client-urls": f"http://{client.netloc}",
            "advertise-client-urls": f"http://{client.netloc}",
            "listen-peer-urls": f"http://{peer.netloc}",
            "initial-advertise-peer-urls": f"http://{peer.netloc}",
            "initial-cluster": members,
            "initial-cluster-state": "new",
            "logger": "zap",
            "log-level": "warn",
        }
        started.start([path, *(f"--{key}={value}" for key, value in options.items())], node / "log")
    return clients


def _leader(clients: Sequence[Address]) -> Address | None:
    """Return the node that leads; None as long as not every node knows of one."""
    leaders = []
    for address in clients:
        try:
            status = call(address, "/v3/maintenance/status", {})
        except OSError:
            return None
        if "leader" not in status:
            return None
        if status["leader"] == status["header"]["member_id"]:
            leaders.append(address)
    return leaders[0] if len(leaders) == 1 else None


def _ways(clients: list[Address]) -> list[Way]:
    """Return the ways of asking etcd. As ours: HTTP to all nodes, one connection to the leader."""

    def over_http(kind: type[OwnLocks | Queue], *, is_lease_shared: bool) -> Callable[[int], Any]:
        async def connect(workers: int) -> Sequence[Lean]:
            shared = grant(clients[0])
            return [
                await kind.open(address, address, shared if is_lease_shared else grant(clients[0]))
                for address in (clients[number % NODES] for number in range(workers))
            ]

        return connect

    async def over_grpc(_: int) -> Sequence[Lean]:
        leader = _leader(clients) or clients[0]
        return [await etcd_grpc.OwnLocks.open(leader, leader, grant(leader))]

    async def queue_over_grpc(workers: int) -> Sequence[Lean]:
        leader = _leader(clients) or clients[0]
        return [await etcd_grpc.Queue.open(leader, leader, [grant(leader) for _ in range(workers)])]

    return [
        Way("etcd-json", "etcd, JSON", over_http(OwnLocks, is_lease_shared=True)),
        Way("etcd-grpc", "etcd, gRPC", over_grpc),
        Way("etcd-json", "etcd, JSON", over_http(Queue, is_lease_shared=False), is_contended=True),
        Way("etcd-grpc", "etcd, gRPC", queue_over_grpc, is_contended=True),
    ]
