"""The program with tokens: it begins only with a good file, and takes new ones on open connections."""

import signal
from pathlib import Path

import pytest

import holdfast
from tests.unit.http_api.serving import token_line
from tests.unit.http_api.test_main import DEADLINE_S, _running, _start

pytestmark = pytest.mark.process

GOOD, OTHER = "g" * 40, "o" * 40


@pytest.mark.parametrize("content", [b"", b"worker junk read\n"])
def test_a_node_does_not_begin_with_a_wrong_file(tmp_path: Path, content: bytes) -> None:
    """It ends as with every wrong setting, before it touches its directory."""
    path = tmp_path / "tokens"
    path.write_bytes(content)
    flags = ("--data-dir", str(tmp_path / "data"), "--http", "127.0.0.1:0", "--tokens", str(path))
    with _start(*flags) as process:
        _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 2
    assert f"holdfast-node: tokens: {str(path)!r}: " in said
    assert not (tmp_path / "data").exists()


def test_a_new_file_counts_at_sighup(tmp_path: Path) -> None:
    """For a client that goes on; a wrong one changes nothing."""
    path = tmp_path / "tokens"
    path.write_bytes(token_line("worker", GOOD, "read,acquire@jobs"))
    with _running(tmp_path, "--tokens", str(path)) as program:
        url = program.wait_ready()
        with holdfast.SyncClient(url, token=GOOD) as client:
            client.acquire("jobs/1").release()
            path.write_bytes(b"junk")
            program.process.send_signal(signal.SIGHUP)
            assert "needs a hash" in program.wait_line(r"level=error .*event=tokens-not-read (.*)")
            client.acquire("jobs/1").release()
            path.write_bytes(token_line("worker", GOOD, "read@jobs"))
            program.process.send_signal(signal.SIGHUP)
            program.wait_line(r"event=tokens-read .*principals=(1)")
            client.get_lock("jobs/1")
            with pytest.raises(holdfast.AccessDenied):
                client.acquire("jobs/1")
        assert program.stop(signal.SIGTERM) == 0
        assert GOOD not in "".join(program.lines)


def test_a_node_takes_as_many_requests_as_it_is_told(tmp_path: Path) -> None:
    """Of each principal: the others are served."""
    path = tmp_path / "tokens"
    path.write_bytes(token_line("worker", GOOD, "read,acquire") + token_line("other", OTHER, "read,acquire"))
    with _running(tmp_path, "--tokens", str(path), "--requests-per-second", "1") as program:
        url = program.wait_ready()
        impatient = holdfast.SyncClient(url, token=GOOD, timeout=0.5, stream=False)
        with impatient as client, holdfast.SyncClient(url, token=OTHER) as other:
            client.acquire("jobs/1", renew=False)
            with pytest.raises(holdfast.Unavailable, match="accepts 1 requests a second"):
                client.acquire("jobs/2")
            with other.acquire("jobs/3") as hold:
                assert hold.is_valid
        assert program.stop(signal.SIGTERM) == 0
