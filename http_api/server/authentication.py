"""Who calls: a bearer token, or the certificate of the connection, becomes a principal.

Without principals everybody may do everything, and nothing here looks at a call. With them, what a connection
has proven is kept with it, until it ends or proves something else, until the principals are exchanged, or the
time of this one is over.
"""

import asyncio
import hmac
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from aiohttp import hdrs

from cluster.observing.samples import Sample, counter, gauge
from holdfast import token_lines, wire
from holdfast.token_lines import Line
from http_api.server.call import Call
from http_api.server.connection_limits import Place
from http_api.server.refusal_trace import RefusalTrace
from lockapi.gateway import Gateway
from lockapi.problems import ProblemError
from lockapi.rights import Principal, Rights

_INDEX_BYTES: Final = 8
"""Bytes of a hash by which it is looked up; the others are compared in constant time."""


class Unauthenticated(ProblemError):
    """A call of somebody who is not known. `reason` is counted."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__("unauthenticated", detail)
        self.reason = reason


class Proven:
    """What a connection has proven: by these credentials, to be this principal of those in force then."""

    __slots__ = ("credentials", "gateway", "principals")

    # No tuple, whose repr would show the token.
    def __init__(self, credentials: bytes, principals: "KnownPrincipals", gateway: Gateway) -> None:
        self.credentials, self.principals, self.gateway = credentials, principals, gateway


class KnownPrincipals:
    """All principals of a tokens file, by what proves them. Read only."""

    def __init__(self, gateway: Gateway, lines: Iterable[Line]) -> None:
        """Let each principal act through a gateway of its own."""
        self._by_digest: dict[bytes, tuple[bytes, Gateway]] = {}
        self._by_certificate: dict[str, Gateway] = {}
        self.count = 0
        for line in lines:
            own = gateway.of(Principal(line.name, Rights(line.rights), line.ends_at_s))
            self.count += 1
            for digest in line.digests:
                self._by_digest[digest[:_INDEX_BYTES]] = digest, own
            for identity in line.certificates:
                self._by_certificate[identity] = own

    @property
    def has_certificates(self) -> bool:
        """Whether certificates prove anybody."""
        return bool(self._by_certificate)

    def of_token(self, token: bytes) -> Gateway | None:
        """Return the gateway of the principal that has this token.

        How long this takes tells nothing of a token that somebody guesses at: what is looked up is a part of
        its hash, which nobody can steer; and 256 random bits are not guessed in any case.
        """
        digest = token_lines.digest(token)
        known = self._by_digest.get(digest[:_INDEX_BYTES])
        if known is None or not hmac.compare_digest(known[0], digest):
            return None
        return known[1]

    def of_certificate(self, certificate: Mapping[str, Any]) -> Gateway | None:
        """Return the gateway of the principal that a certificate names, by a URI or its common name."""
        uris = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
        subject = [pair for part in certificate.get("subject", ()) for pair in part]
        names = [value for key, value in subject if key == "commonName"]
        for identity in (*uris, *names):
            if identity in self._by_certificate:
                return self._by_certificate[identity]
        return None


class Authentication:
    """Knows the callers of one server. `principals` may be exchanged at any time; None lets everybody in."""

    def __init__(self, gateway: Gateway, others: Callable[[], Iterable[Sample]] = tuple) -> None:
        """Let everybody act through `gateway`, until there are principals. `others` are more samples."""
        self.gateway = gateway
        self.trace = RefusalTrace()
        """The newest attempts that were refused because of who asked."""
        self._others = others
        self.principals: KnownPrincipals | None = None
        self._refused: Counter[str] = Counter()

    def of_call(self, call: Call) -> Gateway:
        """Return the gateway through which a call may act. Raises Unauthenticated."""
        if self.principals is None and not call.place.is_revoked:
            return self.gateway
        try:
            return self.caller(_credentials(call), call.place, call.transport)
        except Unauthenticated as refused:
            self._refused[refused.reason] += 1
            raise

    def caller(self, credentials: bytes, place: Place, transport: Any) -> Gateway:
        """Return the gateway of who has these credentials, b"" for none. Raises Unauthenticated."""
        if place.is_revoked:
            raise Unauthenticated("revoked", "the certificate of this client is revoked")
        principals = self.principals
        if principals is None:
            return self.gateway
        kept: Proven | None = place.proven
        if (
            kept is not None
            and kept.principals is principals
            and hmac.compare_digest(kept.credentials, credentials)
        ):
            gateway = kept.gateway
        else:
            gateway = self._prove(principals, credentials, transport)
            place.proven = Proven(credentials, principals, gateway)
            place.belongs_to(gateway.principal.name)
        if gateway.principal.has_ended:
            raise Unauthenticated("ended", f"{gateway.principal.name!r} has expired (until=)")
        return gateway

    @property
    def asks_for_tokens(self) -> bool:
        """Return whether callers have to say who they are."""
        return self.principals is not None

    def note_refused(
        self, exc: Exception, transport: asyncio.BaseTransport | None, *, principal: str, command: str
    ) -> None:
        """Count and keep what a client of Redis was refused because of who asked."""
        if isinstance(exc, Unauthenticated):
            self._refused[exc.reason] += 1
        self.trace.note(exc, transport, principal=principal, method="REDIS", route=command, request_id="")

    def _prove(self, principals: KnownPrincipals, credentials: bytes, transport: Any) -> Gateway:
        if credentials:
            found = principals.of_token(credentials)
            if found is None:
                raise Unauthenticated("unknown", "no principal has this token")
            return found
        tls = transport.get_extra_info("ssl_object") if transport and principals.has_certificates else None
        if tls is not None and (certificate := tls.getpeercert()):
            found = principals.of_certificate(certificate)
            if found is not None:
                return found
        raise Unauthenticated(
            "missing",
            f"send a token, in the header {wire.HEADER_AUTHORIZATION}: {wire.BEARER} TOKEN",
        )

    def samples(self) -> Iterator[Sample]:
        """Yield what has been counted."""
        if self.principals is None:
            return
        yield gauge("http_principals", "Principals of the tokens file in force.", self.principals.count)
        text = "Calls of unknown callers, by reason."
        for reason, count in sorted(self._refused.items()):
            yield counter("http_unauthenticated_total", text, count, reason=reason)
        yield from self._others()


def _credentials(call: Call) -> bytes:
    """Return the token of a call, b"" if it has none. Raises Unauthenticated."""
    headers = call.headers.getall(hdrs.AUTHORIZATION, ())
    if not headers:
        return b""
    scheme, _, text = headers[0].partition(" ")
    token = text.strip(" ")
    if len(headers) > 1 or scheme.lower() != wire.BEARER.lower() or not token_lines.is_token(token):
        raise Unauthenticated(
            "malformed",
            f"{wire.HEADER_AUTHORIZATION}: must be given once, as {wire.BEARER} and a token of"
            f" {token_lines.TOKEN_CHARS_MIN} to {token_lines.TOKEN_CHARS_MAX} visible ASCII characters",
        )
    return token.encode("ascii")
