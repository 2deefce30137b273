"""One request under way: whether it has begun to go out, and how to take it back."""

import asyncio
import contextlib
import os
import socket


class NoAnswer(Exception):
    """A connection broke, or nothing came in time. The text says which node, and how."""


class NoTrust(NoAnswer):
    """TLS fails with this node, and will as long as both sides have the certificates that they have.

    `was_sent` says that the request went out first: the node has closed the connection without reading it.
    """

    def __init__(self, text: str, *, was_sent: bool) -> None:
        super().__init__(text)
        self.was_sent = was_sent


class NoStream(NoAnswer):
    """Something answered that it has no stream: an older node, or a proxy in between."""


class Sending:
    """A request under way.

    An error does not say whether it was sent: the HTTP library sends a DELETE again whose connection broke,
    and it is the second one that finds nobody there.
    """

    def __init__(self) -> None:
        self.sent_count = 0
        self.is_withdrawn = False
        self.is_stopped = False
        """Whether it must not be sent any more, if it was not."""
        self.transport: asyncio.Transport | None = None

    @property
    def was_sent(self) -> bool:
        """Whether it has begun to go out."""
        return self.sent_count > 0

    def withdraw(self) -> None:
        """Tell the node that nobody waits for the answer any longer, but hear what it says.

        A node takes back what it did not answer yet when the client's side of the connection ends. What it
        answered before it learned of this still arrives, and can be undone. To close the connection at once
        would lose that answer, and nobody would know what was granted.
        """
        self.is_withdrawn = True
        if self.transport is None or self.transport.is_closing():
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            _end_sending(self.transport)


def _end_sending(transport: asyncio.Transport) -> None:
    """End our side of a connection with TLS. That has no way to say so and go on to hear; its socket has."""
    own = transport.get_extra_info("socket")
    # A connection that has just ended needs no end.
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(own.fileno())) as same:
        same.shutdown(socket.SHUT_WR)
