"""Attempts of a library that may have had an effect are told from those that surely had none."""

from typing import Any

import pytest
import redis

from lab.chaos.redis_client import CountingRetry, may_have_effect


@pytest.mark.parametrize(
    ("error", "may"),
    [
        (redis.TimeoutError("Timeout reading from 127.0.0.1:1"), True),
        (redis.ConnectionError("Connection closed by server."), True),
        (ConnectionResetError(), True),
        (redis.ConnectionError("Error 111 connecting to 127.0.0.1:1. Connection refused."), False),
        (redis.exceptions.BusyLoadingError("no-leader"), False),
        (redis.ResponseError("unknown command"), False),
    ],
)
def test_what_may_have_an_effect(error: Exception, *, may: bool) -> None:
    """All that was sent and not answered."""
    assert may_have_effect(error) == may


def test_each_attempt_is_counted_that_may_have_had_one() -> None:
    """Beside the one that was answered; on all connections, each of which copies the retries."""
    errors = [redis.ConnectionError("reset"), redis.exceptions.BusyLoadingError("no-leader")]
    retry = CountingRetry()
    connection: Any = redis.Connection(retry=retry)  # type: ignore[no-untyped-call]

    def do() -> str:
        if errors:
            raise errors.pop()
        return "done"

    assert connection.retry.call_with_retry(do, lambda _: None) == "done"
    assert retry.lost_count == 1
