"""The wheel that users install, opened: which files, commands and metadata are in it."""

import ast
import configparser
import email.message
import email.parser
import re
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.packaging import rooms

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = set(rooms.PACKAGES)
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = PYPROJECT["project"]


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[str]:
    """Return the paths inside the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def read(wheel: Path, name: str) -> str:
    """Return a text of the wheel's metadata folder, or a module."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(name).decode("utf-8")


def metadata(wheel: Path) -> email.message.Message:
    """Return the wheel's metadata."""
    return email.parser.Parser().parsestr(read(wheel, f"holdfast-{PROJECT['version']}.dist-info/METADATA"))


def entry_points(wheel: Path) -> dict[str, str]:
    """Return the commands that the wheel installs."""
    parser = configparser.ConfigParser()
    parser.read_string(read(wheel, f"holdfast-{PROJECT['version']}.dist-info/entry_points.txt"))
    return dict(parser["console_scripts"])


def test_every_list_of_packages_is_the_same() -> None:
    """The wheel and the type checker take the packages whose imports are checked, and no other."""
    built = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    checked = PYPROJECT["tool"]["mypy"]["packages"]
    assert set(built) == PACKAGES
    assert set(checked) == PACKAGES | {"scripts", "tests"}
    assert {path.parent.name for path in ROOT.glob("*/py.typed")} == PACKAGES


def test_wheel_is_pure_python(wheel: Path) -> None:
    """One wheel serves every machine and Python."""
    assert wheel.name == f"holdfast-{PROJECT['version']}-py3-none-any.whl"


def test_wheel_has_only_our_packages(names: list[str]) -> None:
    """No other top-level folder is installed: tests, scripts or deploy would overwrite those of others."""
    tops = {name.partition("/")[0] for name in names}
    assert tops == PACKAGES | {f"holdfast-{PROJECT['version']}.dist-info"}


def test_wheel_has_every_module_and_nothing_else(names: list[str]) -> None:
    """Each source file of the packages is in the wheel, with its py.typed, and no other kind of file."""
    inside = {name for name in names if name.partition("/")[0] in PACKAGES}
    sources = {
        path.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob("*.py")
    }
    assert inside == sources | {f"{package}/py.typed" for package in PACKAGES}


def test_wheel_has_the_licence(names: list[str]) -> None:
    """The text of the licence comes with the wheel."""
    assert f"holdfast-{PROJECT['version']}.dist-info/licenses/LICENSE" in names


def test_commands_are_those_of_the_documentation(wheel: Path) -> None:
    """The wheel installs the commands holdfast and holdfast-node."""
    assert entry_points(wheel) == {
        "holdfast": "holdfast.cli.main:main",
        "holdfast-node": "http_api.program:main",
    }


def test_commands_lead_to_functions(wheel: Path) -> None:
    """Every command names a module of the wheel, and a function that this module defines."""
    for target in entry_points(wheel).values():
        module, _, function = target.partition(":")
        tree = ast.parse(read(wheel, f"{module.replace('.', '/')}.py"))
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, target


def test_metadata_names_python_and_dependencies(wheel: Path) -> None:
    """It asks for Python 3.11, and for two packages, a node for two more; one release of pysyncobj fits."""
    told = metadata(wheel)
    assert told["Requires-Python"] == ">=3.11"
    assert required(told, "") == ["aiohttp", "msgspec"]
    assert required(told, "node") == ["pysyncobj", "uvloop"]
    assert any(text.startswith("pysyncobj==0.3.17;") for text in told.get_all("Requires-Dist", []))


def required(told: email.message.Message, extra: str) -> list[str]:
    """Return the names of the packages that an extra asks for, or that everybody needs."""
    texts = [text.partition(";") for text in told.get_all("Requires-Dist", [])]
    wanted = [
        name for name, _, condition in texts if condition.strip() == (f"extra == '{extra}'" if extra else "")
    ]
    return sorted(re.split("[<>=]", name)[0] for name in wanted)
