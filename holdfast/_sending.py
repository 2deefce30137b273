"""One request under way: whether it has begun to go out, and how to take it back."""

import asyncio


class NoAnswer(Exception):
    """A connection broke, or nothing came in time. The text says which node, and how."""


class Sending:
    """A request under way.

    An error does not say whether it was sent: the HTTP library sends a DELETE again whose connection broke,
    and it is the second one that finds nobody there.
    """

    def __init__(self) -> None:
        self.was_sent = False
        self.is_withdrawn = False
        self.transport: asyncio.Transport | None = None

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
            self.transport.close()
