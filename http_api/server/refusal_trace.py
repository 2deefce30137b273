"""The newest attempts that this node has refused because of who asked: a wrong token, a right that lacks.

They are kept in memory alone, and nowhere else: who guesses at tokens all day must not fill a disk. Those of
principals and those of strangers are kept apart, and in each part who has most gives way: neither strangers,
nor one principal, nor one stranger's address can wash away what somebody else tried. Nothing here is secret:
no token, no id of a session or hold, no body; paths are those of routes. What clients choose is cut, so that
the bound on the count is one on the bytes.
"""

import asyncio
import time
from collections.abc import Callable
from itertools import chain
from operator import attrgetter
from typing import Final

from holdfast import wire
from holdfast.wire.operators import Refusals, RefusedAttempt
from http_api.server.fair_shares import FairShares
from http_api.server.peer_address import address_of
from lockapi.problems import ProblemError

TRACED: Final = frozenset({"unauthenticated", "forbidden", "forbidden-host", "forbidden-origin"})
"""The problems that are about who asks; all others are about what is asked."""
KEPT_MAX: Final = 1000
"""The attempts of principals that are kept, and as many of strangers: about a megabyte of each."""
DETAIL_CHARS_MAX: Final = 300
"""Of a detail that repeats what the client sent, such as a `Host`."""
ID_CHARS_MAX: Final = wire.HEADER_REQUEST_ID_CHARS_MAX
"""Of a request id, which may be refused for its length only later than its client is."""


class RefusalTrace:
    """Keeps what was refused by one server."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._of_principals: FairShares[RefusedAttempt] = FairShares(KEPT_MAX)
        self._of_strangers: FairShares[RefusedAttempt] = FairShares(KEPT_MAX)
        self._count = 0
        self.origin_of: Callable[[str], str] = str
        """Returns what the attempts of a stranger's address are counted by."""

    def note(
        self,
        exc: Exception,
        transport: asyncio.BaseTransport | None,
        *,
        principal: str,
        method: str,
        route: str,
        request_id: str,
    ) -> None:
        """Keep an attempt that failed with `exc`, if that is about who asked."""
        if not isinstance(exc, ProblemError) or exc.code not in TRACED:
            return
        self._count += 1
        address = address_of(transport)
        attempt = RefusedAttempt(
            number=self._count,
            unix_ms=time.time_ns() // 1_000_000,
            code=exc.code,
            principal=principal,
            address=address,
            method=method,
            route=route,
            detail=exc.detail[:DETAIL_CHARS_MAX],
            request_id=request_id[:ID_CHARS_MAX],
        )
        if principal:
            self._of_principals.add(principal, attempt)
        else:
            self._of_strangers.add(self.origin_of(address), attempt)

    def newest(self, count: int, *, node_id: str = "") -> Refusals:
        """Return the newest `count` attempts, the newest first, and how many there have been in all."""
        known = sorted(chain(self._of_principals, self._of_strangers), key=attrgetter("number"), reverse=True)
        return Refusals(refusals=tuple(known[:count]), count=self._count, node_id=node_id)
