"""The page about three machines as a reader follows it, on loopback: folders are the machines.

Its commands run as they are, in order, in one shell. Only `on` and `put`, which go over ssh, lead into the
folder of a machine instead, where `/etc`, `/opt` and `/var` are. What needs root has a stand-in that records
what it was asked for: `useradd`, `chgrp`, and `systemctl`, which starts what the unit starts.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

import pytest

from scripts.lib import ports
from tests.packaging.test_guides import blocks, script_of
from tests.packaging.test_readme import MARKER, as_pattern

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = (ROOT / "docs/three-machines.md").read_text("utf-8")
BLOCKS: Final = blocks(PAGE)
RUN_S_MAX: Final = 500
NODES: Final = ("n1", "n2", "n3")

MACHINES: Final = """
here() { sed -E "s#(^|[ =])/(etc|opt|var/lib)/#\\\\1$MACHINES/$1/\\\\2/#g"; }
on() {
    local command=$(here "$1" <<<"${*:2}")
    MACHINE=$MACHINES/$1 PATH=$STAND_INS:/usr/bin:/bin bash -e -o pipefail -c "$command"
}
put() {
    local node=$1 folder=$(here "$1" <<<"$2") file
    for file in "${@:3}"; do
        case $file in
        *.env | *.service) here "$node" <"$file" >"$folder/${file##*/}" ;;
        *) cp "$file" "$folder" ;;
        esac
    done
}
"""
"""In the place of ssh and scp. Paths in what a machine reads lead into its folder."""

RECORD: Final = """#!/bin/sh
echo "${0##*/} $*" >>"$MACHINE/asked"
"""
SYSTEMCTL: Final = """#!/bin/bash
set -eu
echo "systemctl $*" >>"$MACHINE/asked"
case "$*" in
daemon-reload) ;;
"enable --now holdfast")
    setting() { sed -n "s/^$1=//p" "$MACHINE/etc/systemd/system/holdfast.service"; }
    unset "${!HOLDFAST_@}" "${!PYTHON@}"
    set -a
    source "$(setting EnvironmentFile)"
    export "$(setting Environment)"
    mkdir -p -m "$(setting StateDirectoryMode)" "$MACHINE/var/lib/$(setting StateDirectory)"
    $(setting ExecStart) </dev/null >>"$MACHINE/log" 2>&1 &
    echo $! >"$MACHINE/pid"
    ;;
"reload holdfast") kill -HUP "$(<"$MACHINE/pid")" ;;
*) echo "the stand-in for systemctl does not know: $*" >&2 && exit 1 ;;
esac
"""
PYTHON: Final = """#!/bin/sh -e
"{python}" "$@"
[ "$1 $2" = "-m venv" ] || exit 0
cd "$3"/lib/python*/site-packages
rm -rf setuptools*
echo "{borrowed}" >borrowed.pth
"""
"""What it makes an environment of has our dependencies: pip compares their versions, and fetches nothing.

Python 3.11 puts an old setuptools into environments, which would be found before the pinned one.
"""


def make_stand_ins(folder: Path) -> None:
    """Write the programs that a machine of the test has in the place of its own."""
    borrowed = folder / "borrowed"
    borrowed.mkdir(parents=True)
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "holdfast" not in path.name:  # those are to be installed
            (borrowed / path.name).symlink_to(path)
    programs = dict.fromkeys(("useradd", "chgrp"), RECORD)
    programs |= {
        "systemctl": SYSTEMCTL,
        "python3": PYTHON.format(python=sys.executable, borrowed=borrowed),
    }
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


def loopback() -> dict[str, str]:
    """Return what stands for the addresses and ports of the page."""
    http, peer = ports.reserve(2)
    return {"10.0.0.": "127.0.0.", ":7700": f":{http}", ":7800": f":{peer}"}


def follow(folder: Path) -> list[str]:
    """Follow the page in a folder; return what each block printed, as if on the machines of the page."""
    (folder / "src").symlink_to(ROOT)
    for node in NODES:
        (folder / "machines" / node / "etc/systemd/system").mkdir(parents=True)
        (folder / "machines" / node / "opt").mkdir()
    make_stand_ins(folder / "stand-ins")
    first, *others = BLOCKS
    script = script_of([first._replace(text=first.text + MACHINES), *others])
    replaced = loopback()
    for old, new in replaced.items():
        script = script.replace(old, new)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    environment |= {
        "MACHINES": str(folder / "machines"),
        "STAND_INS": str(folder / "stand-ins"),
        "PATH": f"{folder / 'stand-ins'}:{os.environ['PATH']}",
        "PIP_NO_INDEX": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    with (folder / "printed").open("w") as printed:
        reader = subprocess.Popen(
            ["bash", "-e", "-c", script],  # a reader's shell has no pipefail
            cwd=folder,
            env=environment,
            stdout=printed,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        reader.wait(RUN_S_MAX)
    finally:
        with contextlib.suppress(ProcessLookupError):  # no node was started
            os.killpg(reader.pid, signal.SIGKILL)
        reader.wait()
    output = (folder / "printed").read_text("utf-8")
    for old, new in replaced.items():
        output = output.replace(new, old)
    return output.split(f"\n{MARKER}\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that the reader works in; below it `machines` has one for each node."""
    if shutil.which("curl") is None or shutil.which("openssl") is None:
        pytest.skip("needs curl and openssl")
    return tmp_path_factory.mktemp("reader")


@pytest.fixture(scope="module")
def outputs(folder: Path) -> list[str]:
    """Follow the page from its first block to its last."""
    return follow(folder)


@pytest.mark.process
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block_prints_what_is_shown(outputs: list[str], number: int) -> None:
    """Each block runs to a good end, and prints what is shown below it, if anything is."""
    assert number < len(outputs) - 1, f"an earlier block failed: {outputs[-1]}"
    block, printed = BLOCKS[number], outputs[number].strip("\n") + "\n"
    assert not block.shown or re.fullmatch(as_pattern(block.shown), printed), f"{block.text}\n{printed}"


@pytest.mark.process
@pytest.mark.usefixtures("outputs")
@pytest.mark.parametrize("node", NODES)
def test_what_a_machine_has_is_for_root_and_the_node(folder: Path, node: str) -> None:
    """No file of it can be read by others, and all that is there was given to the group of the node."""
    machine = folder / "machines" / node
    settings, data = machine / "etc/holdfast", machine / "var/lib/holdfast"
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in settings.iterdir() if path.is_file()}
    assert modes == dict.fromkeys(modes, "0o640")
    assert [oct(path.stat().st_mode & 0o777) for path in (settings, data)] == ["0o750", "0o700"]
    given = re.findall(r"^chgrp holdfast (.*)$", (machine / "asked").read_text(), re.MULTILINE)
    assert {str(settings), *modes} <= set(" ".join(given).split())


@pytest.mark.process
@pytest.mark.usefixtures("outputs")
@pytest.mark.parametrize("node", NODES)
def test_no_node_is_open(folder: Path, node: str) -> None:
    """It requires TLS and tokens of clients, and TLS of other nodes, and has read what was exchanged."""
    log = (folder / "machines" / node / "log").read_text("utf-8")
    assert "event=founded" in log
    assert "event=tokens-read" in log
    assert not re.search("event=(?:insecure|peer-tls-not-required|tls-not-read|tokens-not-read)", log)
    assert "event=tls-read" in log
