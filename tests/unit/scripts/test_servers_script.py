"""What the gate installs for the tests of recipes: what is missing, where it may, and nothing else."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Return a folder that is all of PATH, with proxies, PostgreSQL, its library, a browser; no Redis."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("bash", "grep", "ln", "timeout"):
        found = shutil.which(tool)
        assert found
        (folder / tool).symlink_to(found)
    for program in ("initdb", "nginx", "haproxy", "chromium"):
        put(folder, program, "")
    put(folder, "ldconfig", "echo libpq.so.5")
    return folder


def put(folder: Path, name: str, program: str) -> None:
    """Put a program into a folder."""
    (folder / name).write_text(f"#!{folder / 'bash'}\n{program}\n")
    (folder / name).chmod(0o755)


def put_apt(programs: Path, on_install: str) -> Path:
    """Put an apt-get there that notes its arguments; return where."""
    notes = programs.parent / "notes"
    put(programs, "apt-get", f'echo "$*" >> {notes}; cd {programs}; [[ "$*" != *install* ]] || {on_install}')
    return notes


def bash(programs: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Run a line of shell that knows the script."""
    return subprocess.run(
        [programs / "bash", "-uc", f"source {ROOT}/scripts/lib/servers.sh; {line}"],
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_is_missing_is_named(programs: Path) -> None:
    """A server that is not found is missing, and so is the library; what is found is not."""
    assert bash(programs, "holdfast_missing_servers").stdout.split() == ["redis-server"]
    put(programs, "redis-server", "")
    put(programs, "ldconfig", "echo libc.so.6")
    assert bash(programs, "holdfast_missing_servers").stdout.split() == ["libpq5"]


def test_nothing_is_installed_when_nothing_is_missing(programs: Path) -> None:
    """With all programs there, no package manager is asked."""
    put(programs, "redis-server", "")
    notes = put_apt(programs, "exit 100")
    assert bash(programs, "holdfast_install_servers").returncode == 0
    assert not notes.exists()


def test_without_a_package_manager_the_missing_is_said(programs: Path) -> None:
    """Where there is no apt-get, the exit code and a sentence say what is missing."""
    done = bash(programs, "holdfast_install_servers")
    assert done.returncode == 1
    assert "apt-get install redis-server" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root installs packages")
@pytest.mark.parametrize(
    ("on_install", "exit_code"),
    [("ln -s initdb redis-server", 0), ("{ echo no such package; exit 100; }", 1), ("true", 1)],
)
def test_root_installs_what_is_missing(programs: Path, on_install: str, exit_code: int) -> None:
    """Only what is missing is installed. The exit code says whether it is there then; a failure is shown."""
    notes = put_apt(programs, on_install)
    done = bash(programs, "holdfast_install_servers")
    assert done.returncode == exit_code
    assert [line.partition("=60 ")[2] for line in notes.read_text().splitlines()] == [
        "update",
        "install --yes --no-install-recommends redis-server",
    ]
    assert ("no such package" in done.stderr) == ("no such package" in on_install)
