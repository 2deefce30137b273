"""The SBOM of an image: everything that is installed there, once, under names that scanners know."""

import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy import make_sbom

SHA256 = "ab" * 32
STATUS = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Source: glibc
Version: 2.36-9+deb12u10

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1.0

Package: login
Status: install ok installed
Architecture: amd64
Source: shadow (1:4.13+dfsg1-1)
Version: 1:4.13+dfsg1-1+b1
Description: system login tools
 Text that goes on
 over lines.

Package: bash
Status: install ok installed
Architecture: amd64
Version: 5.2.15-2
"""


def put_package(root: Path, place: str, name: str, version: str, *further: str) -> None:
    """Put the metadata of a package of Python into a folder."""
    folder = root / place / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *further]
    (folder / "METADATA").write_text("\n".join(lines) + "\n\nThe text.\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the root of something like an image."""
    for folder in ("etc", "var/lib/dpkg", "opt/holdfast"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc" / "os-release").write_text(
        'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_ID="12"\n'
    )
    (tmp_path / "var/lib/dpkg/status").write_text(STATUS)
    (tmp_path / "opt/holdfast/wheels.sha256").write_text(
        f"{SHA256}  Some_Thing-1.0.post1-cp311-cp311-manylinux2014_x86_64.whl\n"
    )
    ours = "opt/holdfast/lib/python3.11/site-packages"
    put_package(tmp_path, ours, "holdfast-node", "1.0.0", "License-Expression: Apache-2.0")
    put_package(tmp_path, ours, "holdfast-locks", "1.0.0")
    put_package(tmp_path, ours, "Some.Thing", "1.0.post1")
    base = "usr/local/lib/python3.11/site-packages"
    put_package(tmp_path, base, "setuptools", "65.5")
    put_package(tmp_path, f"{base}/setuptools/_vendor", "packaging", "24.0")
    put_package(tmp_path, "opt/other/lib/python3.11/site-packages", "packaging", "24.0")
    return tmp_path


def by_name(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the components of a document; no two have one name here."""
    components = {one["name"]: one for one in document["components"]}
    assert len(components) == len(document["components"])
    return components


def test_everything_is_listed(root: Path) -> None:
    """The system, Python, what dpkg has installed, and packages of Python wherever they are."""
    found = by_name(make_sbom.bill(root, "3.11.2", {}))
    assert {name: one["version"] for name, one in found.items()} == {
        "debian": "12",
        "python": "3.11.2",
        "bash": "5.2.15-2",
        "libc6": "2.36-9+deb12u10",
        "login": "1:4.13+dfsg1-1+b1",
        "holdfast-locks": "1.0.0",
        "holdfast-node": "1.0.0",
        "some-thing": "1.0.post1",
        "setuptools": "65.5",
        "packaging": "24.0",
    }
    places = [one["location"] for one in found["packaging"]["evidence"]["occurrences"]]
    assert places == [
        "/opt/other/lib/python3.11/site-packages/packaging-24.0.dist-info",
        "/usr/local/lib/python3.11/site-packages/setuptools/_vendor/packaging-24.0.dist-info",
    ]


def test_scanners_know_the_names(root: Path) -> None:
    """As package URLs: Debian's with their source, ours as of no index; Python by its CPE."""
    found = by_name(make_sbom.bill(root, "3.11.2", {}))
    debian = "arch=amd64&distro=debian-12&upstream"
    assert found["libc6"]["purl"] == f"pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?{debian}=glibc"
    assert found["login"]["purl"] == f"pkg:deb/debian/login@1:4.13%2Bdfsg1-1%2Bb1?{debian}=shadow"
    assert found["bash"]["purl"] == f"pkg:deb/debian/bash@5.2.15-2?{debian}=bash"
    assert found["some-thing"]["purl"] == "pkg:pypi/some-thing@1.0.post1"
    for name in ("holdfast-locks", "holdfast-node"):
        assert found[name]["purl"] == f"pkg:generic/{name}@1.0.0"
    assert found["python"]["cpe"] == "cpe:2.3:a:python:python:3.11.2:*:*:*:*:*:*:*"


def test_wheels_have_their_hash_and_licences_are_told(root: Path) -> None:
    """The hash of the file that was installed, where there was one; a licence where the package says it."""
    found = by_name(make_sbom.bill(root, "3.11.2", {}))
    assert {name for name, one in found.items() if "hashes" in one} == {"some-thing"}
    assert found["some-thing"]["hashes"] == [{"alg": "SHA-256", "content": SHA256}]
    assert {name for name, one in found.items() if "licenses" in one} == {"holdfast-node"}
    assert found["holdfast-node"]["licenses"] == [{"expression": "Apache-2.0"}]


def test_the_document_says_what_it_is_of(root: Path) -> None:
    """An image of this version, on this base; equal images have equal documents, others another number."""
    base = {"base-image": "python:3.11-slim-bookworm", "base-id": ""}
    document = make_sbom.bill(root, "3.11.2", base)
    assert (document["bomFormat"], document["specVersion"], document["version"]) == ("CycloneDX", "1.6", 1)
    about = document["metadata"]
    assert (about["component"]["type"], about["component"]["version"]) == ("container", "1.0.0")
    assert about["properties"] == [{"name": "holdfast:base-image", "value": "python:3.11-slim-bookworm"}]
    assert make_sbom.bill(root, "3.11.2", base) == document
    assert document["serialNumber"].startswith("urn:uuid:")
    assert make_sbom.bill(root, "3.11.3", base)["serialNumber"] != document["serialNumber"]
    references = [one["bom-ref"] for one in document["components"]]
    assert len(set(references)) == len(references)


def test_the_command_prints_the_document(root: Path) -> None:
    """With the version of the Python that runs it."""
    command = [sys.executable, "-I", make_sbom.__file__, "--root", str(root), "--base-id", "sha256:1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told = {"base-id": "sha256:1"}
    assert json.loads(done.stdout) == make_sbom.bill(root, platform.python_version(), told)
    assert done.stdout.endswith("}\n")


def test_an_image_without_a_node_has_none(root: Path) -> None:
    """Whatever makes a build install nothing, it does not get a document that says so."""
    (root / "opt/holdfast/lib/python3.11/site-packages/holdfast_node-1.0.0.dist-info/METADATA").unlink()
    with pytest.raises(ValueError, match="not enough values to unpack"):
        make_sbom.bill(root, "3.11.2", {})
