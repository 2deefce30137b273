"""Clients behind nginx and HAProxy with the configurations of the manual, and with less patience."""

import asyncio
import contextlib
import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import holdfast
from holdfast import wire
from scripts.lib import ports
from scripts.local_cluster import LocalCluster
from tests.process.nodes import http_to, until, urls
from tests.support import servers
from tests.support.certificates import Certificates

pytestmark = pytest.mark.process

MANUAL = Path(__file__).resolve().parents[2] / "docs" / "operating.md"
PATIENCE_S = 60
"""Seconds of silence that the configurations of the manual bear."""
CUTS_S = [2, 5]
"""Seconds of silence that less patient proxies bear."""

Proxy = Callable[[list[str], int], AbstractContextManager[str]]
"""Runs a proxy before nodes, with this patience in seconds; gives its URL."""


def configuration(language: str, nodes: list[str], patience_s: int) -> str:
    """Return a block of the manual, for these nodes."""
    found = re.search(rf"```{language}\n(.*?)```", MANUAL.read_text("utf-8"), re.DOTALL)
    assert found is not None
    text, count = re.subn(rf" {PATIENCE_S}s", f" {patience_s}s", found[1])
    assert count == 2
    for number, node in enumerate(nodes, 1):
        text = text.replace(f"n{number}.example.com:7700", node.removeprefix("http://"))
    return text.replace("locks.example.com", "localhost")


@pytest.fixture(params=["nginx", "haproxy"])
def proxy(request: pytest.FixtureRequest, tmp_path: Path) -> Proxy:
    """Return what runs each proxy."""
    pair = Certificates(tmp_path).node("proxy")

    @contextlib.contextmanager
    def run(nodes: list[str], patience_s: int) -> Iterator[str]:
        (port,) = ports.reserve(1)
        text = configuration(request.param, nodes, patience_s)
        if request.param == "nginx":
            text = text.replace("listen 443", f"listen {ports.HOST}:{port}")
            text = text.replace("/etc/holdfast/proxy.pem", str(pair.cert))
            text = text.replace("/etc/holdfast/proxy-key.pem", str(pair.key))
            running = servers.nginx(text, port)
        else:
            both = tmp_path / "both.pem"
            both.write_bytes(pair.cert.read_bytes() + pair.key.read_bytes())
            text = text.replace("bind :443", f"bind {ports.HOST}:{port}")
            text = text.replace("/etc/holdfast/proxy.pem", str(both))
            running = servers.haproxy(text, port)
        with running:
            yield f"https://localhost:{port}"

    return run


async def test_everything_passes(cluster: LocalCluster, proxy: Proxy, tmp_path: Path) -> None:
    """Locks, a watch, and the stream of a busy client; older versions of TLS do not."""
    with proxy(urls(cluster), PATIENCE_S) as url:
        tls = Certificates(tmp_path).tls()
        async with holdfast.Client(url, tls=tls) as client, client.watch("proxied") as events:
            streams = client._transport.streams
            assert streams is not None
            seen = asyncio.ensure_future(anext(events))
            async with asyncio.timeout(20):
                while not (seen.done() and streams._link is not None and streams._link.is_ready):
                    async with client.lock("proxied/a", ttl=10):
                        """Held."""
            assert (await seen).name == "proxied/a"
        port = int(url.rpartition(":")[2])
        old = ssl.create_default_context(cafile=Certificates(tmp_path).ca)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(ssl.SSLError):
            await asyncio.open_connection("localhost", port, ssl=old)


@pytest.mark.parametrize("count", [1, 20])
@pytest.mark.parametrize("patience_s", CUTS_S)
async def test_waits_keep_their_places(
    cluster: LocalCluster, proxy: Proxy, tmp_path: Path, patience_s: int, count: int
) -> None:
    """However soon the proxy loses patience: alone over HTTP, and many over the connection of the waits."""
    name, order = f"proxied/{patience_s}/{count}", list[int]()
    with proxy(urls(cluster), patience_s) as url:
        async with (
            holdfast.Client(urls(cluster), owner="direct") as direct,
            holdfast.Client(url, tls=Certificates(tmp_path).tls(), owner="proxied", timeout=5) as proxied,
            http_to(cluster) as http,
        ):

            async def work(client: holdfast.Client, number: int) -> None:
                async with client.lock(name, ttl=30):
                    order.append(number)

            async def are_queued(wanted: int) -> bool:
                return await http.queue_length("n1", name) == wanted

            async with direct.lock(name, ttl=60):
                tasks = [asyncio.create_task(work(proxied, number)) for number in range(count)]
                await until(lambda: are_queued(count), "all wait")
                tasks.append(asyncio.create_task(work(direct, count)))
                await until(lambda: are_queued(count + 1), "the last waits")
                done, _ = await asyncio.wait(tasks, timeout=2.5 * patience_s)
                assert not done
            await asyncio.gather(*tasks)
    assert order == list(range(count + 1))


async def test_an_impatient_proxy_does_not_end_requests_in_slices(
    cluster: LocalCluster, proxy: Proxy, tmp_path: Path
) -> None:
    """A client in another language asks with `poll_ms`, and goes on after each answer."""
    name = "proxied/slices"
    with proxy(urls(cluster), 2) as url:
        async with holdfast.Client(urls(cluster)) as direct, http_to(cluster) as http:
            asked = {"name": name, "ttl_ms": 30_000, "wait_ms": 60_000, "request_id": "asked-in-slices-1"}
            connections = holdfast.Client(url, tls=Certificates(tmp_path).tls())
            async with direct.lock(name, ttl=60), connections as client:
                session = await client._transport.connections.session()
                for _ in range(4):
                    async with session.post(
                        url + wire.LOCK_ACQUIRE,
                        json={**asked, "poll_ms": 1_000},
                        ssl=client._transport.connections._ssl(),
                    ) as response:
                        assert response.status == 202
                        assert (await response.json())["position"] == 1
                assert await http.queue_length("n1", name) == 1
