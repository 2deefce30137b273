#!/usr/bin/env python3
"""List what an image has: the SBOM of a node's image, as CycloneDX 1.6 in JSON.

deploy/Dockerfile runs it inside the image when all is installed there, and keeps what it prints in
/usr/share/holdfast/sbom.cdx.json. It looks at what is there: Debian's packages, Python's, and Python itself.
The same image gives the same bytes: there is no date in them. Only the standard library is needed.

    make-sbom [--root /] [--base-image NAME] [--base-id ID]
"""

import argparse
import email.message
import email.parser
import json
import platform
import re
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

SCHEMA: Final = "http://cyclonedx.org/schema/bom-1.6.schema.json"
OURS: Final = "holdfast"
NODE: Final = "holdfast-node"
DISTRIBUTIONS: Final = (NODE, "holdfast-locks")
"""What is built here, and comes from no index."""
PYTHON_ROOTS: Final = ("opt", "usr/local/lib", "usr/lib")
"""Where packages of Python are looked for."""
WHEELS: Final = "opt/holdfast/wheels.sha256"
"""What `sha256sum` said of the wheels that were installed."""
NAMESPACE: Final = uuid.UUID("7d0a3d0e-7f0c-4b55-9d6c-0e0e5f0f6c11")
"""Of serial numbers: any fixed one does."""

Component = dict[str, Any]


def operating_system(root: Path) -> Component:
    """Return what /etc/os-release tells."""
    lines = (root / "etc" / "os-release").read_text("utf-8").splitlines()
    told = {key: value.strip("\"'") for key, _, value in (line.partition("=") for line in lines)}
    name, version = told["ID"], told.get("VERSION_ID", "")
    return {
        "type": "operating-system",
        "bom-ref": f"os:{name}-{version}",
        "name": name,
        "version": version,
        "description": told.get("PRETTY_NAME", name),
    }


def debian_packages(root: Path, system: Mapping[str, Any]) -> Iterator[Component]:
    """Yield the packages that dpkg has installed."""
    paragraphs = (root / "var" / "lib" / "dpkg" / "status").read_text("utf-8").split("\n\n")
    for paragraph in paragraphs:
        told = email.parser.HeaderParser().parsestr(paragraph)
        if told["Status"] == "install ok installed":
            yield _debian_package(told, system)


def _debian_package(told: email.message.Message, system: Mapping[str, Any]) -> Component:
    name, version = told["Package"], told["Version"]
    # The tracker of Debian's security team, and scanners, know packages by their source.
    source = (told["Source"] or name).partition(" ")[0]
    about = {
        "arch": told["Architecture"],
        "distro": f"{system['name']}-{system['version']}",
        "upstream": source,
    }
    purl = f"pkg:deb/{system['name']}/{quote(name, safe='')}@{quote(version, safe=':')}"
    purl += "?" + "&".join(f"{key}={quote(value, safe='')}" for key, value in about.items())
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def python_packages(root: Path) -> Iterator[Component]:
    """Yield the packages of Python: those of the node, those of the base image, and what these carry along.

    One that is at several places comes once. Those that came as a wheel of ours say its hash.
    """
    wheels = _wheels(root)
    found: dict[tuple[str, str], tuple[email.message.Message, list[str]]] = {}
    for folder in PYTHON_ROOTS:
        for path in sorted((root / folder).rglob("*.dist-info/METADATA")):
            told = email.parser.HeaderParser().parsestr(path.read_text("utf-8"))
            key = (re.sub(r"[-_.]+", "-", told["Name"]).lower(), told["Version"])
            found.setdefault(key, (told, []))[1].append(f"/{path.parent.relative_to(root)}")
    for (name, version), (told, places) in sorted(found.items()):
        yield _python_package(name, version, told, places, wheels.get((name, version)))


def _python_package(
    name: str, version: str, told: email.message.Message, places: list[str], sha256: str | None
) -> Component:
    kind = "generic" if name in DISTRIBUTIONS else "pypi"
    purl = f"pkg:{kind}/{quote(name, safe='')}@{quote(version, safe='')}"
    component: Component = {"type": "library", "bom-ref": purl, "name": name, "version": version}
    if sha256 is not None:
        component["hashes"] = [{"alg": "SHA-256", "content": sha256}]
    if licence := told["License-Expression"]:
        component["licenses"] = [{"expression": licence}]
    component["purl"] = purl
    component["evidence"] = {"occurrences": [{"location": place} for place in places]}
    return component


def _wheels(root: Path) -> dict[tuple[str, str], str]:
    """Return the SHA-256 of each wheel that was installed, by name and version of its package."""
    told = {}
    for line in (root / WHEELS).read_text("utf-8").splitlines():
        sha256, file = line.split()
        name, version = Path(file).name.split("-")[:2]
        told[re.sub(r"[-_.]+", "-", name).lower(), version] = sha256
    return told


def interpreter(version: str) -> Component:
    """Return Python itself, which the public base image has from no package."""
    return {
        "type": "platform",
        "bom-ref": f"pkg:generic/python@{version}",
        "name": "python",
        "version": version,
        "cpe": f"cpe:2.3:a:python:python:{version}:*:*:*:*:*:*:*",
        "purl": f"pkg:generic/python@{version}",
    }


def bill(root: Path, python: str, base: Mapping[str, str]) -> dict[str, Any]:
    """Return the whole document for a file system; `base` are facts about the base image."""
    system = operating_system(root)
    packages = list(python_packages(root))
    (version,) = (one["version"] for one in packages if one["name"] == NODE)
    components = [
        system,
        interpreter(python),
        *sorted(debian_packages(root, system), key=lambda one: str(one["name"])),
        *packages,
    ]
    facts = [{"name": f"{OURS}:{name}", "value": value} for name, value in sorted(base.items()) if value]
    document = {
        "$schema": SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "lifecycles": [{"phase": "build"}],
            "component": {"type": "container", "bom-ref": "image", "name": OURS, "version": version},
            "properties": facts,
        },
        "components": components,
    }
    # The same content has the same number.
    document["serialNumber"] = uuid.uuid5(NAMESPACE, json.dumps(document, sort_keys=True)).urn
    return document


def main() -> None:
    """Print the document for this image."""
    parser = argparse.ArgumentParser(description="Print what this image has, as CycloneDX 1.6 in JSON.")
    parser.add_argument("--root", type=Path, default=Path("/"), help="the file system to look at")
    parser.add_argument("--base-image", default="", help="the name of the image that it was built on")
    parser.add_argument("--base-id", default="", help="and its id or digest")
    asked = parser.parse_args()
    base = {"base-image": asked.base_image, "base-id": asked.base_id}
    json.dump(bill(asked.root, platform.python_version(), base), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
