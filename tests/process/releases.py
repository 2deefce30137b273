"""Nodes of several releases in one cluster: where their code comes from, and which node runs which."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from scripts.local_cluster import PROJECT, LocalCluster

PACKAGES: Final = ("lockstate", "cluster", "lockapi", "http_api", "redis_api", "holdfast")


def patched_release(directory: Path, patches: Iterable[tuple[str, str]]) -> Path:
    """Return a copy of this release with text appended to some of its files."""
    for package in PACKAGES:
        shutil.copytree(PROJECT / package, directory / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file, text in patches:
        with (directory / file).open("a") as target:
            target.write(text)
    return directory


class MixedCluster(LocalCluster):
    """A cluster whose nodes may run the code of different releases."""

    @classmethod
    def of(cls, directory: Path, tree: Path) -> "MixedCluster":
        """Start three nodes of one release; they compact often, so that snapshots travel, too."""
        for node_id in ("n1", "n2", "n3"):
            _tree_file(directory, node_id).parent.mkdir(parents=True, exist_ok=True)
            _tree_file(directory, node_id).write_text(str(tree))
        return cls.up(directory, extra_args=["--compact-entries", "200"])

    def tree(self, node_id: str) -> Path:
        """Return the release that a node runs."""
        return Path(_tree_file(self.directory, node_id).read_text())

    def set_tree(self, node_id: str, tree: Path) -> None:
        """Have a node run another release from its next start on."""
        _tree_file(self.directory, node_id).write_text(str(tree))

    def replace(self, node_id: str, tree: Path) -> None:
        """Stop a node as an operator does, and start it with the code of another release."""
        self.terminate(node_id)
        self.set_tree(node_id, tree)
        self.start(node_id)


def _tree_file(directory: Path, node_id: str) -> Path:
    return directory / "trees" / node_id
