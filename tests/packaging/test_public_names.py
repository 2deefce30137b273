"""Whatever stands in a signature that users call is exported: nobody imports from the rooms of `holdfast`."""

import ast
import functools
import inspect
import sys
import textwrap
from collections.abc import Iterator

import pytest

import holdfast

MADE_BY_CALLERS = {holdfast.Client, holdfast.SyncClient, holdfast.Tls, holdfast.FencedResource}
"""Classes whose constructors users call; what the client makes itself is not constructed by them."""
OF_THE_CLIENT_ALONE = {
    "begin_claim", "claim", "counted_again", "end_claim", "entered", "fields", "granted", "lease", "reliable",
    "terms",
}  # fmt: skip
"""What the parts of the client ask of each other."""
OF_THE_DESCRIPTION = {"MayLack", "ModeSaid", "ScopeSaid", "HoldKindSaid", "AlgorithmSaid"}
"""What the API's description reads beside a type: to users these are that type, or plain text."""
PUBLIC = [getattr(holdfast, name) for name in holdfast.__all__]
CLASSES = [thing for thing in PUBLIC if inspect.isclass(thing)]


def _annotations(kind: type) -> Iterator[tuple[str, ast.expr, str]]:
    """Yield each annotation of the public calls and fields of a class, where it stands, and its module."""
    for base in kind.__mro__:
        if not base.__module__.startswith("holdfast") or base.__name__.startswith("_"):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        for node in tree.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                if not node.target.id.startswith("_"):
                    yield f"{base.__name__}.{node.target.id}", node.annotation, base.__module__
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                is_made = node.name == "__init__" and base is kind and kind in MADE_BY_CALLERS
                if node.name.startswith("_") and not is_made:
                    continue
                where = f"{base.__name__}.{node.name}"
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                arguments += [each for each in (node.args.vararg, node.args.kwarg) if each is not None]
                for annotation in [*[argument.annotation for argument in arguments], node.returns]:
                    if annotation is not None:
                        yield where, annotation, base.__module__


def _words(annotation: ast.expr) -> Iterator[str]:
    """Yield the names in an annotation, also in one that is quoted."""
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield node.value


@functools.cache
def _ours(module: str) -> set[str]:
    """Return the types and aliases of ours that a module imports or defines."""
    names: set[str] = set()
    for node in ast.parse(inspect.getsource(sys.modules[module])).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("holdfast."):
            names |= {
                alias.asname or alias.name
                for alias in node.names
                if f"{node.module}.{alias.name}" not in sys.modules
            }
        elif isinstance(node, ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
            names.add(ast.unparse(node.target))
    return names


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_what_stands_in_signatures_is_exported(kind: type) -> None:
    """Types, aliases and words alike; type variables are of nobody."""
    hidden = {
        f"{word} in {where}"
        for where, annotation, module in _annotations(kind)
        if where.rpartition(".")[2] not in OF_THE_CLIENT_ALONE
        for word in _words(annotation)
        if word in _ours(module) - OF_THE_DESCRIPTION - set(holdfast.__all__)
    }
    assert hidden == set()
