"""What pyproject.toml cannot say of holdfast-node: which client it needs, and where its packages are."""

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
    """Puts packages that lie beside this folder, those that pyproject.toml has at this hook, into a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Change what is built: all but an editable installation, which leads to the checkout."""
        if version != "editable":
            beside = Path(self.root).parent
            build_data["force_include"] |= {str(beside / name): name for name in self.config["packages"]}
