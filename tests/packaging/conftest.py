"""The wheel under test, built once, and an environment in which it is installed."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def pip(*arguments: str | Path) -> None:
    """Run pip without the network; fail with what it said."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of this checkout: the one that HOLDFAST_WHEEL names, else a new one."""
    if given := os.environ.get("HOLDFAST_WHEEL"):
        return Path(given)
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", folder, ROOT)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the `bin` folder of an environment with the installed wheel and without the checkout.

    It is the environment that HOLDFAST_INSTALLED names. Otherwise one is made without the network: it borrows
    the dependencies from the environment that runs the tests.
    """
    if given := os.environ.get("HOLDFAST_INSTALLED"):
        return Path(given) / "bin"
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    pip("--python", python, "install", "--no-deps", "--no-index", request.getfixturevalue("wheel"))
    # A folder named in a .pth file is searched, but its own .pth files, and so the checkout, are not.
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return python.parent
