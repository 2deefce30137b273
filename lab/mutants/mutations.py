"""What may be changed in a source text, one small change at a time: pure, nothing is written or run here."""

import ast
import copy
import itertools
from collections.abc import Iterator
from typing import Final, NamedTuple

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_SUMS: Final[dict[type[ast.operator], type[ast.operator]]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}
_LEFT_ALONE: Final = (ast.Assert, ast.Import, ast.ImportFrom, ast.AnnAssign, ast.arguments)
"""An assertion is itself a check; a type or a default says nothing that runs here."""


class Mutant(NamedTuple):
    """One change: the line it is on, what stands there, and what is put in its place."""

    line: int
    before: str
    after: str
    begin: int  # the first byte of what is replaced, in UTF-8
    end: int  # the one behind its last

    def of(self, text: str) -> str:
        """Return the module with this change; `text` is what the mutant was made from. Nothing else moves."""
        whole = text.encode()
        return (whole[: self.begin] + self.after.encode() + whole[self.end :]).decode()


def mutants(text: str) -> list[Mutant]:
    """Return every change of the functions of a module that this knows, in the order of the lines."""
    begins = [0, *itertools.accumulate(len(line.encode()) for line in text.splitlines(keepends=True))]
    return sorted(
        _mutant(begins, node, new)
        for function in ast.walk(ast.parse(text))
        if isinstance(function, ast.FunctionDef)
        for node in _inside(function)
        for new in _instead_of(node)
    )


def _inside(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Yield what a function's body consists of, but for what is left alone and functions in it."""
    left: list[ast.AST] = list(function.body)
    while left:
        node = left.pop()
        if not isinstance(node, (*_LEFT_ALONE, ast.FunctionDef)):
            yield node
            left += ast.iter_child_nodes(node)


def _instead_of(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what may stand in the place of a part of a function."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in _COMPARISONS:
            yield _with(node, ops=[_COMPARISONS[type(operator)]()])
        case ast.BoolOp(op=ast.And()):
            yield _with(node, op=ast.Or())
        case ast.BoolOp(op=ast.Or()):
            yield _with(node, op=ast.And())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.BinOp(op=operator) if type(operator) in _SUMS:
            yield _with(node, op=_SUMS[type(operator)]())
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield ast.Constant(value + 1)
        case (
            ast.Expr(value=ast.Call())
            | ast.AugAssign()
            | ast.Assign(targets=[ast.Attribute()])
            | ast.Delete()
        ):
            yield ast.Pass()
        case ast.Continue():
            yield ast.Break()


def _with(node: ast.AST, **fields: object) -> ast.AST:
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _mutant(begins: list[int], node: ast.AST, new: ast.AST) -> Mutant:
    """Return one part of a module in the place of another; `begins` has the first byte of each line."""
    assert isinstance(node, ast.expr | ast.stmt)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    after = f"({ast.unparse(new)})" if isinstance(node, ast.expr) else ast.unparse(new)
    begin = begins[node.lineno - 1] + node.col_offset
    end = begins[node.end_lineno - 1] + node.end_col_offset
    return Mutant(node.lineno, ast.unparse(node), after, begin, end)
