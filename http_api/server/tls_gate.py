"""A connection before its handshake is over: it has a place among all others, and little time.

Whoever opens connections and is silent, or answers slowly, must not keep others out. So a connection counts
from its first moment, like one that waits for the head of a request.
"""

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, cast

from cluster.observing.samples import Sample, counter
from cluster.tls import revoked
from cluster.tls.transport import TlsTransport
from http_api.server import answer_bytes, call_ids
from http_api.server.connection_limits import ConnectionPlaces, Place
from http_api.server.log_budget import LogBudget
from http_api.server.peer_address import address_of
from http_api.server.refusals import CallRefused

HANDSHAKE_S: Final = 10.0
"""Seconds that a handshake may take."""
_LINGER_S: Final = 1.0
"""Seconds in which a client that is refused can read why. Its bytes are dropped meanwhile: to close a socket
that has unread ones would take the answer back."""

_LINES_A_MINUTE: Final = 1
_ADVICE: Final = {
    "client-certificate": "the client shows no certificate that one of --tls-client-ca has signed",
    "client-revoked": "the certificate of the client is revoked (--tls-revoked): all its calls are refused",
    "node-certificate": "the client does not trust this node's certificate: does it know the authority that"
    " has signed it, and call this node by a name or address that is in the certificate?",
    "protocol": "the client does not speak TLS 1.3",
    "plain-http": "the client speaks HTTP without TLS: its URL has to begin with https://",
    "plain-redis": "the client speaks RESP without TLS: its URL has to begin with rediss://",
}
"""What is told of a failed handshake, by reason. What strangers do besides is counted, and not told."""


class TlsDoor:
    """What all connections of a server share: the certificate that is in force, and what has been counted."""

    def __init__(
        self,
        context: ssl.SSLContext,
        others: Callable[[], Iterable[Sample]] = tuple,
        *,
        takes_plain: bool = False,
    ) -> None:
        """Begin with `context`; new connections take what is set in its place. `others` are more samples.

        With `takes_plain` clients that speak HTTP without TLS are let in, while they go over to it.
        """
        self.context, self.takes_plain = context, takes_plain
        self._others = others
        self._results: Counter[str] = Counter()
        self._lines = LogBudget(_LINES_A_MINUTE)
        self._revoked = frozenset[int]()
        self._known: dict[TlsGate, int] = {}
        """The connections whose clients have shown a certificate, with its serial number."""

    def revoke(self, serials: frozenset[int]) -> None:
        """Let certificates with these serial numbers, and no others, count no longer.

        Connections that have shown one end at once, with all that they wait for or watch.
        """
        self._revoked = serials
        ended = sum(gate.revoke(is_revoked=serial in serials) for gate, serial in [*self._known.items()])
        if ended:
            logging.getLogger("http_api").warning("event=tls-revoked ended=%d", ended)

    def enters(self, gate: "TlsGate", serial: int) -> bool:
        """Keep a connection whose client has shown a certificate; return whether that one is revoked."""
        self._known[gate] = serial
        return serial in self._revoked

    def left(self, gate: "TlsGate") -> None:
        """Forget a connection."""
        self._known.pop(gate, None)

    def count(self, result: str) -> None:
        """Count a handshake that is over."""
        self._results[result] += 1

    def tell(self, reason: str, address: str, error: BaseException) -> None:
        """Log a handshake that failed."""
        advice = _ADVICE.get(reason)
        if advice is not None and self._lines.take(reason):
            logging.getLogger("http_api").warning(
                "event=tls-handshake-failed address=%r reason=%s error=%r detail=%r",
                *(address, reason, _words(error), advice),
            )

    def admit_plain(self, address: str) -> None:
        """Count a client that speaks HTTP without TLS, and log now and then who still does."""
        self.count("plain-accepted")
        if self._lines.take("plain-accepted"):
            logging.getLogger("http_api").warning(
                "event=tls-not-used address=%r detail=%r",
                *(address, "this client's URL has to begin with https:// before the node can require TLS"),
            )

    def samples(self) -> Iterator[Sample]:
        """Yield what has been counted, and the others."""
        for result, count in sorted(self._results.items()):
            text = "TLS handshakes of clients, by result."
            yield counter("http_tls_handshakes_total", text, count, result=result)
        yield from self._others()


class Plain(NamedTuple):
    """What clients say at a port that forget TLS, and what they are told."""

    reason: str
    is_it: Callable[[bytes], bool]
    answer: Callable[[], bytes]


class TlsGate(asyncio.Protocol):
    """The owner of a client's socket: makes the handshake, then carries bytes for the protocol above."""

    def __init__(
        self,
        door: TlsDoor,
        room: ConnectionPlaces,
        make_above: Callable[[Place], asyncio.Protocol],
        plain: "Plain | None" = None,
    ) -> None:
        """`make_above` makes the protocol that the client speaks to once it is admitted.

        `plain` is what clients speak without TLS, HTTP if it is not given.
        """
        self._plain = plain or HTTP
        self._door, self._room, self._make_above = door, room, make_above
        self._above: asyncio.Protocol | None = None
        self._is_refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a place, and wait for the handshake."""
        self._raw = raw = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        loop = asyncio.get_running_loop()
        self._opened = TlsTransport(raw, self._door.context, loop)
        self._timer = loop.call_later(HANDSHAKE_S, self.end)
        self._place = self._room.come(self, address_of(raw))

    def data_received(self, data: bytes) -> None:
        """Take sealed bytes."""
        if self._is_refused:
            return
        try:
            if self._above is not None:
                self._opened.take(data)
            elif not self._opened.is_begun and self._plain.is_it(data):
                if self._door.takes_plain:
                    self._admit_plain(data)
                    return
                self._raw.write(self._plain.answer())
                self._refuse(self._plain.reason, ssl.SSLError("a request without TLS"))
            elif self._opened.shake(data):
                self._admit()
        except ssl.SSLError as error:
            # OpenSSL has told the client by an alert, if there was anything to say.
            if self._above is None:
                self._refuse(_reason(error), error)
            else:
                self._opened.close()

    def _admit(self) -> None:
        """Let the protocol above begin: the client is who it has to be."""
        self._timer.cancel()
        self._look_at_certificate()
        self._above = above = self._make_above(self._place)
        self._opened.set_protocol(above)
        above.connection_made(self._opened)
        # Requests may have come with the end of the handshake. The protocol above begins first.
        asyncio.get_running_loop().call_soon(self.data_received, b"")

    def _admit_plain(self, data: bytes) -> None:
        """Leave the socket to the protocol above, as if this port had no TLS."""
        self._timer.cancel()
        self._door.admit_plain(self._place.address)
        above = self._make_above(self._place)
        self._raw.set_protocol(above)
        above.connection_made(self._raw)
        above.data_received(data)

    def _look_at_certificate(self) -> None:
        """Find out whether the client has shown a certificate, and whether that one is revoked.

        With TLS 1.3 a client is through before the node has seen its certificate, and `ssl` has no way to say
        then what is wrong with it. So it is admitted, and hears of it as the answer to whatever it asks.
        """
        serial = revoked.serial_of(self._opened.get_extra_info("ssl_object").getpeercert() or {})
        if serial >= 0 and self._door.enters(self, serial):
            self._place.is_revoked = True
            self._door.count("client-revoked")
            what = ConnectionRefusedError(f"serial number {serial:X}")
            self._door.tell("client-revoked", self._place.address, what)
        else:
            self._door.count("ok")

    def revoke(self, *, is_revoked: bool) -> bool:
        """Hear whether the certificate of this client is revoked; return whether the connection ends.

        It ends at once, unless all that the client asks for was refused already.
        """
        is_new = is_revoked and not self._place.is_revoked
        self._place.is_revoked = is_revoked
        if is_new:
            self._raw.abort()
        return is_new

    def _refuse(self, reason: str, error: BaseException) -> None:
        """Count and tell what is wrong; let the client read that, and go."""
        self._is_refused = True
        self._timer.cancel()
        self._door.count(reason)
        self._door.tell(reason, self._place.address, error)
        if not self._raw.is_closing():
            self._raw.write_eof()
            self._timer = asyncio.get_running_loop().call_later(_LINGER_S, self._raw.abort)

    def end(self) -> None:
        """Close this connection at once: its time is over, or its place is needed."""
        if not self._is_refused:
            self._is_refused = True
            self._door.count("late")
        self._raw.abort()

    def eof_received(self) -> None:
        """Hear that the client sends nothing more. What it was answered is still sent."""

    def pause_writing(self) -> None:
        """Let the protocol above wait until the client has read."""
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        """Let it go on."""
        if self._above is not None:
            self._above.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._timer.cancel()
        self._door.left(self)
        if self._above is not None:
            self._above.connection_lost(exc)
            return
        if not self._is_refused:
            self._is_refused = True
            self._door.count("left")
        self._place.gone()


def _reason(error: ssl.SSLError) -> str:
    """Return which kind of failure this is."""
    text = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError) or "DID_NOT_RETURN_A_CERTIFICATE" in text:
        return "client-certificate"
    if "ALERT" in text and ("CERTIFICATE" in text or "UNKNOWN_CA" in text):
        return "node-certificate"
    return "protocol"


def _words(error: BaseException) -> str:
    """Return what OpenSSL says, without the place in its sources."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return str(getattr(error, "reason", None) or error)


def _plain_answer() -> bytes:
    """Return the answer to a request without TLS."""
    detail = "this port speaks only TLS; use https://"
    call_id = call_ids.new()
    content = answer_bytes.of_problem(CallRefused("tls-required", detail, ends_connection=True), call_id)
    lines = content.lines + answer_bytes.length_lines(content.body, is_kept=False)
    return answer_bytes.head(content.status, content.media_type, lines, call_id) + content.body


HTTP: Final = Plain("plain-http", lambda data: data[:1].isalpha(), _plain_answer)
REDIS: Final = Plain(
    "plain-redis",
    lambda data: data[:1] == b"*" or data[:1].isalpha(),
    lambda: b"-ERR this port speaks only TLS\r\n",
)
