"""The arrows between packages, checked in the sources: who may import what, and what to do instead.

Nothing is imported here. An import counts wherever it stands: at the top, inside a function, only for types.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("holdfast", "http_api", "api", "cluster", "lockstate")

OURS = {
    "lockstate": ("lockstate",),
    "cluster": ("cluster", "lockstate"),
    "api": ("api", "cluster", "lockstate", "holdfast.wire"),
    "http_api": ("http_api", "api", "cluster", "lockstate", "holdfast.wire"),
    "holdfast": ("holdfast",),
}
"""For each package, which of our modules it may import; a name stands for everything below it too."""

INSTEAD_OF_ARROW = {
    "lockstate": "give it the value in a command or an entry; the state machine knows nobody",
    "cluster": "put what both need into lockstate, or hand it over as a callable from http_api/__main__.py",
    "api": "a face imports api, never the reverse; what only HTTP needs belongs to http_api",
    "http_api": "only holdfast.wire is shared with the SDK; move names that both need there",
    "holdfast": "the SDK must install without the server; put shared names into holdfast/wire.py",
}

THIRD_PARTY = {"aiohttp": ("http_api", "holdfast"), "msgspec": PACKAGES}
"""For each dependency that several modules may import, in which packages."""

ONLY_IN = {
    "pysyncobj": (
        "cluster/consensus/engine.py",
        "use cluster.consensus.engine.Raft, the one place where the library is tamed",
    ),
    "uvloop": ("http_api/__main__.py", "use asyncio; the host alone chooses the event loop"),
}

FORBIDDEN_IN_LOCKSTATE = {
    "time": "cluster time comes in the entry, as Entry.now_ms",
    "datetime": "cluster time comes in the entry, as Entry.now_ms; dates are for those who show them",
    "random": "the node makes random values and puts them into the command",
    "secrets": "the node makes random values and puts them into the command",
    "uuid": "ids are made by the node and come in the command",
    "os": "the state machine does no I/O; the node reads and writes",
    "pathlib": "the state machine does no I/O; the node reads and writes",
    "socket": "the state machine does no I/O; results and events say what others should hear",
    "threading": "apply is called from one thread; return what has to happen next as an event",
    "asyncio": "apply returns its outcome; cluster/ completes futures from it",
    "logging": "return an event; the node logs it",
    "pickle": "encode with lockstate/codec.py: pickle runs code and its bytes differ between versions",
}

NO_PICKLE = (
    "decode with lockstate/codec.py or msgspec: unpickling bytes from a peer or a disk runs their code"
)


class Import(NamedTuple):
    """One import statement: `module` is what it names, with what follows `import` after `from`."""

    path: str
    line: int
    module: str

    @property
    def package(self) -> str:
        """The package of ours that the statement stands in."""
        return self.path.partition("/")[0]

    @property
    def top(self) -> str:
        """The first part of the imported name."""
        return self.module.partition(".")[0]


def imports_in(source: str, path: str) -> Iterator[Import]:
    """Yield every import of the file at `path`; `import_module("x")` and `__import__("x")` count as well."""
    for node in ast.walk(ast.parse(source, path)):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield Import(path, node.lineno, alias.name)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = ".".join([*path.split("/")[:-level], *filter(None, [module])]) if level else module
                for alias in names:
                    yield Import(path, node.lineno, f"{base}.{alias.name}")
            case ast.Call(
                func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield Import(path, node.lineno, module)


def violations(imports: Iterator[Import]) -> list[str]:
    """Return what is wrong with `imports`, one line each, with what to do instead."""
    return [f"{found.path}:{found.line}: {told}" for found in imports if (told := _complaint(found))]


def _complaint(found: Import) -> str | None:
    """Return why this import may not be, or None."""
    package, top, module = found.package, found.top, found.module
    if top in PACKAGES:
        allowed = any(f"{module}.".startswith(f"{name}.") for name in OURS[package])
        return None if allowed else f"{package} must not import {module}: {INSTEAD_OF_ARROW[package]}"
    if top in ONLY_IN:
        home, instead = ONLY_IN[top]
        return None if found.path == home else f"{top} is imported in {home} only: {instead}"
    if top in THIRD_PARTY and package not in THIRD_PARTY[top]:
        return f"{package} must not import {top}: it belongs to {' and '.join(THIRD_PARTY[top])}"
    if package == "lockstate" and top in FORBIDDEN_IN_LOCKSTATE:
        return f"lockstate must not import {top}: {FORBIDDEN_IN_LOCKSTATE[top]}"
    if top == "pickle":
        return f"{package} must not import pickle: {NO_PICKLE}"
    return None


def sources() -> list[str]:
    """Return the paths of all modules of our packages, relative to the root."""
    return sorted(
        path.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob("*.py")
    )


@pytest.mark.parametrize("path", sources())
def test_module_imports_only_what_it_may(path: str) -> None:
    """Every module of the packages imports along the arrows, and nothing that its package forbids."""
    found = violations(imports_in((ROOT / path).read_text("utf-8"), path))
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_has_modules(package: str) -> None:
    """Each of our packages has sources, so that the checks above look at something."""
    assert any(path.startswith(f"{package}/") for path in sources())


@pytest.mark.parametrize(
    ("path", "source", "told"),
    [
        ("lockstate/x.py", "import cluster.node", "give it the value in a command"),
        ("lockstate/x.py", "from time import monotonic", "Entry.now_ms"),
        ("lockstate/x.py", "def f():\n    import os.path", "the node reads and writes"),
        ("lockstate/x.py", "import aiohttp", "belongs to http_api and holdfast"),
        ("lockstate/x.py", "from importlib import import_module\nimport_module('random')", "random values"),
        ("cluster/x.py", "from http_api import app", "put what both need into lockstate"),
        ("cluster/x.py", "from ..http_api import app", "put what both need into lockstate"),
        ("cluster/x.py", "import pysyncobj.node", "use cluster.consensus.engine.Raft"),
        ("cluster/x.py", "import pickle", "decode with lockstate/codec.py"),
        ("cluster/x.py", "import uvloop", "use asyncio"),
        ("http_api/x.py", "from holdfast import Client", "only holdfast.wire is shared"),
        ("http_api/x.py", "import holdfast.wired", "only holdfast.wire is shared"),
        ("holdfast/x.py", "from lockstate.modes import Mode", "must install without the server"),
    ],
)
def test_wrong_import_is_told_with_what_to_do(path: str, source: str, told: str) -> None:
    """A forbidden import is found wherever it stands, and the message names the better way."""
    (found,) = violations(imports_in(source, path))
    assert found.startswith(f"{path}:")
    assert told in found


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("http_api/x.py", "from holdfast import wire\nfrom holdfast.wire import CODES\nimport cluster.node"),
        ("http_api/__main__.py", "import uvloop"),
        (
            "cluster/consensus/engine.py",
            "from pysyncobj import SyncObj\nfrom . import guards\nimport os, time, asyncio",
        ),
        ("lockstate/x.py", "import enum, heapq\nfrom .modes import Mode\nimport msgspec"),
        ("holdfast/x.py", "from holdfast import _protocol\nimport aiohttp, time"),
    ],
)
def test_right_imports_pass(path: str, source: str) -> None:
    """Imports along the arrows are accepted."""
    assert violations(imports_in(source, path)) == []
