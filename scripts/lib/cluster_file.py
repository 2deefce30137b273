"""A local cluster as files in its directory: cluster.json, the shared secret, a folder for each node."""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.lib import ports

PROJECT = Path(__file__).resolve().parents[2]
FILE = "cluster.json"
SECRET_FILE = "secret"  # noqa: S105 - the name of a file
TLS_DIRECTORY = "tls"
"""Where a cluster with TLS has its certificates: `ca.pem`, one for each node, and that of its clients."""
PEER_TLS_DIRECTORY = "peer-tls"
"""Where a cluster whose nodes speak TLS with each other has the certificates for that."""
CLIENT = "client"


def create(
    directory: Path,
    nodes: int,
    base_port: int,
    extra_args: Sequence[str],
    *,
    tls: bool = False,
    peer_tls: bool = False,
    redis_ports: Sequence[int] = (),
) -> None:
    """Write the files of a new cluster on loopback, with certificates for TLS. Raises PortsBusyError.

    `redis_ports` are those at which its nodes serve clients of Redis, if they do.
    """
    base = base_port or ports.find_base(nodes)
    ports.check_free(base, nodes)
    addresses = {
        f"n{i}": (f"{ports.HOST}:{http_port}", f"{ports.HOST}:{peer_port}")
        for i, (http_port, peer_port) in enumerate(ports.of_cluster(base, nodes), 1)
    }
    create_at(directory, addresses, extra_args, tls=tls, peer_tls=peer_tls)
    if redis_ports:
        document = read(directory)
        found = zip(addresses, redis_ports, strict=True)
        document["redis"] = {node_id: f"{ports.HOST}:{port}" for node_id, port in found}
        write(directory / FILE, document)


def create_at(
    directory: Path,
    addresses: Mapping[str, tuple[str, str]],
    extra_args: Sequence[str] = (),
    *,
    tls: bool = False,
    peer_tls: bool = False,
) -> None:
    """Write the files of a new cluster whose nodes have these HTTP and peer addresses."""
    members = [_member(node_id, *pair, tls=tls) for node_id, pair in addresses.items()]
    if tls:
        _make_authority(directory)
    if peer_tls:
        _make_certificate("ca", "--dir", str(directory / PEER_TLS_DIRECTORY))
    for node_id in addresses:
        (directory / node_id).mkdir(parents=True, exist_ok=True)
        if tls:
            _certify_node(directory, node_id, addresses[node_id][0])
        if peer_tls:
            certify_peer(directory, node_id)
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


def make_node(directory: Path, node_id: str, addresses: tuple[str, str] | None = None) -> str:
    """Give a further node a directory and addresses; return that for peers. It is to join, and not started.

    `addresses` are for HTTP and for peers; by default both have free ports on loopback.
    """
    document = read(directory)
    _keep_first_peers(document)
    if addresses is None:
        ((http_port, peer_port),) = ports.of_cluster(ports.find_base(1), 1)
        addresses = f"{ports.HOST}:{http_port}", f"{ports.HOST}:{peer_port}"
    _, peer = addresses
    tls = has_tls(document)
    document["nodes"].append(_member(node_id, *addresses, tls=tls))
    if tls:
        _certify_node(directory, node_id, addresses[0])
    if has_peer_tls(directory):
        certify_peer(directory, node_id)
    document.setdefault("joined", []).append(node_id)
    (directory / node_id).mkdir(exist_ok=True)
    write(directory / FILE, document)
    return peer


def let_join(directory: Path, node_id: str) -> None:
    """Make a node that began with the cluster one that is to join it, at the address that it had."""
    document = read(directory)
    _keep_first_peers(document)
    document.setdefault("joined", []).append(node_id)
    write(directory / FILE, document)


def forget_node(directory: Path, node_id: str) -> None:
    """Take a node that was removed, and does not run, out of the cluster's file; its directory stays."""
    document = read(directory)
    document["nodes"] = [node for node in document["nodes"] if node["id"] != node_id]
    document["joined"] = [item for item in document.get("joined", []) if item != node_id]
    write(directory / FILE, document)


def has_tls(document: Mapping[str, Any]) -> bool:
    """Whether the nodes of a cluster speak TLS with clients."""
    return any(node["http"].startswith("https://") for node in document["nodes"])


def has_peer_tls(directory: Path) -> bool:
    """Whether the nodes of a cluster have certificates for each other."""
    return (directory / PEER_TLS_DIRECTORY).exists()


def peer_certificate(directory: Path, node_id: str) -> tuple[Path, Path, Path]:
    """Return where the certificate is that a node shows its peers, its key, and their authority."""
    folder = directory / PEER_TLS_DIRECTORY
    return folder / f"{node_id}-peer.pem", folder / f"{node_id}-peer-key.pem", folder / "ca.pem"


def certify_peer(directory: Path, node_id: str, *words: str) -> None:
    """Make a certificate that a node shows its peers; `words` are more for `holdfast cert peer`."""
    folder = str(directory / PEER_TLS_DIRECTORY)
    _make_certificate("peer", node_id, "--cluster", "local", "--dir", folder, *words)


def certificate(directory: Path, name: str) -> tuple[Path, Path]:
    """Return where a certificate and its key are."""
    folder = directory / TLS_DIRECTORY
    return folder / f"{name}.pem", folder / f"{name}-key.pem"


def _make_authority(directory: Path) -> None:
    """Make the authority of a cluster, and the certificate of its clients."""
    where = str(directory / TLS_DIRECTORY)
    _make_certificate("ca", "--dir", where)
    _make_certificate("client", CLIENT, "--dir", where)


def _certify_node(directory: Path, node_id: str, http: str) -> None:
    """Make the certificate of a node."""
    host = http.rpartition(":")[0].strip("[]")
    _make_certificate("node", node_id, host, "localhost", "--dir", str(directory / TLS_DIRECTORY))


def _make_certificate(*words: str) -> None:
    """Run `holdfast cert`. `--force` replaces what an `up` that was interrupted has left."""
    command = [sys.executable, "-m", "holdfast", "cert", *words, "--force"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=PROJECT)


def _member(node_id: str, http: str, peer: str, *, tls: bool) -> dict[str, Any]:
    """Return a node that does not run yet, as it stands in the cluster's file."""
    return {"id": node_id, "http": f"{'https' if tls else 'http'}://{http}", "peer": peer, "pid": 0}


def _keep_first_peers(document: dict[str, Any]) -> None:
    """Note whom the nodes that began with the cluster know, before there are more."""
    document.setdefault("first_peers", ",".join(f"{node['id']}={node['peer']}" for node in document["nodes"]))
