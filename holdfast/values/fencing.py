"""The resource's side of fencing: refuse tokens that are older than one seen before."""

import threading

from holdfast.values.errors import StaleToken


class FencedResource:
    """Guards one resource inside one process. Safe to use from several threads.

    A lock alone cannot stop a client that was paused while its lease ran out; the resource can, because the
    next holder's token is larger. A resource that lives in several processes must keep the highest token
    where it keeps its data, and compare within the same transaction.
    """

    def __init__(self, highest_token: int = 0) -> None:
        """Start from `highest_token`, the largest token that this resource has ever accepted."""
        self._highest_token = highest_token
        self._lock = threading.Lock()

    @property
    def highest_token(self) -> int:
        """The largest token accepted so far."""
        return self._highest_token

    def check(self, token: int) -> None:
        """Accept `token` and remember it, or raise StaleToken when a larger one was accepted before.

        The same token is accepted again and again: a holder works more than once under one hold.
        """
        with self._lock:
            if token < self._highest_token:
                raise StaleToken(token, self._highest_token)
            self._highest_token = token
