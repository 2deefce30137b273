"""The command scripts/bench peers, with systems that need no programs, and scripts/bench smoke."""

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from lab.bench import command as bench
from lab.bench import peers, smoke
from lab.peers import shares
from lab.peers.system import Running, Way
from scripts.lib import guardian
from scripts.local_cluster import ClusterFailure
from tests.unit.lab.peer_parts import Echo, way


class Fake:
    """A system without processes."""

    def __init__(self, name: str, *ways: Way, missing: Sequence[str] = (), is_broken: bool = False) -> None:
        self.name = name
        self.nodes = 1
        self.ways = list(ways)
        self.packages = list(missing)
        self.is_broken = is_broken

    def missing(self) -> list[str]:
        """Return what was said."""
        return self.packages

    @contextmanager
    def running(self, directory: Path, workers: int) -> Iterator[Running]:
        """Write something, or fail."""
        assert workers == 4
        (directory / "data").write_text("data")
        if self.is_broken:
            raise ClusterFailure("it does not start")
        yield Running([], self.ways)


def parse(*options: str) -> argparse.Namespace:
    """Return what the command line makes of options."""
    return bench.build_parser().parse_args(["peers", *options])


def measured(tmp_path: Path, *systems: Fake, options: Sequence[str] = ()) -> int:
    """Run the command with these systems."""
    (tmp_path / "disk").mkdir()
    arguments = parse("--workers", "4", "--seconds", "0.1", "--warm-up", "0", "--waiters", "2", *options)
    arguments.only = systems
    arguments.disk = tmp_path / "disk"
    with guardian.guarded():
        code = peers.run(arguments)
    assert list(arguments.disk.iterdir()) == []
    return code


def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Table, JSON and plot have all rows; what is not installed is named with its packages."""
    files = tmp_path / "found.json", tmp_path / "found.svg"
    ways = way(Echo())._replace(key="holdfast-http"), way(Echo(), is_contended=True)
    fakes = Fake("ours", *ways), Fake("other", missing=["other-server", "java"]), Fake("third", way(Echo()))
    options = ["--json", str(files[0]), "--plot", str(files[1]), "--rounds", "2"]
    assert measured(tmp_path, *fakes, options=options) == 0
    output = capsys.readouterr()
    assert "other is skipped: it is not installed; apt-get install other-server java" in output.err
    assert "skipped: other, not installed (Debian's packages: other-server java)" in output.out
    assert "round 2: Echo, one lock: 2 workers" in output.err
    assert "Own locks, 4 workers" in output.out
    assert "load of the machine: " in output.out
    found = json.loads(files[0].read_text())
    assert found["skipped"] == {"other": ["other-server", "java"]}
    assert [(each["way"], each["is_contended"]) for each in found["rows"]] == [
        *(("holdfast-http", False), ("echo", True), ("echo", False)),
    ]
    assert found["rows"][2]["ratios"]["holdfast-http"] > 0
    assert len(found["rounds"]) == 6
    assert found["machine"]["load_before"] >= 0
    assert ET.fromstring(files[1].read_text()).tag.endswith("svg")  # noqa: S314 - we have written it


def test_one_that_fails_does_not_stop_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A system that does not start is told, the next one is measured, and the exit code is 1."""
    assert measured(tmp_path, Fake("broken", is_broken=True), Fake("whole", way(Echo()))) == 1
    output = capsys.readouterr()
    assert "scripts/bench: broken: it does not start" in output.err
    assert "Echo " in output.out


@pytest.mark.parametrize(("fails_count", "missing", "code"), [(0, [], 0), (1, [], 1), (0, ["package"], 1)])
def test_the_exit_code_tells_of_errors(
    fails_count: int, missing: list[str], code: int, tmp_path: Path
) -> None:
    """An answer that was an error, and nothing measured at all, are failures."""
    fake = Fake("one", way(Echo(fails_count=fails_count)), missing=missing)
    assert measured(tmp_path, fake) == code


def test_without_control_groups_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A share that nobody can be held to is an error before the first system is started."""
    monkeypatch.setattr(shares, "hierarchy", lambda: tmp_path / "missing")
    with pytest.raises(shares.NoGroupsError, match="cannot be made or written"):
        measured(tmp_path, Fake("one", way(Echo())), options=["--share", "0.3"])


def test_one_worker_is_measured_beside_a_busy_processor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With `--busy` own locks have a further step with one worker, and a contended lock has none."""
    fake = Fake("one", way(Echo()), way(Echo(), is_contended=True))
    assert measured(tmp_path, fake, options=["--busy", "--json", str(tmp_path / "found.json")]) == 0
    output = capsys.readouterr()
    assert "Echo, own locks, beside a busy processor: 1 workers" in output.err
    assert "Own locks, 1 worker, beside a busy processor" in output.out
    assert "all clients run on Python " in output.out
    rows = json.loads((tmp_path / "found.json").read_text())["rows"]
    assert [(row["workers"], row["is_beside_busy"]) for row in rows] == [(4, False), (2, False), (1, True)]


def test_options_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown systems and too many workers are refused; systems run in their own order."""
    assert [each.name for each in parse("--only", "redis,holdfast").only] == ["holdfast", "redis"]
    assert len(parse().only) == 5
    assert (parse().workers, parse("--workers", "1,256").workers) == ((256,), (1, 256))
    assert (parse().share, parse("--share", "0.3").share, parse("--busy").busy) == (None, 0.3, True)
    for share in ("0", "0.001", "-1", "1000", "nan"):
        with pytest.raises(SystemExit):
            parse("--share", share)
    for wrong in (["--only", "memcached"], ["--workers", "513"], ["--workers", "1,0"], ["--waiters=-1"]):
        with pytest.raises(SystemExit):
            parse(*wrong)
    assert "there are holdfast, etcd, zookeeper, redis, postgresql" in capsys.readouterr().err


def test_smoke_runs_all_steps_and_judges_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step is a valid command line; a failure is kept while the others run; an interruption ends all."""
    done: list[str] = []

    def run(code_of: dict[str, int]) -> int:
        def of_step(argv: Sequence[str]) -> int:
            command: str = bench.build_parser().parse_args(argv).command
            done.append(command)
            return code_of.get(command, 0)

        done.clear()
        return smoke.run(of_step)

    alone = ["http", "stream", "sdk", "handoff", "failover", "memory", "growth", "fairness"]
    monkeypatch.setattr(smoke, "has_peers", lambda: True)
    assert run({}) == 0
    assert done == [*alone, "peers"]
    assert run({"stream": 1}) == 1
    assert done == [*alone, "peers"]
    assert run({"stream": 130}) == 130
    assert done == ["http", "stream"]
    monkeypatch.setattr(smoke, "has_peers", lambda: False)
    assert run({}) == 0
    assert done == alone


def test_smoke_knows_whether_others_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """We alone are not enough to compare."""
    ours, other = Fake("holdfast"), Fake("redis", missing=["redis-server"])
    monkeypatch.setattr(peers, "SYSTEMS", (ours, other))
    assert not smoke.has_peers()
    other.packages = []
    assert smoke.has_peers()
