"""Everything that a cluster is entered with is exchanged under load, one after the other: no client notices.

The nodes have TLS for clients and for each other, and know their clients by tokens. The clients are SDKs that
have one thing under way (over HTTP) or many (over a stream), and plain HTTP that tries nothing twice.

It takes minutes where others use the machine, too: scripts/test -m slow tests/process/test_rotation.py
"""

import asyncio
import itertools
import os
import shutil
import signal
import ssl
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
from cryptography import x509

import holdfast
from holdfast import wire
from scripts.lib import cluster_file
from tests.process.nodes import PATIENT, LogSince, node_ids, until, urls, wait_whole
from tests.process.test_peer_tls import make_certificate, renew
from tests.support.known_cluster import RIGHTS, TOKENS, KnownCluster
from tests.unit.http_api.serving import bearer, token_line

pytestmark = [pytest.mark.process, pytest.mark.slow]

DEADLINE_S = 120
CLIENTS = 3
AT_ONCE = 8
"""Calls that a busy client has under way: more than it takes to open a stream."""
CYCLES = 5
"""Cycles that each client has to make between two changes, so that each change is under load."""
NEW_TOKEN = "new-token-of-ann-".ljust(40, "y")


class Workers:
    """Clients of all kinds that take and give back locks; `failed` has each call that failed."""

    def __init__(self, cluster: KnownCluster, token_file: Path) -> None:
        self.failed: list[str] = []
        self.token = TOKENS["ann"]
        """What those that try nothing twice send."""
        self._cluster = cluster
        self._cycles: dict[str, int] = {}
        environment = cluster.client_environment
        self._token_file = token_file
        self._tls = holdfast.Tls(*[environment[f"HOLDFAST_{name}"] for name in ("CA", "CERT", "KEY")])
        self.context = ssl.create_default_context(cafile=self._tls.ca)
        self.context.load_cert_chain(environment["HOLDFAST_CERT"], environment["HOLDFAST_KEY"])

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        """Work until the end of the block."""
        async with AsyncExitStack() as stack:
            tasks = []
            for number in range(CLIENTS):
                one = await stack.enter_async_context(self._sdk())
                tasks.append(self._start(self._sdk_cycles(one, f"http-{number}")))
                busy = await stack.enter_async_context(self._sdk())
                names = [f"stream-{number}-{each}" for each in range(AT_ONCE)]
                tasks += [self._start(self._sdk_cycles(busy, name)) for name in names]
            http = await stack.enter_async_context(
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self.context))
            )
            tasks += [self._start(self._plain_cycles(http, node_id)) for node_id in node_ids(self._cluster)]
            try:
                await self.more()
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def more(self) -> None:
        """Wait until every client has made further cycles."""
        wanted = {who: count + CYCLES for who, count in self._cycles.items()}
        await until(
            lambda: self.failed or all(self._cycles[who] >= count for who, count in wanted.items()),
            "all clients work",
            DEADLINE_S,
        )

    def _start(self, cycles: "AsyncGenerator[str]") -> asyncio.Task[None]:
        return asyncio.create_task(self._run(cycles))

    async def _run(self, cycles: AsyncGenerator[str]) -> None:
        """Count the cycles of one client, until one fails."""
        who = "a client"
        try:
            async for who in cycles:
                self._cycles[who] = self._cycles.get(who, -1) + 1
        except (holdfast.LockError, aiohttp.ClientError, AssertionError, OSError) as error:
            self.failed.append(f"{who}: {type(error).__name__}: {error}")

    def _sdk(self) -> holdfast.Client:
        return holdfast.Client(
            urls(self._cluster), tls=self._tls, token_file=self._token_file, timeout=DEADLINE_S
        )

    async def _sdk_cycles(self, client: holdfast.Client, who: str) -> AsyncGenerator[str]:
        yield who
        for number in itertools.count():
            hold = await client.acquire(f"{who}/{number % 10}", ttl=600, wait=0, renew=False)
            await hold.renew()
            await hold.release()
            yield who

    async def _plain_cycles(self, http: aiohttp.ClientSession, node_id: str) -> AsyncGenerator[str]:
        who, url = f"plain-{node_id}", self._cluster.node(node_id).http
        yield who
        while True:
            hold_id = await self._post(http, url + wire.LOCK_ACQUIRE, name=who, ttl_ms=600_000)
            await self._post(http, url + wire.LOCK_RELEASE, hold_id=hold_id)
            yield who

    async def _post(self, http: aiohttp.ClientSession, url: str, **body: str | int) -> str:
        async with http.post(url, json=body, headers=bearer(self.token)) as response:
            answer = await response.json(content_type=None)
            assert response.status == 200, f"{response.status}: {answer}"
            return str(answer.get("hold_id", ""))


def _write(path: Path, content: bytes) -> None:
    """Put a new file in the place of an old one, by a rename."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.chmod(0o600)
    new.replace(path)


class Rotations:
    """What is exchanged, each by the way that the documents say."""

    def __init__(self, cluster: KnownCluster, tokens: Path, workers: Workers, token_file: Path) -> None:
        self._cluster, self._tokens, self._workers, self._token_file = cluster, tokens, workers, token_file

    async def secret(self) -> None:
        """Exchange the secret that nodes share, by `holdfast cluster rotate-secret`."""
        environment = os.environ | self._cluster.client_environment
        environment["HOLDFAST_ACCESS_TOKEN"] = TOKENS["ops"]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holdfast", "cluster", "rotate-secret"),
            str(self._cluster.directory / "secret"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment,
        )
        async with asyncio.timeout(DEADLINE_S):
            printed, _ = await process.communicate()
        assert process.returncode == 0, printed.decode()

    async def tokens(self) -> None:
        """Exchange Ann's token: both are good, then the clients have the new one, then the old one goes."""
        old, new = [
            token_line("ann", token, RIGHTS["ann"]).split()[1] for token in (self._workers.token, NEW_TOKEN)
        ]
        others = b"".join(token_line(name, TOKENS[name], RIGHTS[name]) for name in ("bob", "ops"))
        await self._told("event=tokens-read", lambda: _write(self._tokens, _line(old + b"," + new) + others))
        _write(self._token_file, NEW_TOKEN.encode())
        self._workers.token = NEW_TOKEN
        await self._workers.more()
        await self._told("event=tokens-read", lambda: _write(self._tokens, _line(new) + others))

    async def certificates(self) -> None:
        """Exchange the certificates that nodes show their clients; new connections see the new ones."""
        folder = self._cluster.directory / cluster_file.TLS_DIRECTORY
        made = folder.with_name("tls-new")
        shutil.copytree(folder, made, dirs_exist_ok=True)
        for node_id in node_ids(self._cluster):
            words = ("node", node_id, "127.0.0.1", "localhost", "--dir", str(made), "--force")
            await asyncio.to_thread(make_certificate, *words)

        def place() -> None:
            for node_id in node_ids(self._cluster):
                for path in cluster_file.certificate(self._cluster.directory, node_id):
                    (made / path.name).replace(path)

        await self._told("event=tls-read", place)
        for node_id in node_ids(self._cluster):
            cert, _ = cluster_file.certificate(self._cluster.directory, node_id)
            assert await self._serial_shown_by(node_id) == _serial(cert.read_bytes())

    async def peer_certificates(self) -> None:
        """Exchange the certificates that nodes show each other, signed by the same authority."""
        directory = self._cluster.directory
        ca = (directory / cluster_file.PEER_TLS_DIRECTORY / "ca.pem").read_bytes()
        signer = "peer-new"
        shutil.copytree(directory / cluster_file.PEER_TLS_DIRECTORY, directory / signer, dirs_exist_ok=True)
        await self._told("event=tls-read", lambda: renew(self._cluster, ca=ca, by=signer))

    async def _told(self, words: str, change: Callable[[], None]) -> None:
        """Change files and tell the nodes; wait until each has read them, and until all clients went on."""
        logs = [LogSince(self._cluster, node_id) for node_id in node_ids(self._cluster)]
        await asyncio.to_thread(change)
        for node_id in node_ids(self._cluster):
            self._cluster.send_signal(node_id, signal.SIGHUP)
        await until(lambda: all(log.lines(words) for log in logs), f"{words} on all nodes")
        assert not any(log.lines("not-read") for log in logs)
        await self._workers.more()

    async def _serial_shown_by(self, node_id: str) -> int:
        url = urlsplit(self._cluster.node(node_id).http)
        _, writer = await asyncio.open_connection(url.hostname, url.port, ssl=self._workers.context)
        shown: ssl.SSLObject = writer.get_extra_info("ssl_object")
        der = shown.getpeercert(binary_form=True)
        assert der is not None
        writer.close()
        return x509.load_der_x509_certificate(der).serial_number


def _line(proofs: bytes) -> bytes:
    return b" ".join([b"ann", proofs, RIGHTS["ann"].encode()]) + b"\n"


def _serial(pem: bytes) -> int:
    return x509.load_pem_x509_certificate(pem).serial_number


async def test_all_that_opens_a_cluster_is_exchanged_under_load(tmp_path: Path) -> None:
    """No call fails, the leader stays, and what was exchanged opens nothing any more."""
    tokens, token_file = tmp_path / "tokens", tmp_path / "ann.token"
    _write(tokens, b"".join([token_line(name, TOKENS[name], RIGHTS[name]) for name in TOKENS]))
    _write(token_file, TOKENS["ann"].encode())
    arguments = ["--tokens", str(tokens), *PATIENT]
    with KnownCluster.up(tmp_path / "cluster", extra_args=arguments, tls=True, peer_tls=True) as cluster:
        await asyncio.to_thread(wait_whole, cluster)
        leader = await asyncio.to_thread(cluster.leader)
        logs = [LogSince(cluster, node_id) for node_id in node_ids(cluster)]
        workers = Workers(cluster, token_file)
        rotations = Rotations(cluster, tokens, workers, token_file)
        async with workers.working():
            for exchange in (
                rotations.secret,
                rotations.tokens,
                rotations.certificates,
                rotations.peer_certificates,
            ):
                await exchange()
                await workers.more()
            streams = await asyncio.to_thread(_streams, cluster, leader)
        assert [log.lines("event=leader-lost") for log in logs] == [[], [], []]
        assert cluster.leader() == leader
        assert workers.failed == []
        assert streams >= CLIENTS
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=workers.context)) as http:
            path = cluster.node(leader).http + wire.CLUSTER
            for token, status in ((TOKENS["ann"], 401), (NEW_TOKEN, 200)):
                async with http.get(path, headers=bearer(token)) as response:
                    assert response.status == status


def _streams(cluster: KnownCluster, node_id: str) -> int:
    """Return how many sessions have numbered commands: those of streams."""
    connection = cluster.connection(node_id, DEADLINE_S)
    try:
        connection.request("GET", wire.METRICS, headers=bearer(TOKENS["ops"]))
        lines = connection.getresponse().read().decode().splitlines()
    finally:
        connection.close()
    return int(next(float(line.split()[1]) for line in lines if line.startswith("holdfast_streams ")))
