"""The commands `debug` and `log-level`: what helps to find a mistake in a node, and more of its log."""

import argparse
import asyncio
import io
import json
import platform
import re
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec

from holdfast import __version__
from holdfast.cli import exit_codes
from holdfast.cli.inspector import Inspector
from holdfast.cli.parsing import CommandParser, duration_ms, taken
from holdfast.cli.printing import length, moment, print_one, say
from holdfast.operations import cluster_operations
from holdfast.operations.operation import Operation
from holdfast.transport.transport import Transport
from holdfast.values.answers import ClusterInfo
from holdfast.values.errors import InvalidRequest, LockError
from holdfast.values.whole_file import OWN, written
from holdfast.values.words import LOG_LEVELS
from holdfast.wire.operators import DebugInfo, LogLevelSetJson

ASK_S: Final = 5.0
"""Seconds that each node has for each answer. All are asked at once."""
_DEFAULT_MS: Final = 600_000
_NO_FILE_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")


def add_parser(commands: CommandParser) -> None:
    """Describe the commands."""
    debug = commands.command(
        "debug",
        "write log lines, status, metrics and stacks of all nodes to an archive, to find a fault with",
        _debug,
        description="Ask all nodes at once for status, metrics, settings without secrets, their last 1,000"
        " log lines, and where their threads and tasks are, and write that to one archive (tar.gz), readable"
        " by its owner alone. What a node did not give is named. Needs the right admin, and metrics for"
        " those.",
    )
    debug.add_argument("file", metavar="FILE", type=Path, help="such as holdfast-debug.tar.gz")
    debug.add_force()
    debug.add_output()
    level = commands.command(
        "log-level",
        "let a node log more, or less, for a while",
        _log_level,
        description="Let a node log from another level on, and after some time as before. With the level of"
        " its settings, at once. A restart ends it, too. Needs the right admin.",
    )
    level.add_argument("node", metavar="NODE", help="the id of the node")
    level.add_argument("level", metavar="LEVEL", choices=LOG_LEVELS, help=", ".join(LOG_LEVELS))
    level.add_argument(
        "--for",
        dest="for_ms",
        metavar="TIME",
        type=duration_ms,
        default=_DEFAULT_MS,
        help="how long, 1s to 1d (default: 10m)",
    )
    level.add_output()


class Told(NamedTuple):
    """What came from one URL: the content of files by their names, and why others are not there."""

    url: str
    node_id: str
    files: Mapping[str, bytes]
    missing: Mapping[str, str]
    refused: LockError | None


async def _debug(client: Inspector, arguments: argparse.Namespace) -> int:
    """Ask all nodes, and write what they give. Raises LockError if none gives anything."""
    path: Path = arguments.file
    if path.is_dir():  # noqa: ASYNC240 - at the beginning
        raise ValueError(f"{path}: is a directory: name a file in it, such as {path}/holdfast-debug.tar.gz")
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no directory {path.parent}: make it, or name another file")
    if path.exists() and not arguments.force:  # noqa: ASYNC240 - at the beginning
        raise taken(path)
    told = await _told_by_all(client)
    if not any(each.files for each in told):
        raise next(each.refused for each in told if each.refused is not None)
    made_at = time.time()
    try:
        with written(path, replaces=arguments.force) as file:
            _write(file, _files(told, made_at), made_at)
    except FileExistsError:
        raise taken(path) from None
    missing = [
        f"{each.node_id or each.url}: no {what}: {why}" for each in told for what, why in each.missing.items()
    ]
    for line in missing:
        say(line)
    had = ", ".join(each.node_id or each.url for each in told if each.files)
    short = f"; {len(missing)} parts are missing" if missing else ""
    shown = {"file": str(path), "nodes": _summed_up(told)}
    print_one(shown, [f"wrote {path}: {had}{short}"], arguments.output)
    return exit_codes.DEGRADED if missing else exit_codes.DONE


async def _told_by_all(client: Inspector) -> list[Told]:
    """Ask the nodes of the command line, and the members that are not among them, each once."""
    told = await asyncio.gather(*(_told_by(client, url) for url in client.nodes))
    answered = {each.node_id: each for each in told if each.node_id}  # one node may have several URLs
    members = {
        node["id"]: node["http"].rstrip("/")
        for each in told
        if "status.json" in each.files
        for node in json.loads(each.files["status.json"])["nodes"]
    }
    ids = {url: node_id for node_id, url in members.items() if url}
    silent = [each._replace(node_id=ids.get(each.url, "")) for each in told if not each.node_id]
    unasked = ids.keys() - set(client.nodes) - {members.get(node_id) for node_id in answered}
    more = await asyncio.gather(*(_told_by(client, url, ids[url]) for url in sorted(unasked)))
    if members and members.keys() <= answered.keys() | {each.node_id for each in more if each.files}:
        silent = []  # URLs that are none of the cluster's
    return [*answered.values(), *silent, *more]


async def _told_by(client: Inspector, url: str, node_id: str = "") -> Told:
    """Ask one node for everything, at once."""
    operations: dict[str, Operation[Any]] = {
        "status": cluster_operations.cluster(),
        "metrics": cluster_operations.metrics(),
        "debug": cluster_operations.debug_info(),
    }
    alone = client.alone(url, ASK_S)
    ended = await asyncio.gather(
        *(alone.call(operation) for operation in operations.values()), return_exceptions=True
    )
    files: dict[str, bytes] = {}
    missing: dict[str, str] = {}
    refused: LockError | None = None
    for what, answer in zip(operations, ended, strict=True):
        match answer:
            case ClusterInfo():
                node_id, files["status.json"] = answer.node_id, _json(answer)
            case DebugInfo():
                node_id, files["log.txt"] = answer.node_id, _lines(answer.log)
                files["debug.json"] = _json(msgspec.structs.replace(answer, log=()))
            case bytes():
                files["metrics.txt"] = answer
            case LockError():
                missing[what], refused = str(answer), answer
            case BaseException():
                raise answer
    return Told(url, node_id, files, missing, refused)


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value)) + b"\n"


def _lines(lines: tuple[str, ...]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")


def _files(told: list[Told], made_at: float) -> dict[str, bytes]:
    """Return all files of the archive, by name; the first one says what is there, and what is not."""
    summary = {
        "made": moment(made_at * 1000),
        "command": {"version": __version__, "python": platform.python_version(), "on": platform.platform()},
        "nodes": _summed_up(told),
    }
    found = {"summary.json": _json(summary)}
    for number, each in enumerate(told, 1):
        folder = _NO_FILE_NAME.sub("-", each.node_id).strip(".-") or f"node-{number}"
        found |= {f"{folder}/{name}": content for name, content in each.files.items()}
    return found


def _summed_up(told: list[Told]) -> list[dict[str, object]]:
    """Return of each node what it has given, and why not more."""
    return [
        {"node_id": each.node_id, "url": each.url, "has": sorted(each.files), "missing": each.missing}
        for each in told
    ]


def _write(archive_file: BinaryIO, files: Mapping[str, bytes], made_at: float) -> None:
    """Write an archive. Raises OSError."""
    with tarfile.open(fileobj=archive_file, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"holdfast-debug/{name}")
            entry.size, entry.mtime, entry.mode = len(content), int(made_at), OWN
            archive.addfile(entry, io.BytesIO(content))


async def _log_level(client: Inspector, arguments: argparse.Namespace) -> int:
    """Find the node, and let it log from another level on. Raises LockError."""
    operation = cluster_operations.set_log_level(arguments.node, arguments.level, arguments.for_ms)
    answer = await (await _transport_to(client, arguments.node)).call(operation)
    print_one(answer, [_told_level(answer)], arguments.output)
    return exit_codes.DONE


async def _transport_to(client: Inspector, node_id: str) -> Transport:
    """Return what asks this node alone. Raises LockError."""
    told = await asyncio.gather(*(_status(client, url) for url in client.nodes))
    for url, status in zip(client.nodes, told, strict=True):
        if isinstance(status, ClusterInfo) and status.node_id == node_id:
            return client.alone(url, ASK_S)
    known = [status for status in told if isinstance(status, ClusterInfo)]
    if not known:
        raise next(failure for failure in told if isinstance(failure, LockError))
    urls = {node.id: node.http for status in known for node in status.nodes if node.http}
    if node_id not in urls:
        members = ", ".join(sorted({node.id for status in known for node in status.nodes}))
        raise InvalidRequest("invalid-request", f"{node_id!r} is not a node; there are {members}")
    return client.alone(urls[node_id], ASK_S)


async def _status(client: Inspector, url: str) -> ClusterInfo | LockError:
    try:
        return await client.alone(url, ASK_S).call(cluster_operations.cluster())
    except LockError as error:
        return error


def _told_level(answer: LogLevelSetJson) -> str:
    until = "" if answer.ends_in_ms is None else f" for {length(answer.ends_in_ms)}, then as its settings say"
    return f"{answer.node_id} logs {answer.level} and above{until} (it was {answer.before})"
