"""Which build of Holdfast this process runs: what nodes log, show and tell each other about themselves."""

import importlib.metadata
import platform
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from lockstate.words.versions import rules_newest

_PACKAGE: Final = Path(__file__).parent
COMMIT_FILE: Final = "commit.txt"
"""The file of this package, in wheels only, with the commit from which the wheel was built; empty if that was
not known. node/hatch_build.py writes it."""
_COMMIT_CHARS: Final = 12


class Build(NamedTuple):
    """A build. All is empty where nobody has said which it is, as in simulated nodes."""

    version: str = ""
    commit: str = ""
    """The start of the commit's id; empty if it is not known."""
    python: str = ""
    rules: int = 0
    """The newest rules that it knows."""


UNKNOWN: Final = Build()


@cache
def this_build() -> Build:
    """Return the build that this process runs."""
    stored = _PACKAGE / COMMIT_FILE
    is_wheel = stored.exists()
    commit = stored.read_text("ascii").strip() if is_wheel else _checked_out(_PACKAGE.parent)
    commit = commit[:_COMMIT_CHARS]
    version = told_version(_base(), commit, is_wheel=is_wheel)
    return Build(version, commit, platform.python_version(), rules_newest())


def told_version(base: str, commit: str, *, is_wheel: bool) -> str:
    """Return how a build calls itself: only the wheel of a release has the plain number of that release.

    Any other adds the commit that it was made from, or `local` if it is not known.
    """
    return base if is_wheel and ".dev" not in base else f"{base}+{commit or 'local'}"


def _base() -> str:
    """Return the version in the metadata of the installed distribution; 0 if there is none."""
    try:
        return importlib.metadata.version("holdfast-node")
    except importlib.metadata.PackageNotFoundError:
        return "0"


def _checked_out(root: Path) -> str:
    """Return the commit that is checked out in this folder, as git's files say; empty if they do not."""
    try:
        return _head(root / ".git")
    except (OSError, UnicodeDecodeError):
        return ""


def _head(git: Path) -> str:
    """Return the commit of HEAD. Raises OSError."""
    if git.is_file():  # in a second worktree: where its files are
        git = git.parent / _text(git).removeprefix("gitdir: ")
    head = _text(git / "HEAD")
    if not head.startswith("ref: "):
        return head
    ref = head.removeprefix("ref: ")
    common = git / _text(git / "commondir") if (git / "commondir").exists() else git
    for place in (git / ref, common / ref):
        if place.is_file():
            return _text(place)
    packed = [line.split(" ", 1) for line in _text(common / "packed-refs").splitlines()]
    return next((line[0] for line in packed if line[1:] == [ref]), "")


def _text(path: Path) -> str:
    return path.read_text("utf-8").strip()
