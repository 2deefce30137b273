"""A proxy between clients and a node that answers some requests with an answer of before.

It stands for caches and balancers that do too much. HTTP/1.1 with lengths, no streams.
"""

import http.client
import http.server
import itertools
import threading
from typing import Any, Final
from urllib.parse import urlsplit

EVERY: Final = 10
"""One in so many requests is not passed on."""
ASK_S: Final = 30.0

_Answer = tuple[int, bytes]


class RepeatingProxy:
    """Listens on loopback from the time it is made until `close`."""

    def __init__(self, url: str) -> None:
        """`url` is the node's."""
        self._netloc = urlsplit(url).netloc
        self._lock = threading.Lock()
        self._earlier: dict[str, _Answer] = {}
        self._count = itertools.count(1)
        self.repeated = 0
        """How many answers were given twice."""
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop listening; connections end with their clients."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, method: str, path: str, body: bytes) -> _Answer:
        """Return the node's answer, now and then an earlier one to the path. Raises as http.client."""
        with self._lock:
            earlier = self._earlier.get(path)
            if earlier is not None and next(self._count) % EVERY == 0:
                self.repeated += 1
                return earlier
        fresh = self._pass_on(method, path, body)
        if method == "POST" and fresh[0] == http.client.OK:
            with self._lock:
                self._earlier[path] = fresh
        return fresh

    def _pass_on(self, method: str, path: str, body: bytes) -> _Answer:
        connection = http.client.HTTPConnection(self._netloc, timeout=ASK_S)
        try:
            connection.request(method, path, body or None, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        """Return the class whose objects serve one connection each."""
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                try:
                    status, data = proxy.answer(self.command, self.path, body)
                except (OSError, http.client.HTTPException):
                    self.close_connection = True  # as if the node had hung up
                    return
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = _serve  # noqa: N815 - the names that http.server looks for

            def log_message(self, *_: Any) -> None:
                """Say nothing: the history has it all."""

        return Handler
