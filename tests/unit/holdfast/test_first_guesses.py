"""What people write who come from other libraries: it works, or the error says what to write here."""

import re
from typing import Any

import pytest

import holdfast
from holdfast._durations import to_s


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


@pytest.mark.parametrize("length", [True, False, "5", b"5", None])
def test_a_length_of_time_is_a_number(length: Any) -> None:
    """True is not one second, and text is not converted: the error names the argument."""
    with pytest.raises(TypeError, match=rf"^wait: {re.escape(repr(length))} is a .*; give seconds"):
        to_s(length, "wait")


def test_a_lock_does_not_wait_for_true() -> None:
    """`wait=True` would mean one second to us, and for ever to its author."""
    client: Any = holdfast.SyncClient("127.0.0.1:1")
    with pytest.raises(TypeError, match="wait: True is a bool"):
        client.lock("a", wait=True)
    with pytest.raises(ValueError, match="-1 is not a length of time; None waits for as long as it takes"):
        client.lock("a", wait=-1)
