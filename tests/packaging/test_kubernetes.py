"""The manifests for Kubernetes: what each pod would start, and that two nodes do not go down together."""

import json
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS: Final = list(yaml.safe_load_all((ROOT / "deploy/kubernetes/holdfast.yaml").read_text()))
SECRETS: Final = "/etc/holdfast"
NODE: Final = """#!{python}
import json, os, sys
sys.path.insert(0, {root!r})
from cluster.config import load
config = load(sys.argv[1:], os.environ)
print(json.dumps([config.node_id, config.join, sorted(config.peers), config.advertise_http, config.peer_tls]))
"""
"""In the place of holdfast-node: it reads its configuration as a node does, and says what it is."""


def manifest(kind: str, name: str = "holdfast", among: list[Any] = MANIFESTS) -> Any:
    """Return one of the objects."""
    (found,) = [one for one in among if one["kind"] == kind and one["metadata"]["name"] == name]
    return found


def started(tmp_path: Path, pod: str, joining: str = "", among: list[Any] = MANIFESTS) -> list[Any]:
    """Run the command of a pod in its environment; return what a node would be told."""
    spec = manifest("StatefulSet", among=among)["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    environment: dict[str, str] = {}
    for variable in container["env"]:
        value = variable.get("value", pod)
        environment[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda found: environment[found[1]], value)
    if joining:
        environment["JOINING"] = joining
    else:
        del environment["JOINING"]  # there is no config map
    environment["HOLDFAST_SECRET_FILE"] = environment["HOLDFAST_SECRET_FILE"].replace(SECRETS, str(tmp_path))
    (tmp_path / "nodes").mkdir(exist_ok=True)
    (tmp_path / "nodes/secret").write_text("a secret of the nodes")
    program = tmp_path / "holdfast-node"
    program.write_text(NODE.format(python=sys.executable, root=str(ROOT)))
    program.chmod(0o755)
    environment |= {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOLDFAST_HTTP": "0.0.0.0:7700"}
    run = subprocess.run(
        [*container["command"], *container["args"]],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return list(json.loads(run.stdout))


@pytest.mark.parametrize("number", range(3))
def test_three_founders_know_each_other_and_where_clients_reach_them(tmp_path: Path, number: int) -> None:
    """They found the cluster together, and require TLS of each other."""
    pod = f"holdfast-{number}"
    founders = ["holdfast-0", "holdfast-1", "holdfast-2"]
    url = f"https://{pod}.holdfast-nodes:7700"
    assert started(tmp_path, pod) == [pod, False, founders, url, "require"]


@pytest.mark.parametrize(("pod", "joining"), [("holdfast-3", ""), ("holdfast-1", "holdfast-0 holdfast-1")])
def test_who_comes_later_joins(tmp_path: Path, pod: str, joining: str) -> None:
    """And so does a founder that lost its volume, when it is named."""
    _, joins, *_ = started(tmp_path, pod, joining)
    assert joins


def test_nodes_find_each_other_before_they_are_ready() -> None:
    """No node is ready before it has reached others; all are started at once."""
    nodes, pods = manifest("Service", "holdfast-nodes")["spec"], manifest("StatefulSet")["spec"]
    assert nodes["publishNotReadyAddresses"]
    assert nodes["clusterIP"] == "None"
    assert pods["serviceName"] == "holdfast-nodes"
    assert pods["podManagementPolicy"] == "Parallel"


def test_variables_of_services_are_not_taken_for_settings() -> None:
    """Kubernetes makes some of each service's name, and ours would begin with HOLDFAST_."""
    assert manifest("StatefulSet")["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_one_node_at_a_time_is_taken_away() -> None:
    """By a drain, or with a machine; and everything selects the same pods."""
    spec = manifest("StatefulSet")["spec"]
    budget = manifest("PodDisruptionBudget")["spec"]
    labels = spec["template"]["metadata"]["labels"]
    affinity = spec["template"]["spec"]["affinity"]["podAntiAffinity"]
    (rule,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    assert budget["maxUnavailable"] == 1
    assert rule["topologyKey"] == "kubernetes.io/hostname"
    policy = manifest("NetworkPolicy")["spec"]["podSelector"]["matchLabels"]
    selected = [spec["selector"]["matchLabels"], budget["selector"]["matchLabels"], policy]
    assert [*selected, rule["labelSelector"]["matchLabels"]] == [labels] * 4


# -- what differs for the reader, by Kustomize --------------------------------------------------------------

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")


def kustomized(folder: Path) -> list[Any]:
    """Return the objects that `kubectl apply -k` would apply."""
    made = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return sorted(yaml.safe_load_all(made.stdout), key=str)


@pytest.fixture
def of_the_reader(tmp_path: Path) -> list[Any]:
    """Return the objects that the kustomization.yaml of deploy/README.md makes."""
    readme = (ROOT / "deploy/README.md").read_text("utf-8")
    (block,) = re.findall(r"^    resources: .*?(?=^\S)", readme, re.MULTILINE | re.DOTALL)
    (tmp_path / "holdfast").symlink_to(ROOT)
    (tmp_path / "kustomization.yaml").write_text(textwrap.dedent(block))
    return kustomized(tmp_path)


@needs_kubectl
def test_the_base_is_the_manifests() -> None:
    """Nothing is said twice: what is applied with the folder is what the file has."""
    assert kustomized(ROOT / "deploy/kubernetes") == sorted(MANIFESTS, key=str)


@needs_kubectl
def test_a_kustomization_changes_what_the_page_says(of_the_reader: list[Any]) -> None:
    """Image, number, setting, resources, storage class and secrets; all else stays."""
    spec = manifest("StatefulSet", among=of_the_reader)["spec"]
    (node,) = spec["template"]["spec"]["containers"]
    (before,) = manifest("StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert (spec["replicas"], node["image"]) == (5, "registry.example.com/holdfast:1.0.0")
    assert spec["volumeClaimTemplates"][0]["spec"]["storageClassName"] == "fast"
    volumes = {one["name"]: one["secret"]["secretName"] for one in spec["template"]["spec"]["volumes"]}
    assert volumes == {"nodes": "lock-nodes", "tokens": "lock-tokens"}
    assert node["resources"]["limits"] == {"memory": "8Gi"}
    settings, present = ({one["name"]: one for one in each["env"]} for each in (before, node))
    changed = {name for name in present if present[name] != settings.get(name)}
    assert changed == {"HOLDFAST_PEERS", "HOLDFAST_LOG_FORMAT"}
    assert settings.keys() <= present.keys()
    untouched = (
        "command",
        "args",
        "ports",
        "livenessProbe",
        "readinessProbe",
        "securityContext",
        "volumeMounts",
    )
    assert [node[key] for key in untouched] == [before[key] for key in untouched]
    others = [[one for one in some if one["kind"] != "StatefulSet"] for some in (of_the_reader, MANIFESTS)]
    assert others[0] == sorted(others[1], key=str)


@needs_kubectl
@pytest.mark.parametrize("number", range(5))
def test_five_founders_know_each_other(tmp_path: Path, of_the_reader: list[Any], number: int) -> None:
    """None of them waits to be added."""
    pod = f"holdfast-{number}"
    founders = [f"holdfast-{each}" for each in range(5)]
    url = f"https://{pod}.holdfast-nodes:7700"
    assert started(tmp_path, pod, among=of_the_reader) == [pod, False, founders, url, "require"]
