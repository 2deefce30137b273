"""scripts/figures: it counts what it says it counts."""

from pathlib import Path

import pytest

from lab import figures

SOURCES = {
    "lockstate/words/versions.py": "RULES = (Rules(1), Rules(2))\n",
    "lockstate/words/commands/holds.py": "".join(
        f"class C{i}(Command, tag={i}):\n    priority = 0\n" for i in range(12)
    ),
    "lockstate/machine.py": "from lockstate.words.commands.holds import *\n"
    f"ALL = ({', '.join(f'C{i}' for i in range(10))})\n"
    "def f(state):\n    return state.rules >= 2 or state.rules in ALL or state.rules\n",
    "cluster/group.py": "class Group:\n    def __init__(self):\n        self.a = self.b = 1\n"
    "        self.part.owner = self\n    def f(self):\n        self.a = 2\n",
    "cluster/parts.py": "class Part(Protocol):\n    a = 1\nclass _Row(Protocol[T]):\n    b = 2\n"
    "class Group2:\n    c = 3\n",
    "holdfast/stream.py": "class Group2:\n    d = 4\nclass _Ask(Base, tag=4):\n    e = 5\n"
    "KINDS = frozenset({4, 19, 4000})\n",
    "tests/test_all.py": "lock_delay = 1\n",
}


def tree(root: Path) -> figures.Tree:
    """Write a small product, with its tests, and return it."""
    for path, text in SOURCES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    for package in ("lockstate", "cluster", "holdfast"):
        (root / package / "py.typed").touch()
    return figures.Tree(root)


def test_every_figure_is_counted_in_the_text(tmp_path: Path) -> None:
    """Each of them has the number that can be counted by hand in a small product."""
    product = tree(tmp_path)
    assert {name: count(product) for name, count in figures.FIGURES.items()} == {
        "versions of the rules": 2,
        "comparisons of `rules` in lockstate": 2,
        "files that name ten or more commands": 1,
        "files with `lock_delay`": 0,
        "files with `no_deadline` or `is_endless`": 0,
        "files with `priority`": 1,
        "names of public classes in several files": 1,
        "tags by number in the client": 2,
        "floors of lockstate": 2,
        "floors of holdfast": 1,
        "arrows upward in the whole house": 0,
        "Group: methods, attributes": (2, 2),
        "late assignments in cluster": 1,
        "protocol classes in cluster": 2,
        "lines of the product": sum(text.count("\n") for text in SOURCES.values()) - 1,
        "lines of tests": 1,
    }


def test_names_in_several_files_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They come with the files, behind the table."""
    tree(tmp_path)
    assert figures.main([str(tmp_path), "--names"]) == 0
    assert capsys.readouterr().out.endswith("\n\nGroup2: cluster/parts.py, holdfast/stream.py\n")
