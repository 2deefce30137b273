"""The proxy that repeats answers: most requests pass, one in ten gets an earlier answer."""

import http.client
import http.server
import itertools
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from lab.chaos.teeth.repeating_proxy import EVERY, RepeatingProxy


class Counting(http.server.BaseHTTPRequestHandler):
    """Answers with a number that nobody got before; GET with 404."""

    protocol_version = "HTTP/1.1"
    numbers = itertools.count()

    def do_POST(self) -> None:
        """Count."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(200, str(next(self.numbers)).encode())

    def do_GET(self) -> None:
        """Find nothing."""
        self._answer(404, b"nothing")

    def _answer(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def proxy() -> Iterator[RepeatingProxy]:
    """Yield a proxy before a server that counts."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Counting)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    made = RepeatingProxy(f"http://127.0.0.1:{server.server_port}")
    yield made
    made.close()
    server.shutdown()
    server.server_close()
    thread.join()


def test_one_in_ten_answers_is_an_earlier_one(proxy: RepeatingProxy) -> None:
    """All over one connection; other answers than successes pass, and are not repeated."""
    connection = http.client.HTTPConnection(urlsplit(proxy.url).netloc, timeout=10)
    heard = []
    for _ in range(3 * EVERY + 1):
        connection.request("POST", "/count", b"{}")
        heard.append(connection.getresponse().read())
    for _ in range(2 * EVERY):
        connection.request("GET", "/")
        response = connection.getresponse()
        assert (response.status, response.read()) == (404, b"nothing")
    connection.close()
    assert proxy.repeated == len(heard) - len(set(heard)) == 3


def test_a_node_that_is_gone_hangs_up() -> None:
    """Clients see what they would see without the proxy: a connection that ends."""
    proxy = RepeatingProxy("http://127.0.0.1:1")
    connection = http.client.HTTPConnection(urlsplit(proxy.url).netloc, timeout=10)
    connection.request("POST", "/count", b"{}")
    with pytest.raises(http.client.RemoteDisconnected):
        connection.getresponse()
    connection.close()
    proxy.close()
