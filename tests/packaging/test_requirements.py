"""The files of pinned versions agree with pyproject.toml, with each other, and with what runs these tests."""

import importlib.metadata
import platform
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from scripts.lib import pinned

ROOT = Path(__file__).resolve().parents[2]
CLIENT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
NODE = tomllib.loads((ROOT / "node" / "pyproject.toml").read_text("utf-8"))
FILES = {path.stem: path for path in sorted((ROOT / "requirements").glob("*.txt"))}
PINNED = {name: pinned.read(path) for name, path in FILES.items()}
HERE = pinned.linux(platform.python_version(), platform.machine())


def of_distributions() -> list[Requirement]:
    """Return what client and node ask for."""
    hook = NODE["tool"]["hatch"]["metadata"]["hooks"]["custom"]
    return [Requirement(text) for text in CLIENT["project"]["dependencies"] + hook["dependencies"]]


def of_group(name: str) -> list[Requirement]:
    """Return what a group of dependencies asks for, with the groups that it includes."""
    found = []
    for item in CLIENT["dependency-groups"][name]:
        found += [Requirement(item)] if isinstance(item, str) else of_group(item["include-group"])
    return found


def of_build() -> list[Requirement]:
    """Return what requirements/build.in asks for."""
    lines = (ROOT / "requirements" / "build.in").read_text("utf-8").splitlines()
    return [Requirement(text) for line in lines if (text := line.partition("#")[0].strip())]


WANTED = {
    "node": of_distributions(),
    "test": of_distributions() + of_group("test") + of_build(),
    "dev": of_distributions() + of_group("dev") + of_build(),
    "build": of_build(),
    "docs": of_group("docs"),
}
INSTALLED_HERE = ("dev", "test", "node", "build")
"""The files whose packages the tests run with in the gate. scripts/test does without dev."""


def skip_without(name: str) -> None:
    """Skip a test about the packages of dev where only those of test are installed."""
    if name == "dev" and not any(importlib.metadata.distributions(name="ruff")):
        pytest.skip("the packages of requirements/dev.txt are missing: scripts/check installs them")


def counting_here(name: str) -> dict[NormalizedName, pinned.Pinned]:
    """Return what a file pins for the Python and the machine of this test, by package."""
    here = [one for one in PINNED[name] if one.counts_for(HERE)]
    by_name = {one.name: one for one in here}
    assert len(by_name) == len(here), "a package has two versions for one Python"
    return by_name


def asked_by(package: str, extras: Iterable[str]) -> Iterator[Requirement]:
    """Yield what an installed package asks for, here and with these extras."""
    for text in importlib.metadata.requires(package) or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({**HERE, "extra": extra}) for extra in ("", *extras)):
            yield requirement


def closure(wanted: Iterable[Requirement]) -> set[NormalizedName]:
    """Return the packages that these requirements lead to, as the installed ones tell."""
    seen: set[tuple[str, tuple[str, ...]]] = set()
    left = list(wanted)
    while left:
        requirement = left.pop()
        key = (requirement.name, tuple(sorted(requirement.extras)))
        if key not in seen:
            seen.add(key)
            left += asked_by(*key)
    return {canonicalize_name(name) for name, _ in seen}


def test_there_is_one_for_each_purpose() -> None:
    """A node, the tests, the gate, the building of wheels, and that of the documentation."""
    assert set(FILES) == set(WANTED)


@pytest.mark.parametrize("name", WANTED)
def test_what_the_project_asks_for_is_pinned(name: str) -> None:
    """In a version that it allows, on every Python and machine."""
    always = {one.name: one.version for one in PINNED[name] if not one.marker}
    for requirement in WANTED[name]:
        assert requirement.marker is None
        version = always[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version, prereleases=True), f"run scripts/requirements: {name}"


@pytest.mark.parametrize("name", INSTALLED_HERE)
def test_nothing_is_left_out_and_nothing_is_left_over(name: str) -> None:
    """A file has what the project asks for, what that asks for, and so on."""
    skip_without(name)
    assert set(counting_here(name)) == closure(WANTED[name]), "run scripts/requirements"


@pytest.mark.parametrize("name", ["test", "node", "build"])
def test_what_is_tested_is_what_runs(name: str) -> None:
    """These files have versions and hashes of the file that the gate runs with."""
    tested = {(one.name, one.version, one.hashes) for one in PINNED["dev"]}
    assert {(one.name, one.version, one.hashes) for one in PINNED[name]} <= tested


@pytest.mark.parametrize("name", ["dev", "test"])
def test_this_environment_has_what_is_pinned(name: str) -> None:
    """scripts/lib/venv.sh has installed these versions."""
    skip_without(name)
    told = {package: importlib.metadata.version(package) for package in counting_here(name)}
    assert told == {package: one.version for package, one in counting_here(name).items()}


@pytest.mark.parametrize("name", FILES)
def test_no_file_says_where_packages_come_from(name: str) -> None:
    """The index is that of whoever installs: no address, no option of pip but hashes."""
    text = FILES[name].read_text("utf-8")
    assert "://" not in text
    assert set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", re.sub(r"#.*", "", text))) == {"--hash"}
    assert "Made by scripts/requirements" in text
