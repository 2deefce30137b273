"""What people write who come from other libraries: it works, or the error says what to write here."""

import re
from typing import Any

import pytest

import holdfast


@pytest.fixture(params=[holdfast.SyncClient, holdfast.AsyncClient])
def lock(request: pytest.FixtureRequest) -> Any:
    """Return a lock of a client that is never asked for anything."""
    return request.param("127.0.0.1:1").lock("a")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timeout": 5}, "how long to wait for the lock is wait="),
        ({"blocking_timeout": 5}, "how long to wait for the lock is wait="),
        ({"wiat": 5}, "did you mean wait="),
    ],
)
def test_another_word_for_the_wait_is_answered_with_ours(
    lock: Any, options: dict[str, int], said: str
) -> None:
    """`acquire` of a lock says so as `lock()` and `client.acquire()` do."""
    with pytest.raises(
        TypeError, match=re.escape(f"acquire() has no argument {next(iter(options))!r}: {said}")
    ):
        lock.acquire(**options)


def test_a_reader_is_told_the_mode() -> None:
    """`shared=True` is an option of the command line; here it is a mode."""
    client: Any = holdfast.SyncClient("127.0.0.1:1")
    with pytest.raises(TypeError, match="mode='shared'"):
        client.lock("a", shared=True)
