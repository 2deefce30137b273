"""TLS beneath a link: makes its handshake, then carries bytes for the link, which hears nothing of it.

A connection counts as one that has proven nothing from its first byte on, and its TLS handshake is part of
the time that a link has for proving itself. Nothing waits here: what does not come, does not come, and
others go on. The first byte says whether a dialer speaks TLS.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, cast

from cluster.peers.certificate_names import Shown, digest_of, names_in
from cluster.peers.cuts import Cut
from cluster.peers.link import TLS_FIRST_BYTE, Link
from cluster.peers.peer_tls import PeerTls, cut_for
from cluster.tls import revoked
from cluster.tls.transport import TlsTransport

LINGER_S: Final = 1.0
"""Seconds in which a peer that is refused can read why. What it sends is dropped meanwhile: to close a
socket that has unread bytes would take the answer back."""
_PLAIN: Final = 0x00
"""The first byte of what one without says: the length of a frame that is less than 16 MiB."""


class PeerGate(asyncio.Protocol):
    """The owner of the socket of a link that may have TLS."""

    def __init__(self, link: Link, tls: PeerTls, may_shake: Callable[[str], bool] = lambda _: True) -> None:
        """Speak TLS if `link` dials; else let its dialer say what it speaks.

        `may_shake` is asked, by the address of a dialer, whether it gets a handshake now.
        """
        self._link, self._tls, self._may_shake = link, tls, may_shake
        self._opened: TlsTransport | None = None
        self._is_shaken = self._is_refused = False
        self._linger: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a place among those that have proven nothing; a dialer begins."""
        self._raw = raw = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        self._link.connected(raw)
        if self._link.is_dialer:
            self._begin()
            self._go_on(b"")

    def data_received(self, data: bytes) -> None:
        """Take bytes."""
        if self._is_refused:
            return
        if self._opened is None:
            if data[0] != TLS_FIRST_BYTE:
                self._without(data)
                return
            if not self._may_shake(self._link.host):
                self._link.give_up(Cut.CROWD, "too many TLS handshakes at once")
                return
            self._begin()
        self._go_on(data)

    def _begin(self) -> None:
        """Speak TLS with the files that are in force now."""
        ready, is_dialer, loop = self._tls.ready, self._link.is_dialer, asyncio.get_running_loop()
        self._ours = ready.digest
        context = ready.client if is_dialer else ready.server
        self._opened = TlsTransport(self._raw, context, loop, is_dialer=is_dialer)

    def _without(self, data: bytes) -> None:
        """Take a dialer that speaks no TLS, if it may; from then on this gate is not needed."""
        if self._tls.takes_plain:
            self._raw.set_protocol(self._link)
            self._link.speak(self._raw, None)
            self._link.data_received(data)
        elif data[0] == _PLAIN:
            self._link.give_up(Cut.PLAIN, "it speaks no TLS, and this node requires it (--peer-tls)")
        else:
            self._link.give_up(Cut.TLS, "neither TLS nor a node")

    def _go_on(self, data: bytes) -> None:
        """Go on with the handshake, or open what came for the link."""
        opened = self._opened
        assert opened is not None, "begun"
        try:
            if self._is_shaken:
                opened.take(data)
            elif opened.shake(data):
                self._shaken(opened)
                # What came with the end of the handshake.
                opened.take(b"")
        except ssl.SSLError as error:
            self._refuse(*cut_for(error, is_shaken=self._is_shaken))

    def _shaken(self, opened: TlsTransport) -> None:
        """Let the link begin: the certificate of the other side is in order, whomever it names."""
        self._is_shaken = True
        opened.set_protocol(self._link)
        tls: ssl.SSLObject = opened.get_extra_info("ssl_object")
        theirs, told = digest_of(tls.getpeercert(binary_form=True) or b""), tls.getpeercert() or {}
        self._link.speak(opened, Shown(names_in(told), theirs, self._ours, revoked.serial_of(told)))

    def _refuse(self, cut: Cut, reason: str) -> None:
        """End the link; OpenSSL has told the other side by an alert, if there was anything to say."""
        self._is_refused = True
        self._link.give_up(cut, reason, at_once=False)
        if not self._raw.is_closing():
            self._raw.write_eof()
            self._linger = asyncio.get_running_loop().call_later(LINGER_S, self._raw.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        if self._linger is not None:
            self._linger.cancel()
        self._link.connection_lost(exc)
