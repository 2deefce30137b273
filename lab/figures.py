"""The command line of scripts/figures: how large and how entangled the sources of a tree are."""

import argparse
import ast
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from lab import arrows

ROOT: Final = Path(__file__).resolve().parents[1]
COMMANDS_COUNT: Final = 10
"""A file that names as many command classes enumerates them."""
TRACED_COUNT: Final = 5
"""How many requests are traced; the middle one counts."""
TAG_MAX: Final = 255
"""Tags of commands and results are numbers up to this one."""

Node = ast.AST


class Tree:
    """The sources of a checkout at `root`. Its product is what lies in top-level folders that have types."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.packages = tuple(sorted(path.parent.name for path in root.glob("*/py.typed")))

    @cached_property
    def product(self) -> dict[str, str]:
        """The text of each Python file of the product."""
        return self._texts(*self.packages)

    @cached_property
    def parsed(self) -> dict[str, ast.Module]:
        """The same, parsed."""
        return {path: ast.parse(text, path) for path, text in self.product.items()}

    @cached_property
    def graph(self) -> dict[str, set[str]]:
        """The arrows between the modules of the product."""
        return arrows.module_graph(self.root, self.packages)

    def nodes(self, folder: str = "", *, without: str = "/") -> Iterator[Node]:
        """Yield every node of the syntax in files of the product whose path begins with `folder`.

        Paths that begin with `without` are left out.
        """
        for path, module in self.parsed.items():
            if path.startswith(folder) and not path.startswith(without):
                yield from ast.walk(module)

    def lines_count(self, *folders: str) -> int:
        """Count the lines of Python files in folders."""
        return sum(text.count("\n") for text in self._texts(*folders).values())

    def _texts(self, *folders: str) -> dict[str, str]:
        return {
            path.relative_to(self.root).as_posix(): path.read_text("utf-8")
            for folder in folders
            for path in sorted((self.root / folder).rglob("*.py"))
        }


def rules_count(tree: Tree) -> int:
    """Count the versions of the rules, as versions.py of lockstate makes them."""
    (versions,) = (
        module for path, module in tree.parsed.items() if re.match(r"lockstate/(\w+/)?versions\.py", path)
    )
    return sum(isinstance(node, ast.Call) and _name(node.func) == "Rules" for node in ast.walk(versions))


def rules_branches(tree: Tree) -> int:
    """Count the comparisons of something called `rules` in the state machine."""
    return sum(
        isinstance(node, ast.Compare) and "rules" in map(_name, (node.left, *node.comparators))
        for node in tree.nodes("lockstate/")
    )


def files_of_commands(tree: Tree) -> int:
    """Count the files that name ten or more of the command classes."""
    commands = {
        node.name
        for path, module in tree.parsed.items()
        if re.match(r"lockstate/(\w+/)?commands\b", path)
        for node in ast.walk(module)
        if isinstance(node, ast.ClassDef) and any(keyword.arg == "tag" for keyword in node.keywords)
    }
    named = (commands & set(map(_name, ast.walk(module))) for module in tree.parsed.values())
    return sum(len(names) >= COMMANDS_COUNT for names in named)


def files_with(pattern: str) -> Callable[[Tree], int]:
    """Return what counts the files whose text contains `pattern`."""
    return lambda tree: sum(bool(re.search(pattern, text)) for text in tree.product.values())


def shared_names(tree: Tree) -> list[str]:
    """Return the names of public classes that several files have, each with those files."""
    places: dict[str, set[str]] = {}
    for path, module in tree.parsed.items():
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, set()).add(path)
    return [f"{name}: {', '.join(sorted(files))}" for name, files in sorted(places.items()) if len(files) > 1]


def client_tags(tree: Tree) -> int:
    """Count the tags of commands and results in the client: in its classes, and in its sets.

    The public vocabulary of the stream, holdfast/wire, is where they are defined.
    """
    found: set[object] = set()
    for node in tree.nodes("holdfast/", without="holdfast/wire/"):
        match node:
            case ast.keyword(arg="tag", value=ast.Constant(value=int(tag))):
                found.add(tag)
            case ast.Call(func=ast.Name(id="frozenset"), args=[ast.Set(elts=items)]):
                found |= {item.value for item in items if isinstance(item, ast.Constant)}
    return sum(type(tag) is int and tag <= TAG_MAX for tag in found)


def floors(package: str) -> Callable[[Tree], int]:
    """Return what counts the floors of a package: the longest chain of imports of its rooms and modules."""
    return lambda tree: arrows.floors_count(arrows.neighbours(tree.graph, package))


def group_size(tree: Tree) -> tuple[int, int]:
    """Count the methods of `Group`, and the attributes that they assign."""
    (group,) = (
        node for node in tree.nodes("cluster/") if isinstance(node, ast.ClassDef) and node.name == "Group"
    )
    methods = sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in group.body)
    assigned = {
        node.attr
        for node in ast.walk(group)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _name(node.value) == "self"
    }
    return methods, len(assigned)


def late_assignments(tree: Tree) -> int:
    """Count where the files that put a node together, cluster/*.py, assign attributes of other objects."""
    return sum(
        isinstance(target, ast.Attribute) and _name(target.value) not in {"self", "cls"}
        for path, module in tree.parsed.items()
        if re.fullmatch(r"cluster/\w+\.py", path)
        for node in ast.walk(module)
        for target in _targets(node)
    )


def _targets(node: Node) -> Sequence[ast.expr]:
    match node:
        case ast.Assign(targets=targets):
            return targets
        case ast.AnnAssign(target=target):
            return [target]
    return ()


def protocols_count(tree: Tree) -> int:
    """Count the classes of cluster/ that only say what another object can do."""
    return sum(
        isinstance(node, ast.ClassDef) and "Protocol" in {ast.unparse(_plain(base)) for base in node.bases}
        for node in tree.nodes("cluster/")
    )


def _plain(base: ast.expr) -> ast.expr:
    return base.value if isinstance(base, ast.Subscript) else base


def _name(node: Node) -> str:
    """Return the last part of a name; nothing for anything else."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


FIGURES: Final[dict[str, Callable[[Tree], int | tuple[int, int]]]] = {
    "versions of the rules": rules_count,
    "comparisons of `rules` in lockstate": rules_branches,
    "files that name ten or more commands": files_of_commands,
    "files with `lock_delay`": files_with("lock_delay"),
    "files with `no_deadline` or `is_endless`": files_with("no_deadline|is_endless"),
    "files with `priority`": files_with("priority"),
    "names of public classes in several files": lambda tree: len(shared_names(tree)),
    "tags by number in the client": client_tags,
    "floors of lockstate": floors("lockstate"),
    "floors of holdfast": floors("holdfast"),
    "arrows upward in the whole house": lambda tree: arrows.upward_in_house(tree.graph),
    "Group: methods, attributes": group_size,
    "late assignments in cluster": late_assignments,
    "protocol classes in cluster": protocols_count,
    "lines of the product": lambda tree: tree.lines_count(*tree.packages),
    "lines of tests": lambda tree: tree.lines_count("tests"),
}
"""What is counted, by what the table calls it."""


def traced_request() -> tuple[int, int]:
    """Return how often one acquire over HTTP calls functions of the product, and in how many files."""
    from lab.trace import command  # noqa: PLC0415 - it starts nodes: only where somebody asks for that

    try:
        runs = command.runs_in_this_process(TRACED_COUNT, over_http=True)
    except (command.TracingError, TimeoutError) as error:
        sys.exit(f"scripts/figures: {error}")
    middle = runs[len(runs) // 2].whole
    return middle.ours_count(), len(middle.our_files())


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/figures",
        description="Print how large and how entangled the product is. Every figure is counted"
        " in the text of the files.",
    )
    parser.add_argument("tree", nargs="?", type=Path, default=ROOT, help="a checkout (default: this)")
    parser.add_argument("--names", action="store_true", help="list the names of classes in several files")
    parser.add_argument(
        "--http", action="store_true", help="also trace a request over HTTP, in nodes of this checkout"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    options = build_parser().parse_args(argv)
    tree = Tree(options.tree.resolve())
    figures = {name: count(tree) for name, count in FIGURES.items()}
    if options.http:
        figures["one acquire over HTTP: own calls, own files"] = traced_request()
    for name, figure in figures.items():
        numbers = figure if isinstance(figure, tuple) else (figure,)
        print(f"{name:<45}{', '.join(f'{number:,}' for number in numbers):>12}")
    if options.names:
        print("\n" + "\n".join(shared_names(tree)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
