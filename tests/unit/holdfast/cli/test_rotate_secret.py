"""The files of an exchange: what they say, what comes next, and that an interrupted one goes on."""

import stat
from itertools import pairwise
from pathlib import Path

import pytest

from cluster import config_secrets
from holdfast import InvalidRequest
from holdfast.cli.rotate_secret import Phase, after, furthest, phase_of, write

OLD, NEW = b"an-old-secret-of-the-cluster", b"a-new-secret-of-the-cluster"
STEPS = (Phase(OLD), Phase(OLD, NEW, "next"), Phase(NEW, OLD, "previous"), Phase(NEW))


def test_each_step_follows_the_one_before() -> None:
    """From one secret to the other, with both accepted in between."""
    for before, behind in pairwise(STEPS):
        assert after(before, NEW) == behind


@pytest.mark.parametrize("phase", STEPS)
def test_nodes_read_what_the_command_writes(phase: Phase, tmp_path: Path) -> None:
    """The two do not share code: this is the test that they share a format."""
    path = tmp_path / "secret"
    path.write_bytes(b"anything")
    path.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(path)
    write(link, phase)
    read = config_secrets.read(path)
    assert (read.current, read.other, read.step) == phase
    assert phase_of(path.read_bytes()) == phase
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, path]


def test_an_interrupted_step_is_finished() -> None:
    """Some files have the next step already: the others follow, whichever they are."""
    for before, behind in pairwise(STEPS):
        for phases in ([before, behind, behind], [behind, before], [behind, behind]):
            assert furthest(phases) == behind


@pytest.mark.parametrize(
    "phases",
    [[STEPS[0], STEPS[2]], [STEPS[0], STEPS[3]], [STEPS[0], STEPS[1], STEPS[2]], [STEPS[1], STEPS[3]]],
)
def test_files_of_two_clusters_are_not_mixed(phases: list[Phase]) -> None:
    """They are left alone."""
    with pytest.raises(InvalidRequest, match="different secrets"):
        furthest(phases)


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"current: " + OLD, b"current: a\nlast: b", b"\x00" * 32, b"two\nlines-of-a-secret"],
)
def test_what_is_no_secret_file_is_refused(content: bytes) -> None:
    """Binary ones, too: they cannot stand in a line."""
    with pytest.raises(InvalidRequest) as refused:
        phase_of(content)
    assert OLD.decode() not in str(refused.value)


def test_no_text_of_a_step_shows_its_secrets() -> None:
    """A traceback would print it."""
    assert repr(STEPS) == "(Phase(''), Phase('next'), Phase('previous'), Phase(''))"
