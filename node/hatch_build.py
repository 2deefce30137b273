"""What pyproject.toml cannot say of holdfast-node: which client it needs, and where its packages are."""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


class OwnClient(MetadataHookInterface):
    """Fills in `dependencies`: the client of the same version, and what pyproject.toml has at this hook."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Change the metadata, in which the version is already."""
        metadata["dependencies"] = [f"holdfast-locks=={metadata['version']}", *self.config["dependencies"]]


class PackagesBeside(BuildHookInterface[Any]):
    """Puts packages that lie beside this folder, those that pyproject.toml has at this hook, into a wheel.

    And the commit from which it is built, for cluster/build.py.
    """

    _commit_file: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Change what is built: all but an editable installation, which leads to the checkout."""
        if version != "editable":
            beside = Path(self.root).parent
            build_data["force_include"] |= {str(beside / name): name for name in self.config["packages"]}
            with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
                file.write(_commit(beside))
            self._commit_file = Path(file.name)
            build_data["force_include"][file.name] = "cluster/commit.txt"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove what was only for the wheel."""
        if self._commit_file is not None:
            self._commit_file.unlink()


def _commit(root: Path) -> str:
    """Return the id of the commit that is checked out there, empty if it is not known."""
    git = shutil.which("git")
    if git is None or not (root / ".git").exists():
        return ""
    command = [git, "-C", str(root), "rev-parse", "HEAD"]
    said = subprocess.run(  # noqa: S603 - nothing of it comes from outside
        command, capture_output=True, text=True, check=False
    )
    return said.stdout.strip() if said.returncode == 0 else ""
