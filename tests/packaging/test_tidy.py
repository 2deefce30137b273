"""House rules that a tool can see. Each failure says where, and what is better."""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.packaging.rooms import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
STORED = "tests/compat/stored/"
FOREIGN = {"LICENSE"}
"""Texts that others wrote, which stay as they are."""

MACHINE_PATH = re.compile(r"(?<![\w.$}>~-])/(?:home|root|Users|work|tmp/w)/[\w.-]")
LEFTOVER = re.compile(r"\b(?:TO[D]O|FI[X]ME|X[X]X|HA[C]K)\b")
STILTED = {
    "Record that ...": r"\b[Tt]akes? not[e] (?:of|that|what|when|where|which|who|up)\b",
    "X is not a Y, or: there is no Y": (
        r"(?<!there )(?<!There )(?<!nobody )(?<!here )\b(?:is|are|was|were) no "
        r"(?!(?:longer|more|less|other|one|way|matter|[a-z]+er)\b)[a-z]+"
    ),
    "what happens, in words that somebody would search for": (
        r"\bhus[k]s?\b|\bnouris[h]|\bchild's lif[e]\b|\bwhen eve[r] falls\b"
        r"|\bneeds no hand[s]\b|\bmend the cal[l]\b"
    ),
}
"""Words that a native engineer would not say, by what to say instead."""
CONFLICT = re.compile(r"^(?:<{7}|>{7}|={7}$)", re.MULTILINE)


@cache
def project_files() -> list[str]:
    """Return the paths of the project's text files: what git tracks, or would if it were added."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode == 0:
        paths = [path for path in listing.stdout.split("\0") if path]
    else:  # an export without history: everything but what tools made
        made = {"__pycache__", "build", "dist", "wheels"}
        found = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
        paths = [
            path.as_posix()
            for path in found
            if not made.intersection(path.parts) and (path.parts[0] == ".ci" or path.parts[0][0] != ".")
        ]
    return sorted(path for path in paths if (ROOT / path).is_file() and not is_foreign(path))


def is_foreign(path: str) -> bool:
    """Whether a file is not ours to keep tidy: a licence, a picture, or bytes that a release has stored."""
    return path in FOREIGN or path.startswith(STORED) or path.endswith(".png")


def read(path: str) -> str:
    """Return the text of a file of the project."""
    return (ROOT / path).read_text("utf-8")


@cache
def tree_of(path: str) -> ast.Module:
    """Return a module of the project as it is parsed."""
    return ast.parse(read(path))


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    """Return the places where `pattern` occurs in the project."""
    return [
        f"{path}:{number}: {line.strip()}"
        for path in project_files()
        for number, line in enumerate(read(path).splitlines(), 1)
        if pattern.search(line)
    ]


def modules(*folders: str) -> list[str]:
    """Return the Python files of `folders`."""
    return [path for path in project_files() if path.endswith(".py") and path.split("/")[0] in folders]


def all_tests(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the test functions of a module, those in classes included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node


def plain_sleeps(node: ast.AST) -> Iterator[int]:
    """Yield the lines of sleep() calls below `node` that no loop repeats; sleep(0) only lets others run."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.While() | ast.For() | ast.AsyncFor() | ast.FunctionDef() | ast.AsyncFunctionDef():
                continue
            case ast.Call(func=ast.Attribute(attr="sleep"), args=[ast.Constant(value=0)]):
                continue
            case ast.Call(func=ast.Attribute(attr="sleep") | ast.Name(id="sleep")):
                yield child.lineno
        yield from plain_sleeps(child)


def test_git_or_the_folder_lists_files() -> None:
    """The rules below look at the project's files: this one is among them."""
    assert "tests/packaging/test_tidy.py" in project_files()


def test_no_machine_path() -> None:
    """No file names a folder of the machine that it was written on."""
    found = lines_with(MACHINE_PATH)
    assert not found, "\n".join(["use a path relative to the file, or an argument:", *found])


def test_nothing_is_left_for_later() -> None:
    """No file has a note of unfinished work."""
    found = lines_with(LEFTOVER)
    assert not found, "\n".join(["do it now, or describe the limit in docs/ as a fact:", *found])


def test_no_conflict_markers() -> None:
    """No file has the marks of an unfinished merge."""
    found = [path for path in project_files() if CONFLICT.search(read(path))]
    assert not found, f"finish the merge: {found}"


@pytest.mark.parametrize("better", STILTED)
def test_words_are_plain(better: str) -> None:
    """No text says in a stilted way what has a plain one."""
    found = lines_with(re.compile(STILTED[better]))
    assert not found, "\n".join([f"say: {better}", *found])


def test_stilted_words_are_found() -> None:
    """The patterns find what they are for, and leave alone what only looks like it."""
    sins = [("Take", "note", "of it"), ("a name is", "no", "id"), ("what is left are", "hus" + "ks")]
    for sin, pattern in zip(sins, STILTED.values(), strict=True):
        assert re.search(pattern, " ".join(sin))
    for good in ("there is no leader", "it is no longer there", "it is no larger", "record that"):
        assert not any(re.search(pattern, good) for pattern in STILTED.values())


def test_variables_say_what_they_hold() -> None:
    """No variable or parameter is called "it": somebody who reads its use does not know what that was."""
    found = [
        f"{path}:{node.lineno}"
        for path in modules(*PACKAGES, "lab", "scripts", "tests")
        for node in ast.walk(tree_of(path))
        if (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == "it")
        or (isinstance(node, ast.arg) and node.arg == "it")
    ]
    assert not found, "\n".join(["name it after what it holds, such as item, entry or hold:", *found])


def test_lines_end_cleanly() -> None:
    """Every line ends with its last visible character, and every file with one newline."""
    found = [
        path
        for path in project_files()
        if (text := read(path))
        and (re.search(r"[ \t\r]$", text, re.MULTILINE) or not re.search(r"\S\n\Z", text))
    ]
    assert not found, f"remove white space at the ends of lines, end with one newline: {found}"


def test_modules_say_what_lives_in_them() -> None:
    """Every module of the packages, of lab/ and of scripts/ opens with a docstring."""
    found = [path for path in modules(*PACKAGES, "lab", "scripts") if not ast.get_docstring(tree_of(path))]
    assert not found, "\n".join(["begin with what lives here and what must not:", *found])


def test_every_test_states_its_fact() -> None:
    """Every test has a docstring: the fact that it proves."""
    found = [
        f"{path}:{test.lineno}: {test.name}"
        for path in modules("tests")
        for test in all_tests(tree_of(path))
        if not ast.get_docstring(test)
    ]
    assert not found, "\n".join(["state the fact, in the present tense, as the docstring:", *found])


def test_no_test_sleeps() -> None:
    """No test waits for a fixed time."""
    found = [
        f"{path}:{line}"
        for path in modules("tests")
        for test in all_tests(tree_of(path))
        for line in plain_sleeps(test)
    ]
    assert not found, "\n".join(
        ["wait for a condition with a deadline, or move the test's own clock:", *found]
    )


@pytest.mark.parametrize("source", ["time.sleep(1)", "await asyncio.sleep(0.1)", "if x:\n    sleep(n)"])
def test_sleep_is_found(source: str) -> None:
    """A sleep outside a loop is seen in whatever way it is written; one that polls a condition is not."""
    assert list(plain_sleeps(ast.parse(source)))
    assert not list(plain_sleeps(ast.parse("while not done():\n    time.sleep(0.01)\nasyncio.sleep(0)")))
