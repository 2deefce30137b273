"""How the lab starts its nodes."""

from pathlib import Path

import pytest

from lab.chaos.targets.processes import LabCluster
from scripts.lib import cluster_file


def test_a_node_keeps_what_is_compiled_and_gets_variables_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the shell of the lab says: starts are measured as those of an installed node."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    cluster_file.create_at(tmp_path, {"n1": ("127.0.0.1:1", "127.0.0.1:2")})
    cluster = LabCluster(tmp_path)
    cluster.node_variables["n1"] = {"BENT": "yes"}
    environment = cluster.environment("n1")
    assert environment["BENT"] == "yes"
    assert "PYTHONDONTWRITEBYTECODE" not in environment
