"""One HTTP call on aiohttp's low-level server: the request as handlers see it, and the reply they give."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import hdrs, web
from aiohttp.abc import AbstractStreamWriter

from cluster import tracing
from cluster.tracing import Span
from holdfast import wire
from http_api.server import answer_bytes, call_ids
from http_api.server.connection_limits import Place
from http_api.server.refusals import CallRefused
from http_api.server.request_rates import RequestRates
from lockapi.gateway import Gateway

_NO_QUERY: Final[dict[str, str]] = {}

_FORM: Final = "application/x-www-form-urlencoded"
"""The media type that curl -d gives every body."""

UNDRAINED_BYTES_MAX: Final = 64 * 1024
"""Bytes of answers that may be buffered before the client has to read."""
_DROPPED_BYTES_MAX: Final = 1 << 20
"""Bytes of a body that nobody reads which are taken: a client that only writes would lose the answer."""
_DROP_S: Final = 2.0
"""Seconds that this may take."""
_UNREAD_S: Final = 75.0
"""Seconds that a client has to read them."""


class Call(web.BaseRequest):
    """A request. `path_value` is the part of the path in braces, `query_values` the query, both decoded."""

    path_value: str = ""
    query_values: Mapping[str, str] = _NO_QUERY
    timeout_s: float = 0.0
    command_id: str = ""
    place: Place
    """That of its connection."""
    admit_again: Callable[[], Gateway]
    """Returns the gateway of its caller as of now, or raises Unauthenticated: for calls that last."""
    rates: RequestRates
    """What calls that last take from for what is asked on them."""
    span: Span | None = None
    """What is recorded of it, if anything is."""
    _id: str = ""

    @property
    def trace_headers(self) -> tuple[str, str]:
        """Return what the headers say of its trace: "" for `traceparent` unless there is one and no more."""
        parents = self.headers.getall(tracing.HEADER_PARENT, ())
        states = self.headers.getall(tracing.HEADER_STATE, ())
        return parents[0] if len(parents) == 1 else "", ",".join(states)

    @property
    def trace_id(self) -> str:
        """Return the id of the trace of which it is a part, "" if there is none."""
        return tracing.trace_id_of(self.span, self.trace_headers[0])

    @property
    def id(self) -> str:
        """Return the id of the call: its header's, else its body's `request_id`, else one made here."""
        if not self._id:
            header = self.headers.get(wire.HEADER_REQUEST_ID, "")
            self._id = call_ids.of_header(header) or call_ids.of_command(self.command_id)
        return self._id

    @property
    def id_text(self) -> str:
        """Return the id as a header can carry it."""
        return call_ids.as_header(self.id)

    @property
    def is_of_browser(self) -> bool:
        """Whether a person will see the answer: programs do not ask for HTML."""
        return "text/html" in self.headers.get(hdrs.ACCEPT, "")

    def read_timeout(self, default_s: float) -> None:
        """Set `timeout_s` from the header, or to `default_s`. Raises CallRefused."""
        header = self.headers.get(wire.HEADER_TIMEOUT_MS)
        self.timeout_s = default_s if header is None else timeout_s_of(header)

    async def body_bytes(self) -> bytes:
        """Return the JSON body, b"" if there is none. Raises CallRefused when it is too large or not JSON."""
        payload = self.content
        body = payload.read_nowait() if payload.is_eof() else await self._wait_for_body()
        if len(body) > wire.BODY_BYTES_MAX:
            raise _too_large()
        content_type = self.headers.get(hdrs.CONTENT_TYPE)
        if body and content_type is not None and content_type != wire.JSON:
            media_type = content_type.partition(";")[0].strip().lower()
            # A form sent by a web page names its origin; without one this is curl -d, which means JSON here.
            is_curl = media_type == _FORM and hdrs.ORIGIN not in self.headers
            if media_type != wire.JSON and not is_curl:
                detail = f"Content-Type: {content_type!r}; must be {wire.JSON}"
                raise CallRefused("invalid-request", detail)
        return body

    async def _wait_for_body(self) -> bytes:
        """Return a body that has not arrived in one piece with its head."""
        if (self.content_length or 0) > wire.BODY_BYTES_MAX:
            raise _too_large()
        if self.headers.get(hdrs.EXPECT, "").lower() == "100-continue":
            await self.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self.read()
        except TimeoutError:
            raise CallRefused(
                "invalid-request", "body: did not arrive in time", ends_connection=True
            ) from None
        except web.HTTPRequestEntityTooLarge:
            raise _too_large() from None
        except web.RequestPayloadError as exc:
            detail = f"body: cannot be read: {exc}"
            raise CallRefused("invalid-request", detail, ends_connection=True) from None


def timeout_s_of(header: str) -> float:
    """Return the seconds that a client gives a call. Raises CallRefused."""
    is_number = header.isascii() and header.isdigit() and len(header) <= len(str(wire.TIMEOUT_MS_MAX))
    if not is_number or not wire.TIMEOUT_MS_MIN <= int(header) <= wire.TIMEOUT_MS_MAX:
        allowed = f"must be {wire.TIMEOUT_MS_MIN} to {wire.TIMEOUT_MS_MAX}"
        raise CallRefused("invalid-request", f"{wire.HEADER_TIMEOUT_MS}: {header!r}; {allowed}")
    return int(header) / 1000


def _too_large() -> CallRefused:
    detail = f"body: more than {wire.BODY_BYTES_MAX} bytes"
    return CallRefused("payload-too-large", detail, ends_connection=True)


class Reply(web.StreamResponse):
    """An answer: status, bytes, and the header lines that only some answers have."""

    def __init__(
        self, body: bytes, status: int = 200, content_type: str = wire.JSON, headers: str = ""
    ) -> None:
        """Make an answer. `headers` are complete lines, each with its line end."""
        super().__init__(status=status)
        self._bytes = body
        self._type = content_type
        self._lines = headers

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Write head and body at once."""
        assert isinstance(request, Call)
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the client is gone")
        if self._keep_alive is None:
            self._keep_alive = request.keep_alive and request.version >= (1, 1)
        head = self._head_bytes(request, answer_bytes.length_lines(self._bytes, is_kept=self._keep_alive))
        transport.write(head if request.method == "HEAD" else head + self._bytes)
        self._eof_sent = True
        if transport.get_write_buffer_size() > UNDRAINED_BYTES_MAX:
            await until_read(request.writer, request.place)
        if not request.content.is_eof():
            await _drop_body(request)
        request.place.rest()
        return None

    def _head_bytes(self, call: Call, lines: str) -> bytes:
        """Return status line and headers, `lines` among them."""
        return answer_bytes.head(self.status, self._type, f"{self._lines}{lines}", call.id)

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: the answer went out as a whole."""
        assert not data


async def _drop_body(call: Call) -> None:
    """Take some of a body that nobody reads, so that its client sees the answer and not a broken pipe."""
    left = _DROPPED_BYTES_MAX
    with contextlib.suppress(TimeoutError, web.RequestPayloadError):
        async with asyncio.timeout(_DROP_S):
            while left > 0 and not call.content.is_eof():
                left -= len(await call.content.readany())


async def until_read(writer: AbstractStreamWriter, place: Place) -> None:
    """Wait until the client has read most of what waits for it, or end its connection."""
    try:
        async with asyncio.timeout(_UNREAD_S):
            await writer.drain()
    except TimeoutError:
        place.unread()
        raise ConnectionResetError("the client does not read") from None
