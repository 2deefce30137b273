"""One request under way: whether it has begun to go out, and why there is no answer."""


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
        self.is_stopped = False
        """Whether it must not be sent any more, if it was not."""

    @property
    def was_sent(self) -> bool:
        """Whether it has begun to go out."""
        return self.sent_count > 0
