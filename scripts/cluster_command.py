"""The command line of scripts/cluster: a cluster of real nodes on this machine, for trying things out."""

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from scripts.lib import cluster_file
from scripts.lib.ports import PortsBusyError
from scripts.local_cluster import ClusterFailure, LocalCluster

DEFAULT_BASE_PORT = 7700
DEFAULT_NODES = 3
NODES_MAX = 9
LUA = ".venv/bin/pip install 'holdfast-node[redis-lua]'"

EXAMPLE = """\
example:
  scripts/cluster up --dir /tmp/hold          three nodes on http://127.0.0.1:7700 to 7702
  scripts/cluster status --dir /tmp/hold
  scripts/cluster kill n1 --dir /tmp/hold     as kill -9 does; the others go on
  scripts/cluster restart n1 --dir /tmp/hold
  scripts/cluster down --dir /tmp/hold        the data stays; `up` starts it again
"""


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/cluster",
        description="Run a Holdfast cluster on this machine: real processes, real disks, loopback.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    up = commands.add_parser("up", help="start a cluster, new or stopped, and wait until it answers")
    up.add_argument(
        "--nodes", type=int, metavar="N", help=f"how many nodes a new cluster has (default: {DEFAULT_NODES})"
    )
    up.add_argument(
        "--base-port",
        type=int,
        default=DEFAULT_BASE_PORT,
        metavar="P",
        help=f"new cluster: HTTP from port P, peers from P+100; 0: free ports (default: {DEFAULT_BASE_PORT})",
    )
    up.add_argument(
        "--tls", action="store_true", help="new cluster: TLS, with certificates for nodes and clients"
    )
    up.add_argument(
        "--peer-tls", action="store_true", help="new cluster: TLS between nodes, with certificates for them"
    )
    up.add_argument(
        "--redis",
        action="store_true",
        help="new cluster: each node also serves lock clients of Redis, from port P+200 (docs/faces.md)",
    )
    commands.add_parser("down", help="stop all nodes; the data stays")
    commands.add_parser("status", help="show the nodes; exit 0 if the cluster has a leader")
    for name, text in (
        ("kill", "end a node at once, as kill -9 does"),
        ("restart", "stop a node if it runs, and start it"),
        ("pause", "hold a node where it is (SIGSTOP)"),
        ("resume", "let a paused node run on"),
        ("logs", "print a node's log"),
    ):
        commands.add_parser(name, help=text).add_argument("node", metavar="NODE", help="such as n1")
    commands.choices["logs"].add_argument(
        "-f", "--follow", action="store_true", help="follow the log as it grows"
    )
    for command in commands.choices.values():
        command.add_argument("--dir", type=Path, required=True, metavar="DIR", help="the cluster's directory")
    return parser


def _check_made_with(arguments: argparse.Namespace) -> None:
    """Raise ClusterFailure for what only a new cluster can have, and the one that is there has not."""
    document = cluster_file.read(arguments.dir)
    count = len(document["nodes"])
    if arguments.nodes not in (None, count):
        raise ClusterFailure(
            f"--nodes {arguments.nodes}: the cluster in {arguments.dir} has {count}; take another --dir for a"
            " new one, or leave --nodes out"
        )
    for flag, is_asked, is_there in (
        ("--tls", arguments.tls, cluster_file.has_tls(document)),
        ("--peer-tls", arguments.peer_tls, cluster_file.has_peer_tls(arguments.dir)),
        ("--redis", arguments.redis, "redis" in document),
    ):
        if is_asked and not is_there:
            raise ClusterFailure(
                f"{flag}: the cluster in {arguments.dir} was made without it; take another"
                f" --dir for a new one, or leave {flag} out"
            )


def _up(arguments: argparse.Namespace) -> int:
    """Start the cluster and print where it is."""
    nodes = DEFAULT_NODES if arguments.nodes is None else arguments.nodes
    if not 1 <= nodes <= NODES_MAX:
        raise ClusterFailure(f"--nodes {nodes}: must be 1 to {NODES_MAX}")
    if (arguments.dir / cluster_file.FILE).exists():
        _check_made_with(arguments)
    cluster = LocalCluster.up(
        arguments.dir,
        nodes=nodes,
        base_port=arguments.base_port,
        tls=arguments.tls,
        peer_tls=arguments.peer_tls,
        redis=arguments.redis,
        progress=lambda text: print(f"cluster: {text}", file=sys.stderr),
    )
    if cluster.redis_addresses:
        told = ", ".join(cluster.redis_addresses.values())
        print(f"cluster: clients of Redis are served at {told}", file=sys.stderr)
        if find_spec("lupa") is None:
            print(f"cluster: scripts of your own need Lua: {LUA}, then restart each node", file=sys.stderr)
    for name, value in cluster.client_environment.items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    """Print a table of the nodes; return 0 if a majority agrees on a leader."""
    cluster = LocalCluster(arguments.dir)
    nodes = cluster.nodes()
    row = "{:<5} {:<24} {:>8}  {:<8} {:<12} {:>6} {:>10}"
    print(row.format("id", "http", "pid", "state", "role", "term", "revision"))
    leaders = []
    for node in nodes:
        alive, paused = cluster.is_alive(node.id), cluster.is_paused(node.id)
        view = cluster.view(node.id) if alive and not paused else None
        roles = {member["id"]: member["state"] for member in (view or {}).get("nodes", [])}
        leaders.append((view or {}).get("leader"))
        state = "paused" if paused else "running" if alive else "dead"
        term, revision = (view or {}).get("term", "-"), (view or {}).get("revision", "-")
        pid = node.pid if alive else "-"
        print(row.format(node.id, node.http, pid, state, roles.get(node.id, "-"), term, revision))
    has_leader = any(leaders.count(leader) > len(nodes) // 2 for leader in leaders if leader)
    return 0 if has_leader else 1


def _logs(arguments: argparse.Namespace) -> int:
    """Print a log, with tail's own way of following a file."""
    cluster = LocalCluster(arguments.dir)
    log = cluster.log(cluster.node(arguments.node).id)
    if not log.exists():
        raise ClusterFailure(f"{arguments.node} has not been started yet")
    follow = ["-F"] if arguments.follow else []
    return subprocess.run(["tail", "-n", "+1", *follow, str(log)], check=False).returncode


def _run(arguments: argparse.Namespace) -> int:
    """Run one command."""
    match arguments.command:
        case "up":
            return _up(arguments)
        case "status":
            return _status(arguments)
        case "logs":
            return _logs(arguments)
        case "down":
            LocalCluster(arguments.dir).down()
        case command:
            getattr(LocalCluster(arguments.dir), command)(arguments.node)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = build_parser().parse_args(argv)
    try:
        return _run(arguments)
    except (ClusterFailure, PortsBusyError) as error:
        print(f"scripts/cluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
