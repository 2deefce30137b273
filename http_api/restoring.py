"""`holdfast-node restore` and `recover`: a new cluster out of a backup, or of what is left of an old one."""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NoReturn

from cluster.config import DATA_DIR, load_place
from cluster.errors import ConfigError, DataDirError
from cluster.refounding import (
    TOKEN_LEAST_MAX,
    TOKENS_SKIPPED,
    Place,
    Seed,
    Survivor,
    Terms,
    check_empty,
    found,
    of_backup,
    of_nothing,
    survivor,
)
from holdfast.wire.backup import BackupDamaged, BackupReader

_PIECE_BYTES: Final = 1 << 20
_ALONE: Final = "127.0.0.1:7800"
"""Where a node listens for others that has none, as it does by default."""


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints end the program as a wrong configuration does."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong. Raises ConfigError."""
        raise ConfigError(f"{message}; see `{self.prog} --help`")


def run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Carry out one of the commands; return the exit code. Raises StartupError."""
    command, *words = argv
    return {"restore": _restore, "recover": _recover}[command](words, environ)


def _restore(words: Sequence[str], environ: Mapping[str, str]) -> int:
    parser = _Parser(
        prog="holdfast-node restore",
        allow_abbrev=False,
        description="Turn an empty data directory into that of the first node of a new cluster, which has the"
        " state of a backup. Run it on one node alone; the others join with --join and empty directories."
        " Without a FILE the new cluster is empty, and --min-token says where its tokens begin.",
    )
    parser.add_argument("file", metavar="FILE", nargs="?", help="made by `holdfast backup save`; - is stdin")
    parser.add_argument("--data-dir", metavar="DIR", help=f"must be empty (default: ./{DATA_DIR})")
    parser.add_argument("--node-id", metavar="ID", help="name of this node (default: n1)")
    parser.add_argument(
        "--peers",
        metavar="ID=HOST:PORT,...",
        help="all nodes of the new cluster, including this one (default: the members in the backup)",
    )
    parser.add_argument("--config", metavar="FILE", help="take these settings from the node's TOML file")
    _add_terms(parser)
    given = parser.parse_args(words)
    flags = [
        word
        for flag in ("data_dir", "node_id", "peers", "config")
        if getattr(given, flag) is not None
        for word in (f"--{flag.replace('_', '-')}", getattr(given, flag))
    ]
    place = load_place(flags, environ)
    check_empty(place.data_dir)
    given_peers = {node_id: str(address) for node_id, address in place.peers.items()}
    if given.file is None:
        if not given.min_token:
            parser.error("give a FILE, or --min-token for an empty cluster")
        seed = of_nothing(given_peers or {place.node_id: _ALONE})
    else:
        seed = _read(given.file)
        seed = seed._replace(peers=given_peers or seed.peers)
        if place.node_id not in seed.peers:
            raise ConfigError(
                f"node_id: {place.node_id!r}: the members in the backup are {', '.join(seed.peers)}:"
                " give --peers, or the --node-id of one of these"
            )
    _found(place.data_dir, place.node_id, seed, given)
    return 0


def _read(file: str) -> Seed:
    """Return the state in a backup, with its members. Raises DataDirError."""
    state = bytearray()
    reader = BackupReader(state.extend)
    try:
        for piece in _pieces(file):
            reader.feed(piece)
        info = reader.finish()
        source = (
            f"the backup of cluster {info.cluster_id} at revision {info.revision}, saved"
            f" {_moment(info.created_ms / 1000)}"
        )
        return of_backup(bytes(state), Place(info.log_index, info.log_term), info.members, source)
    except (BackupDamaged, ValueError) as error:
        raise DataDirError(f"{file}: the backup cannot be used: {error}") from error
    except OSError as error:
        raise DataDirError(f"{file}: the backup cannot be read: {error}") from None


def _pieces(file: str) -> Iterator[bytes]:
    if file == "-":
        while piece := sys.stdin.buffer.read(_PIECE_BYTES):
            yield piece
        return
    with Path(file).open("rb") as opened:
        while piece := opened.read(_PIECE_BYTES):
            yield piece


def _add_terms(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep-holds",
        action="store_true",
        help="keep holds, waits and sessions, with a whole lease once the cluster serves (default: they end)",
    )
    parser.add_argument(
        "--min-token",
        metavar="N",
        type=int,
        default=0,
        help=f"fencing tokens go on at N (default: {TOKENS_SKIPPED} above the highest one known)",
    )


def _found(path: Path, node_id: str, seed: Seed, given: argparse.Namespace) -> None:
    """Make the directory, and say what is to be done next. Raises StartupError."""
    token_min, highest = given.min_token, seed.highest_token
    if token_min and not highest < token_min <= TOKEN_LEAST_MAX:
        raise ConfigError(
            f"--min-token: {token_min}: must be above {highest}, the highest token known, and at most"
            f" {TOKEN_LEAST_MAX}"
        )
    seed = seed._replace(source=f"{seed.source}; done at {_moment(time.time())}")
    new = found(path, node_id, seed, Terms(given.keep_holds, token_min))
    others = [peer_id for peer_id in sorted(seed.peers) if peer_id != node_id]
    lines = [
        f"{path}: node {node_id} of the new cluster {new.cluster_id}, revision {new.revision}",
        f"restored {new.record}; tokens go on at {new.next_token}",
        f"next: start {node_id} on it, with its usual settings",
    ]
    if others:
        count = len(seed.peers)
        listed = ",".join(f"{peer_id}={peer}" for peer_id, peer in seed.peers.items())
        lines += [
            f"then start {' and '.join(others)}, each with its usual settings, an empty data directory, and",
            f"    --join --peers {listed}",
            f"the cluster serves when {count // 2 + 1} of its {count} nodes have caught up",
        ]
    _say(*lines)


def _recover(words: Sequence[str], environ: Mapping[str, str]) -> int:  # noqa: ARG001 - as `_restore`
    parser = _Parser(
        prog="holdfast-node recover",
        allow_abbrev=False,
        description="When a majority of the data directories is lost for good: make a new cluster of one that"
        " is left. Its node must be stopped. What only the lost nodes had is lost. The directory stays as it"
        " is; the new one is to be used in its place.",
    )
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        nargs="+",
        required=True,
        help="the directories that are left; the one with the newest entry counts",
    )
    parser.add_argument("--into", metavar="DIR", required=True, help="the new data directory; must be empty")
    parser.add_argument("--yes", metavar="CLUSTER_ID", help="do not ask for the id of the lost cluster")
    _add_terms(parser)
    given = parser.parse_args(words)
    check_empty(Path(given.into))
    with ExitStack() as opened:
        left = [opened.enter_context(survivor(Path(path))) for path in given.data_dir]
        newest = max(left, key=lambda one: (one.last.term, one.last.entry))
        clusters = {one.cluster_id for one in left}
        if len(clusters) > 1:
            raise DataDirError(
                f"the directories are those of different clusters: {', '.join(sorted(clusters))}"
            )
        if not newest.cluster_id:
            raise DataDirError(f"{newest.path}: this node never belonged to a cluster")
        for one in left:
            _tell(one)
        _confirm(newest.cluster_id, given.yes)
        _found(Path(given.into), newest.node_id, newest.seed(), given)
    return 0


def _tell(one: Survivor) -> None:
    """Say what a directory has, and what may be missing."""
    written = f"{_moment(one.written_s)}, {_age(max(0.0, time.time() - one.written_s))}"
    _say(
        f"{one.path}: node {one.node_id} of cluster {one.cluster_id}",
        f"  last log entry {one.last.entry}, term {one.last.term}, written {written}",
        "  what the lost nodes acknowledged after that is lost",
    )
    if one.uncertain_count:
        _say(
            f"  {one.uncertain_count} entries are not known to be committed; they are kept, since they may"
            " have been acknowledged"
        )


def _confirm(cluster_id: str, given: str | None) -> None:
    """Go on only if an operator names the cluster that is given up. Raises ConfigError."""
    if given is None:
        _say(
            "The old cluster must never run again: its other nodes must be gone, or stay stopped.",
            "Type the id of the cluster to go on:",
        )
        given = sys.stdin.readline().strip()
    if given != cluster_id:
        raise ConfigError(f"the cluster id is {cluster_id}, not {given!r}: nothing was done")


def _say(*lines: str) -> None:
    print(*lines, sep="\n", flush=True)


def _moment(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _age(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours} h {rest // 60} min ago" if hours else f"{rest // 60} min {rest % 60} s ago"
