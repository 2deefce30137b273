"""The seams that the engine stands on exist in the installed library, and it is the pinned one."""

import inspect
import re
import tomllib
from importlib import metadata
from pathlib import Path
from types import FunctionType

import pysyncobj.syncobj as library
import pytest
from pysyncobj.monotonic import monotonic

from cluster.consensus.library import ONLY_IN_THE_TICK, REQUIRED_ATTRIBUTES, REQUIRED_NAMES
from tests.hazards.bare_library import bare_cluster

ROOT = Path(__file__).resolve().parents[2]


def test_the_installed_library_is_the_pinned_one() -> None:
    """The project pins one exact version, and that is what these tests have attacked."""
    node = tomllib.loads((ROOT / "node" / "pyproject.toml").read_text())
    needed = node["tool"]["hatch"]["metadata"]["hooks"]["custom"]["dependencies"]
    assert f"pysyncobj=={metadata.version('pysyncobj')}" in needed


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
    """Our object uses every name of the two lists, and no other mangled name of the library."""
    source = (ROOT / "cluster" / "consensus" / "library.py").read_text()
    declared = {name.removeprefix("_SyncObj__") for name in (*REQUIRED_NAMES, *REQUIRED_ATTRIBUTES)}
    used = set(re.findall(r"_SyncObj__(\w+)", source))
    assert used == declared - {"_onTick", "transferLeadership"}


@pytest.mark.parametrize("name", ONLY_IN_THE_TICK)
def test_what_the_library_does_in_its_tick_is_done_nowhere_else(name: str) -> None:
    """With a tick of our own it never happens: the library calls it nowhere else."""
    call = f"self.{name}("
    in_the_tick = inspect.getsource(library.SyncObj._onTick).count(call)
    assert inspect.getsource(library).count(call) == in_the_tick > 0


def test_what_a_leader_sends_is_made_in_one_place() -> None:
    """No other method of the library makes an AppendEntries or a request for votes."""
    makers = {
        name
        for name, method in vars(library.SyncObj).items()
        if inspect.isfunction(method)
        and re.search(r"'type': '(append_entries|request_vote)'", inspect.getsource(method))
    }
    assert makers == {"_SyncObj__sendAppendEntries", "_onTick"}


def test_the_clock_is_the_librarys_own() -> None:
    """Ours stands in its place, and reads the same clock."""
    before_s, now_s, after_s = monotonic(), library.monotonicTime(), monotonic()
    assert before_s <= now_s <= after_s
    assert not isinstance(library.monotonicTime, FunctionType)
