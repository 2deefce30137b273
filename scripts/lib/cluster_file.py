"""A local cluster as files in its directory: cluster.json, the shared secret, a folder for each node."""

import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.lib import ports

FILE = "cluster.json"
SECRET_FILE = "secret"  # noqa: S105 - the name of a file


def create(directory: Path, nodes: int, base_port: int, extra_args: Sequence[str]) -> None:
    """Write the files of a new cluster. Raises PortsBusyError."""
    base = base_port or ports.find_base(nodes)
    ports.check_free(base, nodes)
    members = [
        {
            "id": f"n{i + 1}",
            "http": f"http://{ports.HOST}:{http_port}",
            "peer": f"{ports.HOST}:{peer_port}",
            "pid": 0,
        }
        for i, (http_port, peer_port) in enumerate(ports.of_cluster(base, nodes))
    ]
    for member in members:
        (directory / str(member["id"])).mkdir(parents=True, exist_ok=True)
    secret = secrets.token_hex(32)
    _write_private(directory / SECRET_FILE, secret + "\n")
    write(directory / FILE, {"nodes": members, "secret": secret, "extra_args": list(extra_args)})


def write(file: Path, document: dict[str, Any]) -> None:
    """Replace a file as a whole: a reader sees the old one or the new one."""
    _write_private(file.with_suffix(".new"), json.dumps(document, indent=2) + "\n")
    file.with_suffix(".new").replace(file)


def _write_private(file: Path, text: str) -> None:
    """Write a file that only its owner can read."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as output:
        output.write(text)


def read(directory: Path) -> dict[str, Any]:
    """Return what stands in a cluster's file."""
    document: dict[str, Any] = json.loads((directory / FILE).read_text())
    return document
