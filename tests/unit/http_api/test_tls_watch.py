"""The TLS files of a running node: new ones are taken, wrong ones change nothing, old ones are told of."""

import logging
import time
from pathlib import Path
from typing import Any

import pytest

from cluster.tls import watch as watch_module
from cluster.tls.files import TlsUnusable
from http_api.server import tls_context
from http_api.tls_watch import TlsWatch
from tests.support.certificates import Certificates
from tests.unit.http_api.serving import until

DAY_S = 86_400


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    """Make an authority."""
    return Certificates(tmp_path)


@pytest.fixture(autouse=True)
def _all_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def values(watch: TlsWatch) -> dict[str, float]:
    """Return the samples by name and label."""
    return {
        "".join([name.removeprefix("holdfast_http_tls_"), *labels.values()]): value
        for name, _, _, labels, value in watch.door.samples()
    }


def test_files_that_have_not_changed_are_left_alone(certificates: Certificates) -> None:
    """A look costs a few system calls."""
    watch = TlsWatch(certificates.files())
    context = watch.door.context
    watch.look()
    assert watch.door.context is context
    watch.look(is_asked=True)
    assert watch.door.context is not context


def test_new_files_are_taken(certificates: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    """From then on for all new connections."""
    watch = TlsWatch(certificates.files())
    context, end_s = watch.door.context, values(watch)["certificate_end_secondsnode"]
    certificates.node(days=60)
    watch.look()
    assert watch.door.context is not context
    assert values(watch)["certificate_end_secondsnode"] > end_s
    assert "event=tls-read" in caplog.text


def test_what_a_list_has_lost_counts_until_the_next_look(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """Who writes it anew empties it first; one that stays as it is counts, at once if somebody asks."""
    path = certificates.directory / "revoked"
    path.write_text("A1\nB2\n")
    watch = TlsWatch(certificates.files(wants_clients=True)._replace(revoked=path))

    def counts() -> set[int]:
        return set(watch.door._revoked)

    path.write_text("")
    watch.look()
    assert counts() == {0xA1, 0xB2}
    assert "event=tls-revoked-shorter" in caplog.text
    path.write_text("A1\nC3\n")
    watch.look()
    assert counts() == {0xA1, 0xB2, 0xC3}, "what is new counts at once"
    watch.look()
    assert counts() == {0xA1, 0xC3}
    path.write_text("")
    watch.look(is_asked=True)
    assert counts() == set()


def test_the_list_of_what_is_revoked_is_read_again(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """When it has changed; a wrong one, or none, changes nothing: what was revoked stays so."""
    path, lost = certificates.directory / "revoked", certificates.client("lost")
    files = certificates.files(wants_clients=True)._replace(revoked=path)
    with pytest.raises(TlsUnusable, match=r"^tls_revoked: .* cannot be read"):
        TlsWatch(files)
    path.write_text("")
    watch = TlsWatch(files)
    assert watch.door._revoked == frozenset()
    path.write_text(f"{lost.serial:X}\n")
    watch.look()
    assert watch.door._revoked == {lost.serial}
    for content in ("lost", None):
        if content is None:
            path.unlink()
        else:
            path.write_text(content)
        watch.look()
        assert watch.door._revoked == {lost.serial}
        assert values(watch)["files_refused"] == 1
    assert caplog.text.count('event=tls-not-read reason="tls_revoked: ') == 2


def test_who_has_stolen_a_key_is_shut_out_although_a_renewal_went_wrong(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """The list counts whatever is wrong with the files beside it."""
    path, lost = certificates.directory / "revoked", certificates.client("lost")
    path.write_text("")
    files = certificates.files(wants_clients=True)._replace(revoked=path)
    watch = TlsWatch(files)
    context = watch.door.context
    files.key.write_text("junk")
    path.write_text(f"{lost.serial:X}\n")
    watch.look()
    assert watch.door._revoked == {lost.serial}
    assert watch.door.context is context
    assert values(watch)["files_refused"] == 1
    assert "what is revoked is what the list says now" in caplog.text
    path.write_text("lost")
    watch.look()
    assert watch.door._revoked == {lost.serial}


def test_wrong_files_change_nothing(certificates: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    """They are told once, seen in a metric, and tried again: half of them may be still to come."""
    files = certificates.files(wants_clients=True)
    watch = TlsWatch(files)
    context, good = watch.door.context, files.key.read_bytes()
    files.key.write_text("junk")
    for _ in range(3):
        watch.look()
    assert watch.door.context is context
    assert values(watch)["files_refused"] == 1
    assert caplog.text.count("event=tls-not-read") == 1
    watch.look(is_asked=True)
    assert caplog.text.count("event=tls-not-read") == 2
    files.key.unlink()
    watch.look()
    assert caplog.text.count("event=tls-not-read") == 3
    files.key.write_bytes(good)
    watch.look()
    assert values(watch)["files_refused"] == 0
    assert watch.door.context is not context


def test_the_end_is_told_once_a_day(certificates: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    """From two weeks before."""
    now_s = time.time()
    watch = TlsWatch(certificates.files(), lambda: now_s)
    watch.look()
    told = []
    for _ in range(35):
        now_s += DAY_S
        caplog.clear()
        watch.look()
        watch.look()
        told.append(caplog.text.count("event=tls-certificate-ends"))
    assert told == [0] * 15 + [1] * 20
    assert "has ended" in caplog.text


def test_authorities_that_have_all_ended_let_nobody_in(certificates: Certificates) -> None:
    """So a node does not begin with them."""
    files = certificates.files(wants_clients=True)
    with pytest.raises(TlsUnusable, match=r"tls_client_ca.*has expired"):
        TlsWatch(files, lambda: time.time() + 4000 * DAY_S)


async def test_a_task_looks_by_itself_and_when_asked(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a minute, and at SIGHUP."""
    watch = TlsWatch(certificates.files())
    watch.start()
    context = watch.door.context
    watch.read_now()
    await until(lambda: watch.door.context is not context)
    monkeypatch.setattr(watch_module, "LOOK_S", 0.01)
    watch.read_now()  # the look under way still waits for a minute
    certificates.node()
    read = watch.door.context
    await until(lambda: watch.door.context is not read)
    read = watch.door.context
    certificates.node(days=2)
    await until(lambda: watch.door.context is not read)
    await watch.stop()
    await watch.stop()


async def test_a_key_that_others_can_read_is_told_of(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """Like other settings that are hardly intended."""
    files = certificates.files()
    for mode, count in {0o600: 0, 0o640: 1, 0o644: 2}.items():
        files.key.chmod(mode)
        watch = TlsWatch(files)
        watch.start()
        await watch.stop()
        assert caplog.text.count("event=config-warning") == count


async def test_new_files_are_taken_after_a_failure_that_nobody_foresaw(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The watch goes on, and says that something is wrong."""
    monkeypatch.setattr(watch_module, "LOOK_S", 0.001)
    watch = TlsWatch(certificates.files())
    context, load = watch.door.context, tls_context.load

    def break_once(*_: Any) -> Any:
        monkeypatch.setattr(tls_context, "load", load)
        raise TypeError

    monkeypatch.setattr(tls_context, "load", break_once)
    watch.start()
    watch.read_now()
    await until(lambda: "event=file-watch-failed files=tls error='TypeError" in caplog.text)
    assert watch.door.context is context
    certificates.node()
    await until(lambda: watch.door.context is not context)
    await watch.stop()
