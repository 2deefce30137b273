"""Which environments scripts/lib/venv.sh takes for ready, and what it asks pip for otherwise."""

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FILES = ("pyproject.toml", "node/pyproject.toml", "node/hatch_build.py", "holdfast/_version.py")
PYTHON = """\
#!/bin/sh
[ "$3" = --version ] || echo "pip $*" >>"$(dirname "$0")/../asked"
"""
WITH_WHAT_A_NODE_HAS = """\
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.utils import canonicalize_name
from scripts.lib import pinned

has = {one.name for one in pinned.read(Path("requirements/node.txt"))} | {"holdfast-locks", "holdfast-node"}
for module, packages in packages_distributions().items():
    if has.isdisjoint(map(canonicalize_name, packages)):
        sys.modules[module] = None

from lab.bench import command

command.main(["peers", "--help"])
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return what counts of a checkout, with an environment whose pip only notes what it is asked for."""
    for name in (*FILES, *(f"requirements/{name}.txt" for name in ("build", "dev", "docs", "node", "test"))):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON)
    python.chmod(0o755)
    return tmp_path


def asked_for(checkout: Path, *has: str) -> list[str]:
    """Source the script as others do; return what that installed: files of requirements, and folders."""
    asked = checkout / ".venv" / "asked"
    asked.unlink(missing_ok=True)
    script = f'source {ROOT}/scripts/lib/venv.sh "$@"'
    command = ["bash", "-euo", "pipefail", "-c", script, "-", str(checkout), *has]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    lines = asked.read_text().splitlines() if asked.exists() else []
    words = [line.split() for line in lines]
    return [
        Path(word).stem or word
        for line in words
        for before, word in itertools.pairwise(line)
        if before in ("--requirement", "--editable")
    ]


def test_a_script_installs_what_it_needs(checkout: Path) -> None:
    """Once; the rest comes when a script wants it, and then all is there."""
    for has in ("node", "test", "dev"):
        assert asked_for(checkout, has) == ["build", has, ".", "node"]
        assert asked_for(checkout, "node") == asked_for(checkout, has) == []
    assert asked_for(checkout) == []


def test_benchmarks_run_with_what_a_node_has() -> None:
    """So `scripts/bench peers --help` installs no packages of tests before it answers."""
    told = subprocess.run(
        [sys.executable, "-c", WITH_WHAT_A_NODE_HAS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert told.stdout.startswith("usage: scripts/bench peers "), told.stderr


def test_documentation_is_built_without_anything_of_ours(checkout: Path) -> None:
    """Its environment has what builds pages, and no package of the project."""
    assert asked_for(checkout, "docs") == ["build", "docs"]
    assert asked_for(checkout, "docs") == []


@pytest.mark.parametrize("name", ["requirements/node.txt", "node/pyproject.toml", "pyproject.toml"])
def test_what_has_changed_is_installed_again(checkout: Path, name: str) -> None:
    """Whatever was installed before."""
    asked_for(checkout)
    with (checkout / name).open("a") as file:
        file.write("# changed\n")
    assert asked_for(checkout, "node") == ["build", "node", ".", "node"]
    assert asked_for(checkout) == ["build", "test", ".", "node"]


def test_the_version_counts_and_the_rest_of_its_module_does_not(checkout: Path) -> None:
    """The node's metadata names the version of its client."""
    module = checkout / "holdfast" / "_version.py"
    asked_for(checkout, "node")
    module.write_text(module.read_text() + "# changed\n")
    assert asked_for(checkout, "node") == []
    module.write_text(module.read_text().replace('__version__ = "', '__version__ = "9'))
    assert asked_for(checkout, "node") != []


def test_what_was_interrupted_is_not_taken_for_ready(checkout: Path) -> None:
    """An installation that failed is begun again by the next script."""
    python = checkout / ".venv" / "bin" / "python"
    python.write_text(PYTHON + '[ "$3" != install ]\n')
    with pytest.raises(subprocess.CalledProcessError):
        asked_for(checkout, "node")
    python.write_text(PYTHON)
    assert asked_for(checkout, "node") == ["build", "node", ".", "node"]
