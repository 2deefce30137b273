"""What the head of a request must not say, whatever the call. Its body has not been read then."""

from aiohttp import hdrs

from http_api.server.call import Call
from http_api.server.refusals import CallRefused


def check_head(call: Call) -> None:
    """Refuse what no call of ours may bring, whatever its path. Raises CallRefused."""
    headers = call.headers
    encoding = headers.get(hdrs.CONTENT_ENCODING)
    if encoding is not None and encoding.strip().lower() != "identity":
        # To unpack it would take as long, and as much memory, as its sender likes.
        detail = f"Content-Encoding: {encoding!r}; send the body as it is"
        raise CallRefused("unsupported-encoding", detail)
    expected = headers.get(hdrs.EXPECT)
    if expected and expected.strip().lower() != "100-continue":
        detail = f"Expect: {expected!r}; must be 100-continue"
        raise CallRefused("expectation-failed", detail, ends_connection=True)
