"""Random defects: what is changed, and who is said to notice it."""

import ast
from pathlib import Path

import pytest

from lab.mutants import command
from lab.mutants.mutations import mutants

SOURCE = '''
LIMIT = 3


def is_over(count: int = 1) -> bool:
    """Say it."""
    assert count > 0
    return not count < LIMIT and count != 7
'''
TEST = """
from tiny import counting


def test_limit():
    assert counting.is_over(3)
    assert not counting.is_over(2)
"""


def test_one_thing_is_changed_at_a_time() -> None:
    """In what a function does: no constant of the module, no assertion, no default, no docstring."""
    found = {(mutant.line, mutant.before, mutant.after) for mutant in mutants(SOURCE)}
    assert found == {
        (8, "not count < LIMIT and count != 7", "(not count < LIMIT or count != 7)"),
        (8, "not count < LIMIT", "(count < LIMIT)"),
        (8, "count < LIMIT", "(count <= LIMIT)"),
        (8, "count != 7", "(count == 7)"),
        (8, "7", "(8)"),
    }


@pytest.mark.parametrize(
    "path", sorted((command.ROOT / command.PACKAGE).rglob("*.py")), ids=lambda path: path.stem
)
def test_a_mutant_is_a_module(path: Path) -> None:
    """Each can be read, and is another program than before."""
    text = path.read_text("utf-8")
    sound = ast.dump(ast.parse(text))
    for mutant in mutants(text)[::50]:
        assert ast.dump(ast.parse(mutant.of(text))) != sound


def test_what_no_test_notices_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The others are told with the tests that did; each copy is as before in the end."""
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "counting.py").write_text(SOURCE, "utf-8")
    (tmp_path / "test_tiny.py").write_text(TEST, "utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n", "utf-8")
    places = command.draw(tmp_path, "tiny", 9, seed=1)
    assert len(places) == 5
    assert places == command.draw(tmp_path, "tiny", 9, seed=1)
    unnoticed = command.survivors(tmp_path, places, ["test_tiny.py"], jobs=2)
    assert [place.mutant.after for place in unnoticed] == ["(8)"]
    printed = capsys.readouterr().out
    assert "NOT NOTICED: tiny/counting.py:8: 7  ->  (8)\n" in printed
    assert printed.count("test_tiny.py: tiny/counting.py:8: ") == 4


def test_tests_that_fail_by_themselves_notice_nothing(tmp_path: Path) -> None:
    """There is nothing to tell then."""
    (tmp_path / "test_tiny.py").write_text("def test_it():\n    assert False\n", "utf-8")
    with pytest.raises(SystemExit, match="fails without any change"):
        command.survivors(tmp_path, [], ["test_tiny.py"], jobs=1)
