"""The simulator finds defects: every mutation comes and goes without a trace, and some are hunted for here.

All of them: `scripts/simulate --mutation all`, which takes minutes.
"""

import importlib
import inspect
import pkgutil
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

import pytest

from tests.simulation.mutations import command, swarm
from tests.simulation.mutations.catalogue import MUTATIONS, SURVIVORS
from tests.simulation.mutations.hunt import Hunt, hunt
from tests.simulation.mutations.mutation import Mutation, Surroundings, replaced
from tests.simulation.world.files import SimFiles
from tests.simulation.world.inode import Inode
from tests.simulation.world.patches import PACKAGES

ROOT = Path(__file__).resolve().parents[3]
Product: TypeAlias = dict[tuple[str, str], object]
"""Attributes, each by what it is of and its name."""
ROW = re.compile(
    r"^\| `([a-z0-9-]+)` \| (.*?) \| `([a-z-]+)` \| (\d+) \| (\d+) x [\d.]+ min \|"
    r"(?: (\d+ s|not in \d+ s) \|)?$",
    re.MULTILINE,
)
QUICK = (
    "vote-not-stored",
    "queue-overtaken",
    "reads-without-barrier",
    "several-unchecked",
    "sliding-window-off-by-one",
)
"""Found within seconds, each by another kind of checker."""
FACTS_OF_CHECKERS = re.compile(r'"([a-z]+(?:-[a-z]+)+|reply|exclusion|liveness|agreement|uncaught)"')


def named(name: str) -> Mutation:
    """Return the mutation of this name."""
    return next(mutation for mutation in MUTATIONS if mutation.name == name)


@cache
def holders() -> dict[str, object]:
    """Return the product's modules and classes, and those of the simulated disk, by what they are called."""
    modules = [importlib.import_module(name) for name in sorted(_module_names())]
    found: list[object] = [*modules, SimFiles, Inode]
    for module in modules:
        found += [each for _, each in inspect.getmembers(module, inspect.isclass) if _is_ours(each, module)]
        # Classes that are made for a table, as those of tickets by priority.
        tables = [table for table in vars(module).values() if isinstance(table, dict)]
        found += [each for table in tables for each in table.values() if inspect.isclass(each)]
    return {str(holder): holder for holder in found}


def product() -> Product:
    """Return every attribute that these have now; each mutation is compared by many thousand of them."""
    return {
        (of, name): dict(value) if isinstance(value, dict) else value
        for of, holder in holders().items()
        for name, value in vars(holder).items()
        if not name.startswith("__") and name != "_abc_impl"
    }


def _module_names() -> list[str]:
    return [
        found.name
        for package in PACKAGES
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    ]


def _is_ours(each: type, module: ModuleType) -> bool:
    return each.__module__ == module.__name__


def changed(before: Product, after: Product) -> list[tuple[str, str]]:
    """Return what is another thing now."""
    same_kind = (int, float, str, bytes, tuple, frozenset, dict)
    return [
        name
        for name in before.keys() | after.keys()
        if before.get(name) is not after.get(name)
        and not (isinstance(before.get(name), same_kind) and before.get(name) == after.get(name))
    ]


@pytest.mark.parametrize("mutation", [*MUTATIONS, *SURVIVORS], ids=lambda mutation: mutation.name)
def test_mutation_comes_and_goes(mutation: Mutation) -> None:
    """A mutation changes the product while it is applied, and leaves nothing of itself behind."""
    before = product()
    with mutation.surroundings.around():
        around = product()
        with mutation.apply():
            assert changed(around, product()), "nothing was changed"
    assert not changed(before, product())


def test_names_are_unique() -> None:
    """No two mutations have the same name, and there are more than fifteen."""
    names = [mutation.name for mutation in (*MUTATIONS, *SURVIVORS)]
    assert len(set(names)) == len(names) > 15


def test_a_mutation_takes_what_the_original_takes() -> None:
    """Else it would fail in the product's place, and be found for that."""

    class Product:
        def act(self, one: int, two: int = 0, *, is_three: bool) -> int:
            return one + two + is_three

    def act_alike(_product: Product, *rest: int, is_three: bool) -> int:
        return sum(rest) - is_three

    def act_on_one(_product: Product, one: int, *, is_three: bool) -> int:
        return one - is_three

    with replaced(Product, "act", act_alike)():
        assert Product().act(1, 2, is_three=True) == 2
    with pytest.raises(AssertionError, match="takes other arguments: the mutation is out of date"):
        replaced(Product, "act", act_on_one)


def test_every_mutation_is_documented() -> None:
    """docs/robustness.md says of each mutation who found it, within its budget, and of no others."""
    text = (ROOT / "docs" / "robustness.md").read_text("utf-8")
    rows = {
        name: (sentence, found_by, int(needed), int(budget), swarm)
        for name, sentence, found_by, needed, budget, swarm in ROW.findall(text)
    }
    assert rows.keys() == {mutation.name for mutation in MUTATIONS}
    for mutation in MUTATIONS:
        sentence, found_by, needed, budget, swarm = rows[mutation.name]
        assert swarm, mutation.name
        assert sentence == mutation.sentence
        assert found_by in mutation.found_by
        assert needed <= budget == mutation.seeds_max


def test_every_survivor_is_explained() -> None:
    """docs/robustness.md says of each defect that nobody finds why it does no harm."""
    text = (ROOT / "docs" / "robustness.md").read_text("utf-8")
    told = re.findall(r"^\| `([a-z-]+)` \| ([^|]+) \| ([^|]{40,}) \|$", text, re.MULTILINE)
    explained = {name: sentence for name, sentence, _ in told}
    assert {one.name: one.sentence for one in SURVIVORS}.items() <= explained.items()


def test_expected_checkers_exist() -> None:
    """Every checker that a mutation names is one that some file of the simulation speaks for."""
    folder = ROOT / "tests" / "simulation"
    paths = [path for path in folder.rglob("*.py") if path.parent.name != "mutations"]
    sources = [path.read_text("utf-8") for path in paths]
    known = {name for source in sources for name in FACTS_OF_CHECKERS.findall(source)}
    expected = {name for mutation in MUTATIONS for name in mutation.found_by}
    assert not expected - known


@pytest.mark.parametrize("name", QUICK)
def test_quick_mutation_is_found(name: str) -> None:
    """A defect is found in one of the first worlds, by a checker that is for it."""
    one = hunt(named(name), 3)
    assert one.is_found, command.told(one)
    assert one.is_expected, command.told(one)


def test_a_sound_product_is_not_found_guilty() -> None:
    """A hunt for a mutation that changes nothing finds nothing."""
    harmless = Mutation(
        name="none",
        sentence="Nothing.",
        found_by=(),
        apply=Surroundings().around,
        surroundings=Surroundings(minutes=0.2),
        seeds_max=1,
    )
    one = hunt(harmless)
    assert not one.is_found
    assert one.seeds_count == 1
    assert "NOT FOUND" in command.told(one)


def test_table_says_what_was_found() -> None:
    """The table has one row for each hunt, as docs/robustness.md shows it."""
    mutation = named("queue-overtaken")
    hunts = [Hunt(mutation=mutation, checker="reply", seed=2, seeds_count=2, seeds_max=10)]
    (row,) = ROW.findall(command.table(hunts))
    assert row == (mutation.name, mutation.sentence, "reply", "2", "10", "")


def test_hunt_in_the_swarm_goes_on(tmp_path: Path) -> None:
    """A hunt in plain worlds finds a defect, writes down by which seed, and is over when it is repeated."""
    path = tmp_path / "results"
    mutation = named("vote-not-stored")
    found = swarm.hunt_in_rounds([mutation], [60.0], path)[mutation.name]
    assert found.checker in mutation.found_by
    assert swarm.read(path) == {mutation.name: found}
    again = swarm.hunt_in_rounds([mutation], [60.0, 60.0], path)[mutation.name]
    assert again == found
    assert "vote-not-stored: " in swarm.told(found)
    assert swarm.summary([found]).startswith("found by the plain swarm: 1 of 1;")
    lost = swarm.Found(name="lost", worlds=3)
    assert swarm.summary([found, lost]).endswith("1 of 2; not: lost")
