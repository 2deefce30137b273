"""Prometheus beside the containers of the nodes, with our alerts, as deploy/compose.observe.yaml has it."""

import json
import secrets
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.lib import guardian, ports
from tests.docker.compose_cluster import NODE_IDS, ROOT, Cluster, docker, run, wait_for

pytestmark = pytest.mark.docker

OBSERVE_FILE = ROOT / "deploy" / "compose.observe.yaml"
DOCKERFILE = """
FROM {base}
COPY prometheus /bin/prometheus
RUN install -d -o nobody /prometheus
USER nobody
ENTRYPOINT ["/bin/prometheus"]
"""
"""What of the image of Prometheus the file relies on."""


@pytest.fixture(scope="module")
def prometheus_image(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield an image with the Prometheus of this machine: none can be counted on to be pulled."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("needs Prometheus: apt-get install prometheus")
    assert image  # its building has provided the base image
    context = tmp_path_factory.mktemp("prometheus")
    shutil.copy(program, context / "prometheus")
    (base,) = (
        line.partition("=")[2]
        for line in (ROOT / "deploy" / "Dockerfile").read_text().splitlines()
        if line.startswith("ARG BASE_IMAGE=")
    )
    (context / "Dockerfile").write_text(DOCKERFILE.format(base=base))
    name = f"prometheus:test-{secrets.token_hex(4)}"
    guardian.run_if_killed(["docker", "rmi", "--force", name])
    built = run("docker", "build", "--tag", name, str(context))
    assert built.returncode == 0, built.stdout + built.stderr
    yield name
    docker("rmi", "--force", name)


def asked(port: int, path: str) -> dict[str, Any] | None:
    """Return what Prometheus answers; None before it does."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=10) as answer:
            data: dict[str, Any] = json.load(answer)["data"]
            return data
    except OSError:
        return None


def test_prometheus_sees_all_nodes_and_what_is_wrong(
    compose: list[str], image: str, prometheus_image: str, tmp_path: Path
) -> None:
    """All rules are evaluated; nothing fires while all is well; without a majority the right ones do."""
    (port,) = ports.reserve(1)
    cluster = Cluster(compose, image, tmp_path, further=[OBSERVE_FILE])
    cluster.remove_if_killed()
    variables = {"HOLDFAST_PROMETHEUS_IMAGE": prometheus_image, "HOLDFAST_PORT_PROMETHEUS": str(port)}

    def all_are_up() -> bool | None:
        targets = (asked(port, "targets") or {}).get("activeTargets", [])
        return True if [target["health"] for target in targets] == ["up"] * len(NODE_IDS) else None

    def rules() -> list[dict[str, Any]]:
        groups = (asked(port, "rules") or {}).get("groups", [])
        return [rule for group in groups for rule in group["rules"]]

    def all_are_evaluated() -> bool | None:
        return True if rules() and {rule["health"] for rule in rules()} == {"ok"} else None

    def firing() -> set[str]:
        alerts = (asked(port, "alerts") or {}).get("alerts", [])
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    try:
        cluster.compose("up", "--detach", *NODE_IDS, "prometheus", **variables)
        wait_for("a leader", cluster.leader)
        wait_for("Prometheus reaches all nodes", all_are_up)
        wait_for("all rules are evaluated", all_are_evaluated)
        assert firing() == set()
        cluster.compose("kill", "n2", "n3", **variables)
        missing = {"HoldfastNoQuorum", "HoldfastNoLeader"}
        wait_for("the alerts fire", lambda: True if missing <= firing() else None)
    finally:
        cluster.print_logs()
        cluster.compose("down", "--volumes", "--remove-orphans", "--timeout", "20", **variables)
