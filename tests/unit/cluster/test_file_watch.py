"""The loop that looks at files: at intervals, when asked, and whatever goes wrong."""

import asyncio
from pathlib import Path

import pytest

from cluster.config_secrets import Secrets
from cluster.file_watch import FileWatch, signature
from cluster.peers import secret_watch
from cluster.peers.secret_watch import SecretWatch
from tests.unit.http_api.serving import until

CANARY = "canary-4711"


class Clumsy(FileWatch):
    """Fails as told, in ways that nobody foresaw."""

    def __init__(self, interval_s: float) -> None:
        super().__init__("test")
        self._interval_s = interval_s
        self.failure: Exception | None = None
        self.looks: list[bool] = []

    @property
    def interval_s(self) -> float:
        """Return the seconds between two looks."""
        return self._interval_s

    def look(self, *, is_asked: bool = False) -> None:
        """Note the look."""
        self.looks.append(is_asked)
        if self.failure is not None:
            raise self.failure


async def looked(watch: Clumsy) -> None:
    """Wait for three more looks."""
    count = len(watch.looks)
    await until(lambda: len(watch.looks) >= count + 3)


async def test_what_nobody_foresaw_does_not_end_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    """It is told once, until it is something else or is over, and never quoted: it may have read a secret."""
    watch = Clumsy(0.001)
    watch.failure = TypeError(CANARY)
    watch.start()
    await looked(watch)
    assert (
        caplog.text.count("event=file-watch-failed files=test error='TypeError at test_file_watch.py:") == 1
    )
    watch.failure = LookupError(CANARY)
    await looked(watch)
    assert caplog.text.count("event=file-watch-failed files=test error='LookupError") == 1
    watch.failure = None
    await looked(watch)
    watch.failure = LookupError(CANARY)
    await looked(watch)
    assert caplog.text.count("error='LookupError") == 2
    await watch.stop()
    assert CANARY not in caplog.text


async def test_who_asks_is_told_again(caplog: pytest.LogCaptureFixture) -> None:
    """At SIGHUP an operator waits for a line."""
    watch = Clumsy(1000.0)
    watch.failure = TypeError(CANARY)
    watch.start()
    for times in (1, 2):
        watch.read_now()
        await until(lambda: len(watch.looks) == times)  # noqa: B023 - waited for within the loop
        assert caplog.text.count("event=file-watch-failed") == times
    await watch.stop()
    assert watch.looks == [True, True]


async def test_a_watch_is_stopped_as_often_as_one_likes() -> None:
    """Also one that was never started. Nothing is left that could look."""
    watch = Clumsy(0.001)
    await watch.stop()
    watch.start()
    await looked(watch)
    await watch.stop()
    await watch.stop()
    assert [task for task in asyncio.all_tasks() if task.get_name() == "watch-test"] == []


async def test_the_secret_is_read_after_a_failure_that_nobody_foresaw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next file that differs is used."""
    monkeypatch.setattr(secret_watch, "LOOK_S", 0.001)
    used: list[Secrets] = []

    def use(secrets: Secrets) -> None:
        used.append(secrets)
        if len(used) == 1:
            raise RuntimeError(CANARY)

    path = tmp_path / "secret"
    watch = SecretWatch(path, Secrets(b"the first one of all"), use)
    watch.start()
    path.write_bytes(b"the second one, unlucky")
    await until(lambda: "error='RuntimeError at" in caplog.text)
    path.write_bytes(b"the third one of them all")
    await until(lambda: len(used) == 2)
    await watch.stop()
    assert used[1] == Secrets(b"the third one of them all")
    assert CANARY not in caplog.text


def test_a_signature_changes_with_its_file(tmp_path: Path) -> None:
    """Also when there is none any more."""
    path = tmp_path / "file"
    assert signature(path) is None
    path.write_bytes(b"1")
    first = signature(path)
    path.write_bytes(b"12")
    assert None is not first != signature(path)
