"""The code of the release before this one, out of git: for clusters in which both run."""

import subprocess
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[2]
_NAMED_IN: Final = _ROOT / "tests" / "compat" / "previous_release.txt"


class NoPreviousReleaseError(Exception):
    """The code is not to be had here; the message says why."""


def unpack(directory: Path) -> Path:
    """Write the code of the previous release into a new directory, and return that.

    Raises NoPreviousReleaseError where the history does not have it, as in a shallow clone.
    """
    try:
        commit = _NAMED_IN.read_text().strip()
        archive = subprocess.run(["git", "archive", commit], cwd=_ROOT, capture_output=True, check=False)
    except OSError as error:
        raise NoPreviousReleaseError(str(error)) from error
    if archive.returncode != 0:
        reason = archive.stderr.decode(errors="replace").strip()
        raise NoPreviousReleaseError(f"the history does not have {commit[:7]}: {reason}")
    directory.mkdir()
    subprocess.run(["tar", "-x"], cwd=directory, input=archive.stdout, check=True)
    return directory
