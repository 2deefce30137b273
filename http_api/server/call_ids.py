"""The ids of calls: a client brings one, in a header or as its command's, or the node makes one."""

import itertools
import re
import secrets
import urllib.parse
from typing import Final

from holdfast import wire

_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")

_prefix: Final = secrets.token_hex(6)
_numbers: Final = itertools.count(1)


def of_header(text: str) -> str:
    """Return the id that a header brings, "" if it has none that can be used."""
    is_fit = len(text) <= wire.HEADER_REQUEST_ID_CHARS_MAX and _VISIBLE.fullmatch(text)
    return text if is_fit else ""


def of_command(request_id: str) -> str:
    """Return the id that a call has as its command, a new one if that is none: it may not be checked yet."""
    return request_id if 0 < len(request_id) <= wire.HEADER_REQUEST_ID_CHARS_MAX else new()


def new() -> str:
    """Return an id for a call that brought none."""
    return f"{_prefix}-{next(_numbers):x}"


def as_header(call_id: str) -> str:
    """Return an id as a header can carry it: percent-encoded when it is not plain."""
    return call_id if _VISIBLE.fullmatch(call_id) else urllib.parse.quote(call_id)
