"""The wheels under test, built once, and an environment in which they are installed."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Wheels(NamedTuple):
    """The two distributions."""

    client: Path
    node: Path


def pip(*arguments: str | Path) -> None:
    """Run pip without the network; fail with what it said."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    """Return the wheels of this checkout: those in the folder that HOLDFAST_WHEELS names, else new ones."""
    if given := os.environ.get("HOLDFAST_WHEELS"):
        folder = Path(given)
    else:
        folder = tmp_path_factory.mktemp("wheels")
        offline = ("--no-deps", "--no-index", "--no-build-isolation")
        pip("wheel", *offline, "--wheel-dir", folder, ROOT, ROOT / "node")
    (client,), (node,) = folder.glob("holdfast_locks-*.whl"), folder.glob("holdfast_node-*.whl")
    return Wheels(client, node)


def make_environment(folder: Path, *wheels: Path) -> Path:
    """Make an environment with these wheels and without the checkout; return its `bin` folder.

    That takes no network: it borrows the dependencies from the environment that runs the tests.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    pip("--python", python, "install", "--no-deps", "--no-index", *wheels)
    # A folder named in a .pth file is searched, but its own .pth files, and so the checkout, are not.
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return python.parent


@pytest.fixture(scope="session")
def client_programs(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the `bin` folder of an environment in which only the client is installed."""
    return make_environment(tmp_path_factory.mktemp("client"), wheels.client)


@pytest.fixture(scope="session")
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the `bin` folder of an environment with both wheels (or HOLDFAST_INSTALLED)."""
    if given := os.environ.get("HOLDFAST_INSTALLED"):
        return Path(given) / "bin"
    return make_environment(tmp_path_factory.mktemp("installed"), *request.getfixturevalue("wheels"))
