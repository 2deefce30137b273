"""Which build a process runs, and how it calls itself."""

import re
import subprocess
from pathlib import Path

import pytest

from cluster import build

ROOT = Path(build.__file__).parents[1]


@pytest.mark.parametrize(
    ("base", "commit", "is_wheel", "told"),
    [
        ("1.0.0", "8faf2b1c0d1e", True, "1.0.0"),
        ("1.0.0", "", True, "1.0.0"),
        ("1.0.0", "8faf2b1c0d1e", False, "1.0.0+8faf2b1c0d1e"),
        ("1.0.0", "", False, "1.0.0+local"),
        ("1.1.0.dev0", "8faf2b1c0d1e", True, "1.1.0.dev0+8faf2b1c0d1e"),
        ("1.1.0.dev0", "", True, "1.1.0.dev0+local"),
    ],
)
def test_only_the_wheel_of_a_release_is_called_like_it(
    base: str,
    commit: str,
    is_wheel: bool,  # noqa: FBT001 - a parameter of the test
    told: str,
) -> None:
    """A checkout, even of the tag, and any wheel in between say which commit they are."""
    assert build.told_version(base, commit, is_wheel=is_wheel) == told


def test_this_checkout_has_a_name_of_its_own() -> None:
    """What runs from here cannot be taken for a release."""
    ours = build.this_build()
    assert re.fullmatch(r"[0-9.]+(dev\d+)?\+(local|[0-9a-f]{12})", ours.version)
    assert ours.version.endswith(ours.commit or "local")
    assert ours.python.startswith("3.")


def test_the_commit_is_that_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git tells it, outside of a checkout there is none, and a wheel's file counts before it."""
    package = tmp_path / "cluster"
    package.mkdir()
    monkeypatch.setattr(build, "_PACKAGE", package)
    made = build.this_build.__wrapped__
    assert made().commit == ""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "a"]):
        subprocess.run([*git, *command], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
    assert made().commit == head[:12]
    subprocess.run([*git, "pack-refs", "--all"], check=True)
    assert made().commit == head[:12]
    subprocess.run([*git, "checkout", "-q", "--detach"], check=True)
    assert made().commit == head[:12]
    subprocess.run([*git, "worktree", "add", "-q", "-b", "other", str(tmp_path / "w")], check=True)
    monkeypatch.setattr(build, "_PACKAGE", tmp_path / "w" / "cluster")
    assert made().commit == head[:12]
    monkeypatch.setattr(build, "_PACKAGE", package)
    (package / build.COMMIT_FILE).write_text("0123456789abcdef\n")
    assert made().commit == "0123456789ab"
