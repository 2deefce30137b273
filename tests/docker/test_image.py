"""The image of a node: it has the versions that were tested, and tells what it has."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import holdfast
from deploy import make_sbom
from scripts.lib import pinned
from tests.docker.compose_cluster import ROOT, docker, run

pytestmark = pytest.mark.docker

SBOM = "/usr/share/holdfast/sbom.cdx.json"
DISTRIBUTIONS = """
import importlib.metadata
for one in importlib.metadata.distributions():
    print(one.name.lower().replace("_", "-"), one.version)
"""


def in_image(image: str, program: str, *arguments: str) -> str:
    """Return what a program of the image prints."""
    return docker("run", "--rm", "--network", "none", "--entrypoint", program, image, *arguments)


def installed(image: str) -> set[tuple[str, str]]:
    """Return the packages in the environment of the node, with their versions."""
    told = in_image(image, "/opt/holdfast/bin/python", "-I", "-c", DISTRIBUTIONS)
    return {(name, version) for name, version in (line.split() for line in told.splitlines())}


@pytest.fixture(scope="module")
def sbom(image: str) -> dict[str, Any]:
    """Return the document that the image has."""
    document: dict[str, Any] = json.loads(in_image(image, "cat", SBOM))
    return document


def test_what_is_installed_is_what_was_tested(image: str) -> None:
    """A node has all of requirements/node.txt that counts for it, and ourselves; nothing else."""
    program = "import platform; print(platform.python_version(), platform.machine())"
    environment = pinned.linux(*in_image(image, "python", "-c", program).split())
    lines = pinned.read(ROOT / "requirements" / "node.txt")
    wanted = {(str(one.name), one.version) for one in lines if one.counts_for(environment)}
    assert installed(image) == wanted | {(name, holdfast.__version__) for name in make_sbom.DISTRIBUTIONS}


def test_the_sbom_lists_what_is_installed(image: str, sbom: dict[str, Any]) -> None:
    """Debian's packages as dpkg tells them, and those of Python, in the versions that are there."""
    told = {
        (one["purl"].split("/")[0], one["name"], one["version"])
        for one in sbom["components"]
        if "purl" in one
    }
    shown = "${Package} ${Version} ${db:Status-Status}\n"
    debian = [line.split() for line in in_image(image, "dpkg-query", "-W", "-f", shown).splitlines()]
    assert {one for one in told if one[0] == "pkg:deb"} == {
        ("pkg:deb", name, version) for name, version, status in debian if status == "installed"
    }
    for name, version in installed(image):
        assert ("pkg:generic" if name in make_sbom.DISTRIBUTIONS else "pkg:pypi", name, version) in told


def test_the_sbom_has_the_hashes_that_were_compared(sbom: dict[str, Any]) -> None:
    """Of each wheel; those that are published stand in requirements/node.txt."""
    told = {one["name"]: one["hashes"][0]["content"] for one in sbom["components"] if "hashes" in one}
    lines = pinned.read(ROOT / "requirements" / "node.txt")
    published = {str(one.name): one.hashes for one in lines if one.name != "pysyncobj"}
    assert {*make_sbom.DISTRIBUTIONS, "pysyncobj", "aiohttp"} <= set(told)
    for name in set(published) & set(told):
        assert told[name] in published[name]


def test_the_sbom_is_that_of_the_image(image: str, sbom: dict[str, Any]) -> None:
    """Made anew in a container, it is the same; and it says which image was the base."""
    base = {one["name"].removeprefix("holdfast:"): one["value"] for one in sbom["metadata"]["properties"]}
    options = [part for name, value in base.items() for part in (f"--{name}", value)]
    assert json.loads(in_image(image, "make-sbom", *options)) == sbom
    assert base["base-image"] in (ROOT / "deploy" / "Dockerfile").read_text("utf-8")
    assert "sha256:" in base["base-id"]
    about = json.loads(docker("image", "inspect", base["base-image"]))[0]
    assert base["base-id"] in (about["Id"], *about["RepoDigests"])


def test_a_wheel_that_was_changed_is_not_installed(image: str, sbom: dict[str, Any], tmp_path: Path) -> None:
    """The image is built of wheels that lie on this machine, and pip compares their hashes again."""
    assert image  # its building has put the wheels there
    wheels = shutil.copytree(ROOT / "deploy" / "wheels", tmp_path / "wheels")
    (changed,) = wheels.glob("pysyncobj-*.whl")
    with changed.open("ab") as file:
        file.write(b"one more byte")
    (base,) = (one["value"] for one in sbom["metadata"]["properties"] if one["name"] == "holdfast:base-image")
    install = "/v/bin/pip install -q --no-index -f /wheels --require-hashes -r /wheels/requirements.txt"
    done = run(
        *("docker", "run", "--rm", "--network", "none", "--volume", f"{wheels}:/wheels:ro", base),
        *("sh", "-c", f"python -m venv /v && {install}"),
    )
    assert done.returncode == 1
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert "pysyncobj" in done.stderr
