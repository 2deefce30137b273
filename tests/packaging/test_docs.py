"""The documents say what the code does: links lead somewhere, examples run, tables list what there is."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import config_sources, errors
from cluster.commands import outbox
from holdfast import wire
from holdfast.cli import exit_codes
from http_api.server.request_rates import RequestRates
from http_api.tls_watch import TlsWatch
from lockstate.words import limits
from redis_api.server import RedisServer
from redis_api.shared.client import Face
from scripts.local_cluster import LocalCluster
from tests.support import libraries, servers
from tests.support.certificates import Certificates

ROOT = Path(__file__).resolve().parents[2]
OPERATING = (ROOT / "docs" / "operating.md").read_text("utf-8")
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/*.md"))
)
EXAMPLES = sorted(
    path.name for path in (ROOT / "docs" / "examples").iterdir() if path.suffix in {".py", ".sh"}
)

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PRINTED = {
    "alembic_migration.py": ("3 processes ended with [0, 0, 0]\n", "runs of the migration: 1\n"),
    "apscheduler_job.py": ("called 6 times: ['made']\n",),
    "celery_beat.py": ("sent by first, first\n", "sent by second, second\n", "sent twice in a period: 0\n"),
    "curl.sh": (
        "same hold: yes",
        '"code":"lock-held"',
        "larger token: true",
        '"state":"delayed"',
        "lease-expired",
    ),
    "cell_recipes.py": (
        "with the lock True, without it False",
        "counter: [1, 2, 3, 4, 5, 6, 7, 8, 9]",
        "barrier: all three are through",
        "group: ann, eve",
        "queue: ['one', 'three', 'two'], then None",
    ),
    "django_migrate.py": ("3 processes ended with [0, 0, 0]\n", "runs of the migration: 1\n"),
    "fenced_resource.py": ("its token is larger: True", "refused by the database", "the balance is 50"),
    "fenced_postgresql.py": (
        "second wrote 50; its token is larger: True\n",
        "first knows by its own clock that its lease is over: True\n",
        "first was refused by the database all the same\n",
        "the balance is 50\n",
    ),
    "opentelemetry_metrics.py": (
        "holdfast.client.wait lock granted",
        "holdfast.client.renewal lock renewed",
        "holdfast.client.wait lock held",
        "holdfast.client.lost lock max-hold",
        "lost: max-hold",
    ),
    "redis_cache.py": (
        "20 readers got {'report 1'}, computed 1 times\n",
        "while another one computes: report 1\n",
        "afterwards: report 2\n",
    ),
    "sdk_lock.py": ("step 3 with token", "the lock is free"),
}
"""What each example has to say."""
SERVERS = {
    "fenced_postgresql.py": ("DATABASE_URL", servers.postgresql),
    "redis_cache.py": ("REDIS_URL", servers.redis_server),
}
"""What an example needs besides the cluster, and the variable that tells it where that is."""
LIBRARIES = ("alembic_migration.py", "apscheduler_job.py", "celery_beat.py", "django_migrate.py")
"""Examples with another library and without a server, which the recipes show."""


def anchors(path: Path) -> set[str]:
    """Return the anchors of a document's headings, as forges make them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def section(title: str) -> str:
    """Return the text of a section of operating.md."""
    _, _, rest = OPERATING.partition(f"# {title}\n")
    assert rest, f"no section {title!r}"
    return re.split(r"^#+ ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def codes(text: str) -> set[str]:
    """Return what stands in the first cells of the tables of `text`, in backticks."""
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")]
    return {code for cell in cells for code in re.findall(r"`([^`]+)`", cell)}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    """Every link to a file of the project, and to a heading in it, has its end there."""
    path = ROOT / document
    for link in LINK.findall(path.read_text("utf-8")):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), f"{document}: {link}"
        assert target.is_relative_to(ROOT), f"{document}: {link}"
        assert not anchor or anchor in anchors(target), f"{document}: {link}"


def test_exit_codes_of_the_command_line_are_documented() -> None:
    """The table of exit codes is the one that the command line has."""
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", (ROOT / "docs" / "cli.md").read_text("utf-8"), re.MULTILINE)
    assert {int(code): meaning for code, meaning in rows} == exit_codes.MEANINGS


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes for the examples."""
    with LocalCluster.up(tmp_path_factory.mktemp("examples")) as cluster:
        yield cluster


@pytest.mark.process
@pytest.mark.parametrize("example", EXAMPLES)
def test_example_does_what_it_says(cluster: LocalCluster, example: str) -> None:
    """Each file of docs/examples runs against a real cluster, ends well, and prints its outcome."""
    if example.endswith(".sh") and not (shutil.which("curl") and shutil.which("jq")):
        pytest.skip("needs curl and jq")
    libraries.skip_without_those_of((ROOT / "docs" / "examples" / example).read_text("utf-8"))
    program = [sys.executable] if example.endswith(".py") else ["bash"]
    environment = os.environ | {
        "HOLDFAST_NODES": ",".join(node.http for node in cluster.nodes()),
        "PYTHONPATH": str(ROOT),
    }
    with contextlib.ExitStack() as stack:
        if example in SERVERS:
            variable, server = SERVERS[example]
            environment[variable] = stack.enter_context(server()).url
        done = subprocess.run(
            [*program, str(ROOT / "docs" / "examples" / example)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    for text in PRINTED[example]:
        assert text in done.stdout


@pytest.mark.parametrize("example", [*SERVERS, *LIBRARIES])
def test_recipes_say_what_examples_print(example: str) -> None:
    """What the recipes show as the output of a linked program is what it has to say."""
    assert f"```text\n{''.join(PRINTED[example])}```\n" in (ROOT / "docs" / "recipes.md").read_text("utf-8")


def test_configuration_table_is_complete() -> None:
    """The table of settings has every flag, and its variable."""
    table = section("Configuration")
    flags = {"--" + name.replace("_", "-") for name in config_sources._SETTINGS}
    assert codes(table) == flags
    assert all(f"`HOLDFAST_{name.upper()}`" in table for name in config_sources._SETTINGS)


def test_log_table_is_complete() -> None:
    """The table of events has every event that a node logs, and no other."""
    sources = [
        path.read_text("utf-8")
        for folder in ("cluster", "lockapi", "http_api", "redis_api")
        for path in (ROOT / folder).rglob("*.py")
    ]
    logged = set(re.findall(r'"event=([a-z-]+)', "".join(sources)))
    assert codes(section("Log")) == logged


@pytest.mark.process
def test_metrics_table_is_complete(cluster: LocalCluster, tmp_path: Path) -> None:
    """The table of metrics has every metric that a node shows, and no other."""
    with urllib.request.urlopen(cluster.nodes()[0].http + "/metrics") as answer:
        shown = set(re.findall(r"^# TYPE (\w+)", answer.read().decode(), re.MULTILINE))
    # A node shows a counter with labels from the first time that it counts.
    counted = {"holdfast_commands_total", "holdfast_events_total", "holdfast_failures_total"}
    door = TlsWatch(Certificates(tmp_path).files()).door
    door.count("ok")
    with_tls = {sample[0] for sample in door.samples()}
    # Nor one of callers, when everybody may call.
    with_tokens = {
        "holdfast_http_principals",
        "holdfast_http_tokens_file_refused",
        "holdfast_http_unauthenticated_total",
    }
    with_a_bound = {sample[0] for sample in RequestRates(1).samples()}
    # Nor one of TLS between nodes, when they have none.
    with_peer_tls = {
        "holdfast_peer_links_opened_total",
        "holdfast_peer_tls_certificate_end_seconds",
        "holdfast_peer_tls_files_refused",
        "holdfast_peer_tls_mode",
    }
    # Nor one of traces, when there is no collector.
    with_a_collector = {"holdfast_spans_dropped_total", "holdfast_spans_exported_total"}
    # Nor of clients of Redis, where there is no address for them.
    nothing: Any = None
    face = Face(nothing, nothing, 1.0, nothing)
    face.commands["GET"] = face.errors["ERR"] = 1
    with_redis = {sample[0] for sample in RedisServer(face, nothing, nothing).samples()}
    # Nor what only a leader knows, or only a node that has a snapshot.
    of_some = {"holdfast_peer_lag_entries", "holdfast_snapshot_age_seconds"}
    table = codes(section("Metrics"))
    assert {name for name in table if name.startswith("holdfast_")} == (
        shown
        | counted
        | of_some
        | with_tls
        | with_tokens
        | with_a_bound
        | with_peer_tls
        | with_a_collector
        | with_redis
    )


def test_exit_codes_are_those_of_the_errors() -> None:
    """The table of exit codes has those of all errors that end a node."""
    table = section("Exit codes")
    kinds = (
        errors.StartupError,
        errors.ConfigError,
        errors.DataDirError,
        errors.IdentityRefused,
        errors.NodeFailed,
    )
    assert {int(number) for number in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} == {
        0,
        *(kind.exit_code for kind in kinds),
    }


def test_limits_are_those_of_the_code() -> None:
    """The table of limits has the numbers of lockstate/words/limits.py and of the node's queue."""
    numbers = {int(number) for number in re.findall(r"\b\d+\b", section("Limits"))}
    there = {
        value
        for name, value in vars(limits).items()
        if name.endswith(("_MAX", "_MIN")) and isinstance(value, int)
    }
    not_told = {limits.HOLDERS_SHOWN_MAX, limits.ORIGINS_COUNT_MAX, limits.LIST_LIMIT_MAX}
    assert there - not_told <= numbers
    assert {outbox.PENDING_COUNT_MAX, outbox.QUEUE_COUNT_MAX, outbox.UNDER_WAY_LOAD_MAX} <= numbers


def test_readme_names_real_codes() -> None:
    """Every code of the README's table of failures is a code of the API, with its status."""
    rows = re.findall(r"^\| (`.*) \| (\d+) \|", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert rows
    for cell, status in rows:
        for code in re.findall(r"`([^`]+)`", cell):
            assert wire.PROBLEMS[code].status == int(status), code
