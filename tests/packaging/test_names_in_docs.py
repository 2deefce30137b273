"""What the documents call by name is there: files, functions of modules, and members of classes."""

import ast
import re
from pathlib import Path

import pytest

import holdfast
from redis_api.commands.table import COMMANDS
from tests.packaging.rooms import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/*.md"))
)
SOURCES = {
    path: path.read_text("utf-8") for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))
}
FOLDERS = "|".join((*PACKAGES, "lab", "scripts", "tests"))
PATH = re.compile(rf"(?<![\w/.])((?:{FOLDERS})/[\w/]+\.\w+)")
DOTTED = re.compile(r"`(_?[A-Za-z]\w*)\.(?!(?:json|md|old|py|toml|yaml)`)(\w+)`")


def words_of_modules() -> dict[str, set[str]]:
    """Return the words of the modules of each name, unless the documents call objects of the client so."""
    words: dict[str, set[str]] = {}
    for path, source in SOURCES.items():
        if path.parent.parent == ROOT / "holdfast" or path.stem.capitalize() in holdfast.__all__:
            continue
        words.setdefault(path.stem, set()).update(re.findall(r"\w+", source))
    return words


def words_of_classes() -> dict[str, set[str]]:
    """Return the words in the classes of each name."""
    words: dict[str, set[str]] = {}
    for source in SOURCES.values():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                text = ast.get_source_segment(source, node) or ""
                words.setdefault(node.name, set()).update(re.findall(r"\w+", text))
    return words


OWN_COMMANDS = {
    prefix: {name.decode().partition(".")[2] for name in COMMANDS if name.startswith(prefix.encode() + b".")}
    for prefix in ("HF", "CL")
}
OWNERS = words_of_modules() | words_of_classes() | OWN_COMMANDS
"""By module and class, every word in it; and the commands of clients of Redis that Redis does not have."""


@pytest.mark.parametrize("document", DOCUMENTS)
def test_named_files_exist(document: str) -> None:
    """Every path of ours that a document names leads to a file."""
    text = (ROOT / document).read_text("utf-8")
    missing = [path for path in PATH.findall(text) if not (ROOT / path).is_file()]
    assert not missing, f"{document}: {missing}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_named_functions_and_members_exist(document: str) -> None:
    """In `owner.name`, an owner that is a class, or a module of ours, has something of this name."""
    missing = [
        f"{owner}.{name}"
        for owner, name in DOTTED.findall((ROOT / document).read_text("utf-8"))
        if (owner in OWNERS or owner.strip("_")[0].isupper()) and name not in OWNERS.get(owner, ())
    ]
    assert not missing, f"{document}: {missing}"
