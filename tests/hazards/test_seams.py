"""The seams that the engine stands on exist in the installed library, and it is the pinned one."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pysyncobj.syncobj as library
import pytest

from cluster.consensus.engine import REQUIRED_ATTRIBUTES, REQUIRED_NAMES
from tests.hazards.bare_library import bare_cluster

ROOT = Path(__file__).resolve().parents[2]


def test_the_installed_library_is_the_pinned_one() -> None:
    """The project pins one exact version, and that is what these tests have attacked."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"pysyncobj=={metadata.version('pysyncobj')}" in project["dependencies"]


@pytest.mark.parametrize("name", REQUIRED_NAMES)
def test_a_method_that_is_overridden_or_called_exists(name: str) -> None:
    """The library's class has the method under this very name."""
    assert callable(getattr(library.SyncObj, name))


@pytest.mark.parametrize("name", REQUIRED_ATTRIBUTES)
def test_an_attribute_that_is_read_or_set_exists(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object of the library's has the attribute under this very name."""
    assert hasattr(bare_cluster(monkeypatch)["a"], name)


@pytest.mark.parametrize(
    "name", ["createJournal", "createPoller", "PIPE_NOTIFIER_ENABLED", "monotonicTime", "random"]
)
def test_a_name_that_is_replaced_exists(name: str) -> None:
    """The library's module looks the name up when it is used."""
    assert hasattr(library, name)


def test_the_module_declares_every_private_name_that_it_uses() -> None:
    """The engine uses every name of the two lists, and no other mangled name of the library."""
    source = (ROOT / "cluster" / "consensus" / "engine.py").read_text()
    declared = {name.removeprefix("_SyncObj__") for name in (*REQUIRED_NAMES, *REQUIRED_ATTRIBUTES)}
    used = set(re.findall(r"_SyncObj__(\w+)", source))
    assert used == declared - {"_checkCommandsToApply", "doTick", "transferLeadership"}
