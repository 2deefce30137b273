"""What the lab asks over the stream, and what an answer is over HTTP: the checkers know only the latter."""

from typing import Any

import pytest

from lab.chaos.http_client import Attempt
from lab.chaos.stream_client import _attempt, _command


@pytest.mark.parametrize(
    ("kind", "body", "command"),
    [
        (
            "acquire",
            {"name": "a", "ttl_ms": 50, "owner": "o"},
            [4, "a", "exclusive", "", "", 50, "o", 0],
        ),
        ("renew", {"hold_id": "h"}, [6, "h"]),
        ("release", {"hold_id": "h"}, [7, "h"]),
    ],
)
def test_a_command_asks_what_a_body_does(kind: str, body: dict[str, Any], command: list[Any]) -> None:
    """As docs/stream.md numbers them."""
    assert _command(kind, body) == command


@pytest.mark.parametrize(
    ("result", "fields"),
    [
        (
            [4, "h", 7, "a", "exclusive", 50, "o", "node"],
            {"hold_id": "h", "token": 7, "mode": "exclusive", "expires_in_ms": 50},
        ),
        ([6, 7, 50], {"token": 7, "expires_in_ms": 50}),
        ([7, []], {}),
    ],
)
def test_a_result_is_an_answer(result: list[Any], fields: dict[str, Any]) -> None:
    """With the revision of its message."""
    assert _attempt(result, 9) == Attempt("ok", "", fields | {"revision": 9})


@pytest.mark.parametrize(
    ("result", "holders"),
    [
        ([11, "lock-held"], []),
        ([11, "lock-held", ""], []),
        ([11, "lock-held", "", [["o", "shared", 7, 50]], 1], [{"owner": "o", "mode": "shared", "token": 7}]),
    ],
)
def test_a_result_may_be_a_refusal(result: list[Any], holders: list[dict[str, Any]]) -> None:
    """Fields at the end may be missing."""
    assert _attempt(result, 9) == Attempt("refused", "lock-held", {"code": "lock-held", "holders": holders})
