"""The two wheels that users install, opened: which files, commands and metadata are in them."""

import ast
import configparser
import email.message
import email.parser
import re
import sysconfig
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

import holdfast
from tests.packaging import rooms
from tests.packaging.conftest import Wheels

ROOT = Path(__file__).resolve().parents[2]
UI = ROOT / "http_api" / "ui"
ALL_PACKAGES = set(rooms.PACKAGES)
CLIENT, NODE = "holdfast_locks", "holdfast_node"
PACKAGES: Final = {CLIENT: {"holdfast"}, NODE: ALL_PACKAGES - {"holdfast"}}
COMMANDS: Final = {
    CLIENT: {"holdfast": "holdfast.cli.main:main"},
    NODE: {"holdfast-node": "http_api.__main__:main"},
}
VERSION: Final = holdfast.__version__


@pytest.fixture(params=[CLIENT, NODE])
def wheel(request: pytest.FixtureRequest, wheels: Wheels) -> Path:
    """Return each of the wheels."""
    return wheels.client if request.param == CLIENT else wheels.node


def kind_of(wheel: Path) -> str:
    """Return which of the two it is."""
    return wheel.name.partition("-")[0]


def names_in(wheel: Path) -> list[str]:
    """Return the paths inside a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def read(wheel: Path, name: str) -> str:
    """Return a text of the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(name).decode("utf-8")


def metadata(wheel: Path) -> email.message.Message:
    """Return the wheel's metadata."""
    return email.parser.Parser().parsestr(read(wheel, f"{kind_of(wheel)}-{VERSION}.dist-info/METADATA"))


def entry_points(wheel: Path) -> Mapping[str, Mapping[str, str]]:
    """Return what the wheel installs, by group."""
    parser = configparser.ConfigParser()
    parser.read_string(read(wheel, f"{kind_of(wheel)}-{VERSION}.dist-info/entry_points.txt"))
    return {group: dict(parser[group]) for group in parser.sections()}


def project(path: str) -> Any:
    """Return a pyproject.toml."""
    return tomllib.loads((ROOT / path / "pyproject.toml").read_text("utf-8"))


def test_every_list_of_packages_is_the_same() -> None:
    """The wheels and the type checker take the packages whose imports are checked, and no other."""
    wheel = project(".")["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert set(wheel["packages"]) == PACKAGES[CLIENT]
    wheel = project("node")["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert set(wheel["hooks"]["custom"]["packages"]) == PACKAGES[NODE]
    assert set(project(".")["tool"]["mypy"]["packages"]) == ALL_PACKAGES | {"lab", "scripts", "tests"}
    assert {path.parent.name for path in ROOT.glob("*/py.typed")} == ALL_PACKAGES


def test_an_editable_installation_copies_nothing() -> None:
    """It leads to the checkout: a copy beside it would be what runs, and would grow old."""
    installed = Path(sysconfig.get_path("purelib"))
    assert {package for package in ALL_PACKAGES if (installed / package).exists()} == set()


def test_wheel_is_pure_python(wheel: Path) -> None:
    """One wheel serves every machine and Python, and both have the version that the client tells."""
    assert wheel.name == f"{kind_of(wheel)}-{VERSION}-py3-none-any.whl"


def test_wheel_has_only_its_packages(wheel: Path) -> None:
    """No other top-level folder is installed: it would overwrite those of others."""
    tops = {name.partition("/")[0] for name in names_in(wheel)}
    assert tops == PACKAGES[kind_of(wheel)] | {f"{kind_of(wheel)}-{VERSION}.dist-info"}


def test_wheel_has_every_module_and_nothing_else(wheel: Path) -> None:
    """Each source file of the packages is in the wheel, with its py.typed, the files of the page, and Lua."""
    packages = PACKAGES[kind_of(wheel)]
    inside = {name for name in names_in(wheel) if name.partition("/")[0] in packages}
    sources = {
        path.relative_to(ROOT).as_posix() for package in packages for path in (ROOT / package).rglob("*.py")
    }
    others = {f"{package}/py.typed" for package in packages}
    if "cluster" in packages:
        page = [path for folder in ("static", "templates") for path in (UI / folder).rglob("*.*")]
        others |= {
            "cluster/commit.txt",
            *(path.relative_to(ROOT).as_posix() for path in (ROOT / "redis_api").rglob("*.lua")),
            *(path.relative_to(ROOT).as_posix() for path in page),
        }
    assert inside == sources | others


def test_wheel_has_the_licence(wheel: Path) -> None:
    """The text of the licence comes with each wheel."""
    text = read(wheel, f"{kind_of(wheel)}-{VERSION}.dist-info/licenses/LICENSE")
    assert text == (ROOT / "LICENSE").read_text("utf-8")


def test_commands_are_those_of_the_documentation(wheel: Path) -> None:
    """The client installs the command holdfast, and the node holdfast-node."""
    assert entry_points(wheel)["console_scripts"] == COMMANDS[kind_of(wheel)]


def test_the_client_brings_the_fixtures(wheels: Wheels) -> None:
    """A project that tests with pytest has them without a word of its own, once."""
    plugin = "holdfast.testing.plugin"
    assert entry_points(wheels.client)["pytest11"] == {plugin: plugin}
    assert "pytest11" not in entry_points(wheels.node)


def test_commands_lead_to_functions(wheel: Path) -> None:
    """Every command names a module of the wheel, and a function that this module defines."""
    for target in entry_points(wheel)["console_scripts"].values():
        module, _, function = target.partition(":")
        tree = ast.parse(read(wheel, f"{module.replace('.', '/')}.py"))
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, target


def test_the_client_asks_for_two_packages(wheels: Wheels) -> None:
    """It runs on Linux, macOS and Windows; only `holdfast cert` wants something more."""
    told = metadata(wheels.client)
    assert told["Requires-Python"] == ">=3.11"
    assert required(told, "") == ["aiohttp", "msgspec"]
    assert told.get_all("Provides-Extra") == ["cert"]
    assert required(told, "cert") == ["cryptography"]
    systems = [one for one in told.get_all("Classifier", []) if one.startswith("Operating System")]
    assert {one.rpartition(" ")[2] for one in systems} == {"Linux", "MacOS", "Windows"}


def test_the_node_asks_for_the_client_of_its_version(wheels: Wheels) -> None:
    """And for three packages more, of which one release of pysyncobj fits."""
    told = metadata(wheels.node)
    assert told["Requires-Python"] == ">=3.11"
    assert required(told, "") == ["holdfast-locks", "jinja2", "pysyncobj", "uvloop"]
    texts = told.get_all("Requires-Dist", [])
    assert {f"holdfast-locks=={VERSION}", "pysyncobj==0.3.17"} <= set(texts)


def required(told: email.message.Message, extra: str) -> list[str]:
    """Return the names of the packages that an extra asks for, or that everybody needs."""
    texts = [text.partition(";") for text in told.get_all("Requires-Dist", [])]
    wanted = [
        name for name, _, condition in texts if condition.strip() == (f"extra == '{extra}'" if extra else "")
    ]
    return sorted(re.split("[<>=]", name)[0] for name in wanted)


NAMES: Final = re.compile(r"pip install[^\n`]*?['\" ](holdfast(?!-locks|-node)\b(?![./])[^\s'\"`]*)")


def test_no_text_says_to_install_what_is_not_ours() -> None:
    """On the package index `holdfast` is somebody else's: nothing of ours tells anybody to install that."""
    kinds = {".py", ".md", ".toml", ".sh", ".txt", ".in", ".yaml", ""}
    folders = (*ALL_PACKAGES, "node", "lab", "scripts", "deploy", "docs", ".ci")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in kinds]
    files += ROOT.glob("*.md")
    texts = {path: path.read_text("utf-8") for path in files if path.is_file() and "wheels" not in path.parts}
    assert {path: found for path, text in texts.items() if (found := NAMES.findall(text))} == {}


def test_a_wrong_name_is_found() -> None:
    """In quotes, with an extra, behind an option; folders and our own names are right."""
    for text in ("pip install 'holdfast[node]'", "pip install holdfast", "pip install -U holdfast==1"):
        assert NAMES.search(text), text
    for text in ("pip install holdfast-locks", "pip install 'holdfast-locks[cert]'", "pip install . ./node"):
        assert not NAMES.search(text), text
