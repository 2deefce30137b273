"""The arrows between packages and between their rooms, checked in the sources, and what to do instead.

The tables are in rooms.py. Nothing is imported here. An import counts wherever it stands:
at the top, inside a function, only for types.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.arrows import (
    Import,
    circles,
    floors_count,
    imports_in,
    module_graph,
    neighbours,
    upward_count,
    upward_in_house,
)
from tests.packaging.rooms import FORBIDDEN, NO_PICKLE, ONLY_BESIDE, ONLY_IN, PACKAGES, ROOMS, THIRD_PARTY

ROOT = Path(__file__).resolve().parents[2]


def violations(imports: Iterator[Import]) -> list[str]:
    """Return what is wrong with `imports`, one line each, with what to do instead."""
    return [
        f"{found.path}:{found.line}: {complaint}" for found in imports if (complaint := _complaint(found))
    ]


def room_of(path: str) -> str:
    """Return the key in `ROOMS` of the room that `path`, a file or folder, lies in."""
    return max((key for key in ROOMS if f"{path}/".startswith(f"{key}/")), key=len)


def _complaint(found: Import) -> str | None:
    """Return why this import is not allowed, or None."""
    package, top = found.package, found.top
    if top in PACKAGES:
        return _wrong_arrow(found)
    if top in ONLY_BESIDE:
        return f"{package} must not import {top}: {ONLY_BESIDE[top]}"
    if top in ONLY_IN:
        home, instead = ONLY_IN[top]
        return None if found.path == home else f"{top} is imported in {home} only: {instead}"
    for key, modules in FORBIDDEN.items():
        if f"{found.path}/".startswith(f"{key}/") and top in modules:
            return f"{key} must not import {top}: {modules[top]}"
    if top in THIRD_PARTY and package not in THIRD_PARTY[top]:
        return f"{package} must not import {top}: it belongs to {' and '.join(THIRD_PARTY[top])}"
    if top == "pickle":
        return f"{package} must not import pickle: {NO_PICKLE}"
    return None


def _wrong_arrow(found: Import) -> str | None:
    """Return why one of our modules may not import another, or None."""
    room = room_of(found.path)
    own = room.removesuffix(".py").replace("/", ".")
    # `own` of a package includes its rooms: cluster/node.py and http_api/app.py put them together.
    allowed = (own, *ROOMS[room].may_import)
    if any(f"{found.module}.".startswith(f"{name}.") for name in allowed):
        return None
    return f"{room} must not import {found.module}: {ROOMS[room].instead}"


def sources() -> list[str]:
    """Return the paths of all modules of our packages, relative to the root."""
    return sorted(
        path.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob("*.py")
    )


GRAPH = module_graph(ROOT, PACKAGES)
FLOORS = {
    "": 3, "cluster": 9, "cluster.consensus": 10, "cluster.peers": 7, "cluster.storage": 7,
    "holdfast": 8, "holdfast.client": 7, "http_api.server": 7, "lockstate.tables": 7,
}  # fmt: skip
"""How many floors a folder has at most; "" has the packages. Lower these as soon as the house allows."""
FLOORS_MAX = 6
"""How many floors any other folder has at most."""
UPWARD_COUNT = 2
"""How many arrows lead upward: http_api and lockapi import holdfast.wire, holdfast.testing a node."""


@pytest.mark.parametrize("folder", sorted({"", *FLOORS, *(name.rpartition(".")[0] for name in GRAPH)}))
def test_floors_are_few(folder: str) -> None:
    """The longest chain of imports between modules and rooms of a folder keeps to its bound."""
    floors = floors_count(neighbours(GRAPH, folder))
    assert floors <= FLOORS.get(folder, FLOORS_MAX), "move what many need into a lower room, or make rooms"


def test_arrows_point_one_way() -> None:
    """In every folder the arrows between modules and rooms lead downward, except for the known ones."""
    assert upward_in_house(GRAPH) <= UPWARD_COUNT, "move what both need into a lower room"


def test_no_modules_import_each_other() -> None:
    """No module imports, by whatever detour, a module that imports it."""
    assert circles(GRAPH) == [], "move what both need into a module of its own, or take it as an argument"


def test_a_circle_is_found() -> None:
    """Modules that lead to each other are found, and those that only lead to them are not."""
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set[str](), "e": {"e"}}
    assert circles(graph) == [{"b", "c"}]


def test_floors_and_arrows_upward_are_counted() -> None:
    """A circle is one floor, and as many of its arrows lead upward as have to go for it to end."""
    graph = {"a": {"b", "c"}, "b": {"c"}, "c": {"b", "d"}, "d": set[str]()}
    assert (floors_count(graph), upward_count(graph)) == (3, 1)
    assert upward_count({"a": {"b", "c"}, "b": {"a", "c"}, "c": {"a"}}) == 2
    assert upward_count({"a": {"b", "c"}, "b": {"c"}, "c": set[str]()}) == 0


def test_a_room_is_one_node_for_its_neighbours() -> None:
    """What lies in a folder below counts as that folder; what lies elsewhere does not count."""
    graph = {
        "p": {"p.a"},
        "p.a": {"p.r.x", "q"},
        "p.r.x": {"p.r.y", "p.b"},
        "p.r.y": set[str](),
        "p.b": {"p"},
    }
    assert neighbours(graph, "p") == {"a": {"r"}, "r": {"b"}, "b": set()}
    assert neighbours(graph, "p.r") == {"x": {"y"}, "y": set()}
    assert neighbours(graph, "") == {"p": {"q"}}


def test_modules_import_only_what_they_may() -> None:
    """Every module of the packages imports along the arrows, and nothing that its room forbids."""
    found = [
        found
        for path in sources()
        for found in violations(imports_in((ROOT / path).read_text("utf-8"), path))
    ]
    assert not found, "\n" + "\n".join(found)


def test_only_tests_import_the_lab() -> None:
    """What a user runs from scripts/ works without lab/, the commands that are its entries apart."""
    paths = [path.relative_to(ROOT).as_posix() for path in (ROOT / "scripts").rglob("*.py")]
    found = [one for path in paths for one in imports_in((ROOT / path).read_text("utf-8"), path)]
    assert len(found) > len(paths)
    assert [one for one in found if one.top in {"lab", "tests"}] == []


@pytest.mark.parametrize("room", [*ROOMS, *FORBIDDEN, *(home for home, _ in ONLY_IN.values())])
def test_every_room_has_modules(room: str) -> None:
    """Each folder and file of the tables exists, so that the checks above look at something."""
    assert any(f"{path}/".startswith(f"{room}/") for path in sources())


def test_messages_name_what_exists() -> None:
    """Every module, file and class that a table or a message names is there."""
    instead = [home[1] for home in ONLY_IN.values()] + [NO_PICKLE]
    for room in ROOMS.values():
        instead += [room.instead, *room.may_import]
    for modules in FORBIDDEN.values():
        instead += modules.values()
    for name in re.findall(rf"\b(?:{'|'.join(PACKAGES)})[./][\w./]*\w", " ".join(instead)):
        module, _, thing = name.removesuffix(".py").replace("/", ".").rpartition(".")
        whole = ROOT / f"{module}.{thing}".replace(".", "/")
        if whole.is_dir() or whole.with_suffix(".py").is_file():
            continue
        tree = ast.parse((ROOT / module.replace(".", "/")).with_suffix(".py").read_text("utf-8"))
        assert thing in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}, name


@pytest.mark.parametrize(
    ("path", "source", "advice"),
    [
        ("lockstate/x.py", "import cluster.node", "give it the value in a command"),
        ("lockstate/x.py", "from time import monotonic", "Entry.now_ms"),
        ("lockstate/x.py", "def f():\n    import os.path", "the node reads and writes"),
        ("lockstate/x.py", "import aiohttp", "belongs to http_api and holdfast"),
        ("lockstate/x.py", "from importlib import import_module\nimport_module('random')", "random values"),
        ("cluster/x.py", "from http_api import app", "put what both need into lockstate"),
        ("cluster/x.py", "from ..http_api import app", "put what both need into lockstate"),
        ("cluster/x.py", "import pysyncobj.node", "use cluster.consensus.engine.Engine"),
        ("cluster/x.py", "import pickle", "decode with lockstate/words/codec.py"),
        ("cluster/x.py", "import uvloop", "use asyncio"),
        ("cluster/storage/x.py", "from cluster.consensus import engine", "knows no other room"),
        ("cluster/consensus/x.py", "from cluster.peers.links import Links", "let cluster/loop.py do it"),
        ("cluster/config.py", "from cluster.storage import files", "before anything else exists"),
        ("lockapi/x.py", "import http_api.server.call", "lockapi knows no transport"),
        ("lockapi/x.py", "from cluster.node import Node", "only lockapi/node.py of a node"),
        ("lockapi/requests/x.py", "import aiohttp", "http_api speaks HTTP"),
        ("http_api/x.py", "from holdfast import Client", "only holdfast.wire is shared"),
        ("http_api/v1/x.py", "import holdfast.wired", "only holdfast.wire is shared"),
        (
            "http_api/v1/x.py",
            "from lockstate.words.commands.holds import Acquire",
            "lockapi/requests makes commands",
        ),
        ("http_api/server/x.py", "from http_api.v1 import table", "the server serves any calls"),
        ("holdfast/x.py", "from lockstate.words.modes import Mode", "must install without the server"),
        ("holdfast/wire/words.py", "from holdfast.values import errors", "it is data"),
        ("holdfast/operations/exchange.py", "import asyncio", "return how long to wait"),
        ("cluster/x.py", "from lab.measuring import used", "measures and attacks the product"),
        ("http_api/x.py", "from scripts.local_cluster import LocalCluster", "runs the product"),
        ("holdfast/x.py", "from tests.support import tap", "needs no test"),
    ],
)
def test_wrong_import_is_reported_with_what_to_do(path: str, source: str, advice: str) -> None:
    """A forbidden import is found wherever it stands, and the message names the better way."""
    (found,) = violations(imports_in(source, path))
    assert found.startswith(f"{path}:")
    assert advice in found


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("http_api/x.py", "from holdfast import wire\nfrom holdfast.wire import CODES\nimport cluster.node"),
        ("http_api/__main__.py", "import uvloop"),
        ("http_api/v1/x.py", "from http_api.server.call import Call\nfrom lockapi import gateway"),
        ("lockapi/x.py", "from cluster.errors import ClusterError\nfrom lockstate import commands"),
        (
            "cluster/consensus/library.py",
            "from pysyncobj import SyncObj\nfrom . import guards\nimport os, time, asyncio",
        ),
        ("cluster/node.py", "from cluster.peers import links\nfrom cluster import group"),
        ("lockstate/x.py", "import enum, heapq\nfrom .modes import Mode\nimport msgspec"),
        ("holdfast/x.py", "from holdfast.operations import hold_operations\nimport aiohttp, time"),
    ],
)
def test_right_imports_pass(path: str, source: str) -> None:
    """Imports along the arrows are accepted."""
    assert violations(imports_in(source, path)) == []
