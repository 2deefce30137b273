"""Imports of a tree of sources, as arrows between its modules and folders. Reads text; nothing is imported.

An import counts wherever it stands: at the top, inside a function, only for types.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

Graph = Mapping[str, set[str]]
"""For each node, the nodes that it needs."""


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


def module_graph(root: Path, packages: tuple[str, ...]) -> dict[str, set[str]]:
    """Return which modules of `packages`, which lie in `root`, each of them imports. Names have dots."""
    paths = {
        path.relative_to(root)
        .as_posix()
        .removesuffix(".py")
        .removesuffix("/__init__")
        .replace("/", "."): path
        for package in packages
        for path in sorted((root / package).rglob("*.py"))
    }
    graph: dict[str, set[str]] = {}
    for module, path in paths.items():
        named = {
            found.module for found in imports_in(path.read_text("utf-8"), path.relative_to(root).as_posix())
        }
        used = {name if name in paths else name.rpartition(".")[0] for name in named}
        graph[module] = (used & paths.keys()) - {module}
    return graph


def neighbours(graph: Graph, folder: str) -> dict[str, set[str]]:
    """Return the arrows between what lies in a folder: its modules, and its folders as one node each.

    Its `__init__` and `__main__`, which show and start what lies in it, are left out. "" has the packages.
    """
    inside: dict[str, set[str]] = {}
    for module, used in graph.items():
        if (one := _child(module, folder)) and one != "__main__":
            inside.setdefault(one, set()).update(filter(None, (_child(other, folder) for other in used)))
    return {one: others - {one} for one, others in inside.items()}


def _child(module: str, folder: str) -> str:
    """Return the part of a name below that of the folder; nothing for what does not lie in it."""
    if folder and not module.startswith(f"{folder}."):
        return ""
    return module.removeprefix(f"{folder}." if folder else "").partition(".")[0]


def circles(graph: Graph) -> list[set[str]]:
    """Return the sets of nodes that lead to each other, by Tarjan's algorithm."""
    return [nodes for nodes in _condensed(graph) if len(nodes) > 1]


def _condensed(graph: Graph) -> list[set[str]]:
    """Return all nodes, those that lead to each other together; what is needed comes first."""
    found: list[set[str]] = []
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(node: str) -> None:
        order[node] = lowest[node] = len(order)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in order:
                visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            elif other in stack:
                lowest[node] = min(lowest[node], order[other])
        if lowest[node] == order[node]:
            place = stack.index(node)
            found.append(set(stack[place:]))
            del stack[place:]

    for node in graph:
        if node not in order:
            visit(node)
    return found


def floors_count(graph: Graph) -> int:
    """Return how many nodes the longest chain of arrows has; a circle is one of them."""
    height: dict[str, int] = {}
    for nodes in _condensed(graph):
        below = [height[other] for node in nodes for other in graph.get(node, ()) if other not in nodes]
        height |= dict.fromkeys(nodes, 1 + max(below, default=0))
    return max(height.values(), default=0)


def upward_count(graph: Graph) -> int:
    """Return how many arrows lead upward in the order of nodes in which the fewest do: none without circles.

    The time doubles with each node of a circle.
    """
    return sum(_fewest(graph, sorted(nodes)) for nodes in circles(graph))


def _fewest(graph: Graph, nodes: list[str]) -> int:
    """Put one node after the other on top, and keep the best way for each set of nodes that lie below."""
    bits = {node: 1 << place for place, node in enumerate(nodes)}
    needs = [sum(bits[other] for other in graph[node] if other in bits) for node in nodes]
    whole = (1 << len(nodes)) - 1
    fewest = [0] * (whole + 1)
    for below in range(1, whole + 1):
        fewest[below] = min(
            fewest[below ^ (1 << place)] + (needs[place] & ~below).bit_count()
            for place in range(len(nodes))
            if below & (1 << place)
        )
    return fewest[whole]


def upward_in_house(graph: Graph) -> int:
    """Return how many arrows lead upward between neighbours in any folder, and between packages."""
    names = {name.rpartition(".")[0] for name in graph}
    folders = {folder for name in names for folder in (name, name.partition(".")[0])} | {""}
    return sum(upward_count(neighbours(graph, folder)) for folder in folders)
