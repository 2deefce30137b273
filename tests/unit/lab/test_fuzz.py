"""The targets of scripts/fuzz without its fuzzer: good bytes are taken, spoiled ones are taken or refused."""

import importlib.util
from pathlib import Path
from random import Random

import pytest

from cluster.peers import handshake
from lab.fuzz import command as fuzz
from lab.fuzz.targets import TARGETS

SPOILED = 150
NESTED = b"\x91" * 3000 + b"\xc0"
"""Deeper than any decoder goes."""


def spoiled(data: bytes, choices: Random) -> bytes:
    """Return bytes with some of them changed, left out, or more behind them."""
    changed = bytearray(data)
    for _ in range(choices.randrange(1, 5)):
        place = choices.randrange(len(changed) + 1)
        match choices.randrange(3):
            case 0:
                changed[place : place + 1] = choices.randbytes(1)
            case 1:
                del changed[place : place + choices.randrange(1, 9)]
            case _:
                changed[place:place] = choices.randbytes(choices.randrange(1, 9))
    return bytes(changed)


@pytest.mark.parametrize("name", TARGETS)
def test_no_bytes_break_a_target(name: str) -> None:
    """Each takes good bytes, and refuses others by its own errors only: empty, nested and spoiled ones."""
    target, choices = TARGETS[name], Random(name)
    examples = [*target.examples()]
    assert sum(target.feed(example) for example in examples) > 0
    for data in (b"", b"\0", b"\xff" * 40, NESTED):
        target.feed(data)
    for _ in range(SPOILED):
        target.feed(spoiled(choices.choice(examples), choices))


def test_a_file_is_fed_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A finding, or any file, is fed to its target without a fuzzer: it is taken, refused, or raises."""
    file = tmp_path / "finding"
    file.write_bytes(next(iter(TARGETS["tokens"].examples())))
    assert fuzz.main(["--target", "tokens", "--replay", str(file)]) == 0
    file.write_bytes(b"what?")
    assert fuzz.main(["--target", "tokens", "--replay", str(file)]) == 0
    assert capsys.readouterr().out.split() == ["taken", "refused"]


def test_what_a_decoder_must_not_raise_is_not_caught(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only refusals are: everything else goes through to the fuzzer, or to whoever feeds a file."""

    def broken(_data: bytes) -> handshake.Handshake:
        raise IndexError("a defect")

    monkeypatch.setattr(handshake, "decode", broken)
    (tmp_path / "any").write_bytes(b"x")
    with pytest.raises(IndexError):
        fuzz.main(["--target", "peer-handshake", "--replay", str(tmp_path / "any")])


def test_without_the_fuzzer_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The project does not depend on it, and need not have it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert fuzz.main(["--minutes", "0.1"]) == fuzz.USAGE
    assert "pip install atheris" in capsys.readouterr().err


def test_the_targets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """By the names that --target takes; another one is wrong usage."""
    assert fuzz.main(["--list"]) == 0
    assert capsys.readouterr().out.split() == [*TARGETS]
    with pytest.raises(SystemExit) as ended:
        fuzz.main(["--target", "nothing", "--list"])
    assert ended.value.code == fuzz.USAGE
