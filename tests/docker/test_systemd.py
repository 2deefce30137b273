"""A node under a real systemd: the unit of the Debian package on one machine, and the page on three."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from scripts.lib import guardian
from tests.docker import systemd_machines
from tests.docker.compose_cluster import NODE_IDS, docker, wait_for
from tests.docker.systemd_machines import Machine
from tests.packaging.test_guides import script_of
from tests.packaging.test_readme import MARKER, as_pattern
from tests.packaging.test_three_machines import BLOCKS

pytestmark = pytest.mark.docker

AS_NODE: Final = (
    "setpriv --reuid holdfast --regid holdfast --init-groups"
    " sh -ac '. /etc/holdfast/node.env; HOLDFAST_DATA_DIR=/var/lib/holdfast exec holdfast-node'"
)
SETTINGS: Final = """\
HOLDFAST_NODE_ID=n1
HOLDFAST_HTTP=127.0.0.1:7700,unix:/run/holdfast/node.sock
HOLDFAST_TOKENS=/etc/holdfast/tokens
"""
CLIENT: Final = "HOLDFAST_ACCESS_TOKEN_FILE=/srv/token holdfast --nodes unix:/run/holdfast/node.sock"
PAGE_S_MAX: Final = 300


@pytest.fixture(scope="module")
def host(compose: list[str], deb: Path) -> Iterator[Machine]:
    """Yield a machine with the package and settings; nothing is started."""
    assert compose  # else there is no engine
    with systemd_machines.machine() as made:
        made.install(deb)
        made.on(f"printf '{SETTINGS}' >/etc/holdfast/node.env")
        made.on("holdfast token new ops read,acquire,admin,metrics --out /srv/token >/etc/holdfast/tokens")
        made.on("chgrp holdfast /etc/holdfast/* && chmod 0640 /etc/holdfast/*")
        yield made


@pytest.fixture
def node(host: Machine) -> Machine:
    """Return the machine with a node that runs, however the test before has left it."""
    host.on("systemctl reset-failed holdfast; systemctl start holdfast")
    return host


def test_a_start_returns_when_the_node_listens(host: Machine) -> None:
    """A client that comes right behind it is served, and the status says ready."""
    host.on("systemctl stop holdfast && systemctl start holdfast")
    assert host.on(f"{CLIENT} run first -- echo taken") == "taken"
    wait_for("it is ready", lambda: host.show("StatusText") == ["ready"] or None)
    assert "event=listening" in host.journal()


def test_what_a_node_does_not_need_is_taken_from_it(node: Machine) -> None:
    """It runs as its user, without capabilities, and writes in its data and its runtime directory alone."""
    (pid,) = node.show("MainPID")
    status = dict(line.split(":\t", 1) for line in node.on(f"cat /proc/{pid}/status").splitlines())
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert {int(status[name], 16) for name in status if name.startswith("Cap")} == {0}
    assert status["Uid"].split()[0] == node.on("id -u holdfast")
    inside = f"nsenter --target {pid} --mount"
    node.on(f"{inside} touch /var/lib/holdfast/x /run/holdfast/x")
    node.on(f"{inside} rm /var/lib/holdfast/x /run/holdfast/x")
    for place in ("/etc/holdfast", "/usr", "/home", "/root", "/opt", "/var"):
        assert "Read-only file system" in node.on(f"{inside} touch {place}/x", code=1)
    node.on(f"{inside} test ! -e /dev/vda -a ! -e /proc/meminfo")


def test_the_state_has_a_quarter_of_what_the_unit_may_take(node: Machine) -> None:
    """The node finds the bound of its unit through the sandbox."""
    node.on("systemctl set-property --runtime holdfast MemoryMax=400M && systemctl restart holdfast")
    said = node.on(f"{CLIENT} status")
    node.on("systemctl revert holdfast && systemctl restart holdfast")
    assert re.search(r"n1 +leader .* of 76\.0 MiB", said)


def test_backups_and_bundles_are_made_of_it(node: Machine) -> None:
    """A node writes a backup in a child process, and tells of itself, inside the sandbox."""
    node.on(f"{CLIENT} backup save /srv/holdfast.backup")
    assert "complete: revision" in node.on("holdfast backup status /srv/holdfast.backup")
    node.on(f"{CLIENT} debug /srv/bundle.tar.gz")
    assert "n1" in node.on("tar -tzf /srv/bundle.tar.gz")


def test_a_reload_reads_the_files_again(node: Machine) -> None:
    """It needs no program that a small Debian does not have."""
    node.on(
        "holdfast token new late read --out /srv/late >>/etc/holdfast/tokens && systemctl reload holdfast"
    )
    asking = CLIENT.replace("/srv/token", "/srv/late")
    node.on(f"timeout 60 sh -c 'until {asking} status; do sleep 0.2; done'")
    assert "principals=2" in node.journal()


def test_a_killed_node_is_started_again(node: Machine) -> None:
    """With everything that it had acknowledged."""
    (pid,) = node.show("MainPID")
    token = int(node.on(f"{CLIENT} run counted -- sh -c 'echo $HOLDFAST_TOKEN'"))
    node.on(f"kill -9 {pid}")
    wait_for("another process runs", lambda: not {pid, "0"} & set(node.show("MainPID")) or None)
    wait_for("it is ready", lambda: node.show("StatusText", "ActiveState") == ["ready", "active"] or None)
    assert int(node.on(f"{CLIENT} run counted -- sh -c 'echo $HOLDFAST_TOKEN'")) == token + 1


def test_a_second_start_is_refused_and_does_no_harm(node: Machine) -> None:
    """By hand, or by a unit that is a copy: both say what has the directory, and neither is tried again."""
    before = node.show("MainPID")
    for command, code in (("systemctl start holdfast", 0), (AS_NODE, 3)):
        said = node.on(command, code=code)
        assert ("/var/lib/holdfast: the data directory is in use by another process" in said) == bool(code)
    copied = "/etc/systemd/system/copied.service"
    node.on(f"sed '/^RuntimeDirectory=/d' /lib/systemd/system/holdfast.service >{copied}")
    node.on("systemctl daemon-reload && systemctl start copied", code=1)
    assert node.show("ActiveState", "NRestarts", unit="copied") == ["failed", "0"]
    assert "in use by another process" in node.on("journalctl --no-pager -u copied")
    node.on(f"rm {copied} && systemctl daemon-reload")
    assert node.show("MainPID") == before
    node.on(f"{CLIENT} status")


def test_root_leaves_nothing_in_its_directory(host: Machine) -> None:
    """A start by hand and a restore as root would leave files that the node cannot read."""
    host.on("systemctl stop holdfast")
    by_hand = "sh -ac '. /etc/holdfast/node.env; HOLDFAST_DATA_DIR=/var/lib/holdfast exec holdfast-node'"
    host.on("install -d -o holdfast /run/holdfast")
    assert "belongs to the user holdfast" in host.on(by_hand, code=3)
    restoring = "install -d -o holdfast /new && holdfast-node restore --min-token 5 --data-dir /new"
    assert "belongs to the user holdfast" in host.on(restoring, code=3)
    assert host.on("find /new /var/lib/holdfast -user root") == ""


@pytest.mark.parametrize(
    ("setting", "code", "said"),
    [
        ("HOLDFAST_PEER=nonsense", "2", "peer: 'nonsense' (variable HOLDFAST_PEER): must be HOST:PORT"),
        ("HOLDFAST_NODE_ID=n2", "3", "belongs to node 'n1', not to 'n2'"),
    ],
)
def test_a_mistake_is_in_the_journal_and_not_tried_again(
    node: Machine, setting: str, code: str, said: str
) -> None:
    """A node that only a person can mend stays down, and starts when that is done."""
    node.on(f"cp -a /etc/holdfast/node.env /srv/env && echo {setting} >>/etc/holdfast/node.env")
    node.on("systemctl restart holdfast", code=1)
    shown = node.show("ActiveState", "ExecMainStatus", "NRestarts")
    node.on("cp -a /srv/env /etc/holdfast/node.env")
    assert shown == ["failed", code, "0"]
    assert said in node.journal()
    node.on("systemctl start holdfast")


def test_it_is_tried_again_however_often(host: Machine) -> None:
    """As when its address comes late at boot: by itself systemd gives up after five quick starts."""
    place = "/run/systemd/system/holdfast.service.d"
    host.on(
        f"mkdir -p {place} && printf '[Service]\nExecStart=\nExecStart=/bin/false\n' >{place}/failing.conf"
    )
    host.on("systemctl daemon-reload && systemctl restart holdfast", code=1)
    wait_for("many starts", lambda: int(host.show("NRestarts")[0]) > 6 or None)
    host.on(f"rm {place}/failing.conf && systemctl daemon-reload")
    wait_for("it runs", lambda: host.show("ActiveState") == ["active"] or None)


def test_a_stop_is_in_order(node: Machine) -> None:
    """It ends by itself, with code 0, and leaves no process."""
    node.on("systemctl stop holdfast")
    assert node.show("ActiveState", "Result", "ExecMainStatus") == ["inactive", "success", "0"]
    assert "event=stopped node_id=n1" in node.journal()
    assert node.processes() == ""


@pytest.fixture(scope="module")
def machines(compose: list[str]) -> Iterator[dict[str, Machine]]:
    """Yield three machines in one network."""
    assert compose  # else there is no engine
    network = f"holdfast-machines-{os.getpid()}"
    guardian.run_if_killed(["docker", "network", "rm", network])
    docker("network", "create", network)
    try:
        with ExitStack() as stack:
            yield {node_id: stack.enter_context(systemd_machines.machine(network)) for node_id in NODE_IDS}
    finally:
        docker("network", "rm", network)


def followed(machines: dict[str, Machine], deb: Path, folder: Path) -> list[str]:
    """Follow the page with the package in the place of step 1; return what each block printed."""
    names = " ".join(f"[{node_id}]={one.name}" for node_id, one in machines.items())
    ssh = f"""
declare -A NAMES=({names})
on() {{ docker exec "${{NAMES[$1]}}" bash -c "${{*:2}}"; }}
put() {{ local file; for file in "${{@:3}}"; do docker cp --quiet "$file" "${{NAMES[$1]}}:$2/"; done; }}
"""
    package = f"""
for node in $NODES; do
    put $node / {deb}
    on $node 'dpkg --install /{deb.name} >/dev/null && holdfast-node --version'
done
"""
    first, _, programs, *others = BLOCKS
    script = script_of([
        first._replace(text=first.text + ssh), programs._replace(text=package), *others
    ])  # fmt: skip
    for number, one in enumerate(machines.values(), start=1):
        script = script.replace(f"10.0.0.{number}", one.address)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with (folder / "printed").open("w") as printed:
        subprocess.run(
            ["bash", "-e", "-c", script], cwd=folder, env=environment, stdout=printed, check=False,
            stdin=subprocess.DEVNULL, timeout=PAGE_S_MAX,
        )  # fmt: skip
    output = (folder / "printed").read_text("utf-8")
    for number, one in enumerate(machines.values(), start=1):
        output = output.replace(one.address, f"10.0.0.{number}")
    return output.split(f"\n{MARKER}\n")


def test_three_machines_follow_the_page(machines: dict[str, Machine], deb: Path, tmp_path: Path) -> None:
    """From empty machines to a new certificate; and a machine that is switched off and on comes back."""
    printed = followed(machines, deb, tmp_path)
    expected = [BLOCKS[0], *BLOCKS[2:]]
    assert len(printed) == len(expected) + 1, printed[-1] + "".join(
        one.journal() for one in machines.values()
    )
    for block, said in zip(expected, printed, strict=False):
        assert not block.shown or re.fullmatch(as_pattern(block.shown), said.strip("\n") + "\n"), said
    asking = {
        "HOLDFAST_CA": str(tmp_path / "keys/clients/ca.pem"),
        "HOLDFAST_ACCESS_TOKEN_FILE": str(tmp_path / "keys/ops.token"),
        "HOLDFAST_NODES": ",".join(f"https://{one.address}:7700" for one in machines.values()),
    }

    def status() -> tuple[int, list[str]]:
        done = subprocess.run(
            [Path(sys.executable).parent / "holdfast", "status", "--output", "json"], env=os.environ | asking,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        nodes = json.loads(done.stdout)["nodes"] if done.stdout else []
        return done.returncode, [one["id"] for one in nodes if one["state"] == "leader"]

    code, (leader,) = status()
    assert code == 0
    docker("restart", "--time", "0", machines[leader].name)
    wait_for("all is well again", lambda: status()[0] == 0 or None)
    wait_for("its unit says so", lambda: machines[leader].show("StatusText") == ["ready"] or None)
