"""What the package exports, and that its two clients have the same calls."""

import inspect
import subprocess
import sys
from typing import Any

import pytest

import holdfast
from tests.support.both_clients import TWINS

OWN = {holdfast.SyncHold: {"twin"}, holdfast.SyncSession: {"twin"}, holdfast.SyncLeadership: {"twin"}}
"""What twins have for each other only."""


def test_what_is_exported_exists() -> None:
    """`__all__` is sorted and true."""
    assert sorted(holdfast.__all__) == holdfast.__all__
    assert all(hasattr(holdfast, name) for name in holdfast.__all__)


@pytest.mark.parametrize("sync", [kind for kind in TWINS if kind.__module__.startswith("holdfast")])
def test_threads_and_tasks_have_the_same_calls(sync: type) -> None:
    """Every public call of the one is one of the other, with the same arguments and defaults."""
    for name in dir(sync):
        if name.startswith("_") or name in OWN.get(sync, ()):
            continue
        ours, theirs = getattr(sync, name), getattr(TWINS[sync], name, None)
        if not callable(ours) or isinstance(ours, property):
            continue
        assert theirs is not None, name
        assert _arguments(ours) == _arguments(theirs), name


@pytest.mark.parametrize("name", ["session", "transaction", "rate_limiter", "fence"])
def test_a_call_for_threads_is_said_to_return_what_it_returns(name: str) -> None:
    """`help` shows what a program for threads is given, though the rest is that of the call for tasks."""
    told = inspect.signature(getattr(holdfast.SyncClient, name)).return_annotation
    assert told.__name__.startswith("Sync")


def test_a_call_for_threads_with_wrong_arguments_is_refused() -> None:
    """It raises TypeError as any call does, and waits for nothing."""
    client: Any = holdfast.SyncClient("127.0.0.1:1")
    for call in (client.release, client.inspect, client.fence):
        with pytest.raises(TypeError, match="missing 1 required positional argument"):
            call()
    with pytest.raises(TypeError, match="unexpected keyword argument 'tll'"):
        client.renew_by_value("a", "v", tll=5)


def test_no_call_is_missing_for_threads() -> None:
    """All that the asyncio client can do, the other can."""
    assert {name for name in dir(holdfast.Client) if name[0] != "_"} <= set(dir(holdfast.SyncClient))


def _arguments(call: object) -> list[tuple[str, object, object]]:
    """Return names, kinds and defaults of what a call takes."""
    assert callable(call)
    parameters = inspect.signature(call).parameters.values()
    return [(parameter.name, parameter.kind, parameter.default) for parameter in parameters]


def test_the_import_is_light() -> None:
    """`import holdfast` loads nothing but itself; a client leaves the HTTP library to its first request."""
    script = (
        "import sys, holdfast\n"
        "print({'asyncio', 'msgspec', 'holdfast.client.client'} & set(sys.modules))\n"
        "holdfast.SyncClient('127.0.0.1:1')\n"
        "print({'aiohttp', 'holdfast.decorators.decorating'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\nset()\n"


def test_every_name_has_one_home() -> None:
    """What is exported is found with its first use, also by `dir` and by a star; nothing else is there."""
    assert set(holdfast._HOMES) == set(holdfast.__all__)  # type: ignore[attr-defined,unused-ignore]
    assert set(holdfast.__all__) <= set(dir(holdfast))
    with pytest.raises(AttributeError, match="Lick"):
        getattr(holdfast, "Lick")  # noqa: B009 - the type checker knows that it is not there
    star: dict[str, object] = {}
    exec("from holdfast import *", star)  # noqa: S102 - that is what is tested
    assert star["Client"] is holdfast.Client
