"""`holdfast token`: tokens go from file to file, and lines are what nodes read."""

import io
import json
import stat
from pathlib import Path

import pytest

from holdfast import token_lines
from holdfast.cli import main as command_line


def run(*words: str) -> int:
    """Run a command line; return its exit code."""
    with pytest.raises(SystemExit) as ended:
        command_line.main(["token", *words])
    return int(str(ended.value.code))


def test_a_new_token_is_written_to_a_file_and_its_line_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The token itself is shown nowhere, and readable for its owner only."""
    path = tmp_path / "worker.token"
    words = ("new", "worker-7", "read,acquire@jobs", "read", "--until", "2030-01-31", "--out", str(path))
    assert run(*words) == 0
    said = capsys.readouterr()
    token = path.read_text().strip()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert token_lines.is_token(token)
    assert len(token) >= 43
    assert token not in said.out + said.err
    (line,) = token_lines.parse(said.out.encode())
    assert line.digests == (token_lines.digest(token.encode()),)
    assert (line.name, sorted(line.rights)) == ("worker-7", ["", "jobs"])
    assert run(*words) == 2
    assert "is there already" in capsys.readouterr().err
    assert path.read_text().strip() == token


def test_no_two_tokens_are_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are random."""
    for name in ("a", "b"):
        assert run("new", name, "read", "--out", str(tmp_path / name)) == 0
    lines = token_lines.parse(capsys.readouterr().out.encode())
    assert lines[0].digests != lines[1].digests


@pytest.mark.parametrize(
    "words",
    [("worker", "write"), ("worker", "metrics@jobs"), ("a b", "read"), ("worker", ""),
     ("worker", "read@jobs/"), ("worker", "read", "--until", "soon")],
)  # fmt: skip
def test_a_wrong_line_leaves_no_token_behind(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is made before the line is known to be right."""
    assert run("new", *words, "--out", str(tmp_path / "token")) == 2
    assert not (tmp_path / "token").exists()
    said = capsys.readouterr()
    assert said.out == ""
    assert "see `holdfast token new --help`" in said.err


def test_a_token_from_elsewhere_gets_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It comes from standard input: arguments are shown by ps."""
    token = "from-a-vault-CANARY".ljust(40, "x")
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{token}\n"))
    assert run("hash", "worker", "acquire@jobs") == 0
    said = capsys.readouterr()
    (line,) = token_lines.parse(said.out.encode())
    assert line.digests == (token_lines.digest(token.encode()),)
    monkeypatch.setattr("sys.stdin", io.StringIO("CANARY"))
    assert run("hash", "worker", "acquire@jobs") == 2
    said = capsys.readouterr()
    assert "a token has 32 to 256" in said.err
    assert "CANARY" not in said.err


def test_a_file_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In words, with what is over, and what others can do with it; a wrong one as a node would say it."""
    path = tmp_path / "tokens"
    path.write_text(f"a sha256:{'0a' * 32} read,acquire@jobs none until=2020-01-01\nb cert:x metrics\n")
    path.chmod(0o600)
    assert run("check", str(path)) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "a: nothing everywhere; read, acquire below 'jobs'; HAS ENDED at 2020-01-02 00:00 UTC",
        "b: metrics everywhere",
        "2 principals",
    ]
    assert said.err == ""
    assert run("check", str(path), "-o", "jsonl") == 0
    first, second = json.loads(capsys.readouterr().out)["principals"]
    assert first == {"name": "a", "rights": {"": [], "jobs": ["read", "acquire"]}, "ends_at_s": 1577923200}
    assert second == {"name": "b", "rights": {"": ["metrics"]}, "ends_at_s": None}
    path.chmod(0o644)
    assert run("check", str(path)) == 0
    assert "other users can read or write" in capsys.readouterr().err
    path.chmod(0o600)
    path.write_text(f"a sha256:{'0a' * 32} none@x/y read@x none@z/z\n")
    assert run("check", str(path)) == 0
    assert capsys.readouterr().err.splitlines() == [
        "holdfast: warning: a: none@z/z takes nothing away: no shorter prefix gives any right there"
    ]
    path.write_text("a b c")
    assert run("check", str(path)) == 2
    assert "line 1: the second word must be hashes" in capsys.readouterr().err
    assert run("check", str(tmp_path / "none")) == 119
