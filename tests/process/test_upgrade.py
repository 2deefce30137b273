"""Two releases in one cluster: a rolling upgrade, the way back, and what cannot be mixed.

This release is the first one. The one after it is made up: it is this one with further rules.
"""

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from cluster.storage.journal import Journal
from holdfast import wire
from lockstate.words.versions import RULES_FIRST
from scripts.local_cluster import PROJECT
from tests.process import history_checkers
from tests.process.load import Load
from tests.process.nodes import (
    Http,
    LogSince,
    exit_code,
    followers,
    holdfast,
    http_to,
    make_node,
    node_ids,
    slow,
    until,
    urls,
    wait_whole,
)
from tests.process.releases import MixedCluster, patched_release

pytestmark = pytest.mark.process

IDENTITY_REFUSED: Final = 4
FAILED: Final = 70
RULES: Final = "holdfast_rules_active"
RULES_NEXT: Final = RULES_FIRST + 1
NEXT_RULES: Final = f"""

RULES[{RULES_NEXT}] = Rules({RULES_NEXT}, RULES[{RULES_FIRST}].command_tag_max, "An acquire may steal.")
"""
"""What the later release has at the end of its list of versions."""


NOT_KNOWN: Final = f"rules {RULES_NEXT}, which this release does not know: upgrade this node"


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the code of the release after this one."""
    directory = tmp_path_factory.mktemp("later") / "tree"
    return patched_release(directory, [("lockstate/words/versions.py", NEXT_RULES)])


def leader_last(cluster: MixedCluster) -> list[str]:
    """Return all nodes, the leader last."""
    others = followers(cluster)
    return [*others, *(set(node_ids(cluster)) - set(others))]


def leader_first(cluster: MixedCluster) -> list[str]:
    """Return all nodes, the leader first."""
    return leader_last(cluster)[::-1]


async def replace_under_load(cluster: MixedCluster, load: Load, node_id: str, tree: Path) -> None:
    """Replace a node's release while clients work, and let them work on with the mixture."""
    await asyncio.to_thread(cluster.terminate, node_id)
    # More than the log keeps: the node comes back to a snapshot of the others.
    await load.grants(150)
    cluster.set_tree(node_id, tree)
    cluster.start(node_id)
    await asyncio.to_thread(wait_whole, cluster)
    await load.grants(50)


async def rules_of(http: Http, cluster: MixedCluster) -> set[float]:
    """Return the rules that the nodes follow, as they say themselves."""
    return {await http.metric(node_id, RULES) for node_id in node_ids(cluster)}


async def until_advanced(http: Http, cluster: MixedCluster) -> None:
    """Wait until all nodes follow the next rules."""

    async def advanced() -> bool:
        return await rules_of(http, cluster) == {RULES_NEXT}

    await until(advanced, "the rules move on")


async def check_history(http: Http, load: Load, prefix: str) -> None:
    """Check what clients were told against each other and against what every node has now."""
    assert not history_checkers.violations(load.history)
    assert not history_checkers.errors(load.history)
    kept = [
        grant for name, grant in history_checkers.still_held(load.history).items() if f"{prefix}/kept" in name
    ]
    assert len(kept) > 20
    for node_id in ("n1", "n2", "n3"):
        tokens = await http.tokens(node_id, f"{prefix}/kept")
        assert not history_checkers.lost_grants(kept, tokens)


@pytest.mark.parametrize("order", [leader_last, slow(leader_first)])
async def test_a_release_is_replaced_node_by_node(
    tmp_path: Path, later: Path, order: Callable[[MixedCluster], list[str]]
) -> None:
    """Clients notice nothing of a rolling upgrade; the rules move when the last node has been replaced."""
    with MixedCluster.of(tmp_path / "mixed", PROJECT) as cluster:
        prefix = "up"
        async with http_to(cluster) as http:
            async with Load(urls(cluster), prefix=prefix, keep_every=3) as load:
                nodes = order(cluster)
                logs = {node_id: LogSince(cluster, node_id) for node_id in nodes}
                for number, node_id in enumerate(nodes, 1):
                    await replace_under_load(cluster, load, node_id, later)
                    if number < len(nodes):
                        assert await http.metric(node_id, RULES) == RULES_FIRST
                        assert not logs[node_id].lines("event=rules-proposed")
                await until_advanced(http, cluster)
                await load.grants(50)
            await check_history(http, load, prefix)
            advance = f"event=rules-advance from={RULES_FIRST} to={RULES_NEXT}"
            assert all(log.lines(advance) for log in logs.values())
            snapshots = [log.lines("event=snapshot-installed") for log in logs.values()]
            assert any(snapshots), "snapshots travelled between the releases"


async def test_the_rules_wait_for_the_operator_who_holds_them(tmp_path: Path, later: Path) -> None:
    """All nodes know the next rules: none follows them, whoever leads, until they are released."""
    with MixedCluster.of(tmp_path / "held", PROJECT) as cluster:
        async with http_to(cluster) as http:
            why = {"reason": "not before Monday"}
            assert (await http.call("n1", "PUT", wire.CLUSTER_RULES_HOLD, why)).body["was_held"] is False
            log = LogSince(cluster, "n1")
            async with Load(urls(cluster), prefix="held", keep_every=3) as load:
                for node_id in leader_first(cluster):
                    await replace_under_load(cluster, load, node_id, later)
                # Whoever led has been replaced: another leader has the hold from the log, or from a snapshot.
                await load.grants(100)
                for node_id in node_ids(cluster):
                    await asyncio.to_thread(cluster.replace, node_id, later)
                    await asyncio.to_thread(wait_whole, cluster)
                assert await rules_of(http, cluster) == {RULES_FIRST}
                assert not log.lines("event=rules-proposed")
                for command in ("status", "version"):
                    said = await holdfast(cluster, command)
                    assert f"rules {RULES_FIRST} have been held for" in said
                    assert f"the cluster can move to rules {RULES_NEXT}" in said
                out = await holdfast(cluster, "cluster", "rules", "release", "--reason", "it is Monday")
                assert out == f"rules {RULES_FIRST} are released; see `holdfast version`\n"
                await until_advanced(http, cluster)
                await load.grants(50)
            await check_history(http, load, "held")
            assert "are held" not in await holdfast(cluster, "version")


async def test_an_upgrade_can_be_taken_back_until_the_rules_move(tmp_path: Path, later: Path) -> None:
    """A node that has run the later release goes back to this one, on the same directory, under load."""
    with MixedCluster.of(tmp_path / "mixed", PROJECT) as cluster:
        prefix = "back"
        async with http_to(cluster) as http:
            async with Load(urls(cluster), prefix=prefix, keep_every=3) as load:
                first, second, _ = leader_first(cluster)
                for node_id in (first, second):
                    await replace_under_load(cluster, load, node_id, later)
                # Now a node of the later release leads one of each.
                moved = await http.call(
                    first, "POST", "/v1/cluster/transfer-leadership", {"to": first, "reason": "by hand"}
                )
                assert moved.status == 200, moved
                await load.grants(150)
                for node_id in (second, first):
                    assert await http.metric(node_id, RULES) == RULES_FIRST
                    await replace_under_load(cluster, load, node_id, PROJECT)
            await check_history(http, load, prefix)


def directory_facts(directory: Path, copy: Path) -> tuple[object, ...]:
    """Return what a stopped node's directory says of its data, without touching it."""
    shutil.copytree(directory, copy)
    identity = json.loads((directory / "identity.json").read_text())
    journal = Journal.open(copy, identity["content"]["disk_id"])
    entries = journal[:]
    journal.close()
    snapshot = (directory / "snapshot").read_bytes() if (directory / "snapshot").exists() else b""
    return entries, snapshot, identity


async def test_after_the_rules_moved_the_release_before_is_refused(tmp_path: Path, later: Path) -> None:
    """A node of it is told why, ends, and changes nothing; upgraded again it has everything."""
    with MixedCluster.of(tmp_path / "new", later) as cluster:
        async with http_to(cluster) as http:
            await until_advanced(http, cluster)  # those of a new cluster move at once
            got = await http.acquire("n1", "a")
            assert got.status == 200
            asked, node_id = cluster.leader(), followers(cluster)[0]
            cluster.terminate(node_id)
            before = directory_facts(cluster.data_dir(node_id), tmp_path / "before")
            log = LogSince(cluster, node_id)
            cluster.set_tree(node_id, PROJECT)
            cluster.start(node_id)
            assert await asyncio.to_thread(exit_code, cluster, node_id) in (IDENTITY_REFUSED, FAILED)
            # Its own log tells it, or the first of the others that it meets.
            active = f"the cluster follows rules {RULES_NEXT}"
            refused = f"node {node_id} knows rules {RULES_FIRST} and {active}: upgrade {node_id}"
            assert any(log.lines(said) for said in (NOT_KNOWN, refused)), log.text
            assert directory_facts(cluster.data_dir(node_id), tmp_path / "after") == before

            cluster.replace(node_id, later)
            await until(lambda: (cluster.view(node_id) or {}).get("ready"), "it is upgraded again")
            assert await http.token(node_id, "a") == got.body["token"]

            new_peer = make_node(cluster, "n4")
            joining = LogSince(cluster, "n4")
            cluster.set_tree("n4", PROJECT)
            cluster.start("n4")
            assert (await http.add_member(asked, "n4", new_peer)).status == 200
            await until(
                lambda: joining.lines("event=not-let-in", f"follows rules {RULES_NEXT}: upgrade n4"),
                "it is told why",
            )
            assert (await http.remove_member(asked, "n4")).status == 200
            cluster.kill("n4")


async def test_a_release_does_not_read_what_later_rules_wrote(tmp_path: Path, later: Path) -> None:
    """When all nodes go back together nobody refuses them: their logs do, loudly, and nothing is lost."""
    with MixedCluster.of(tmp_path / "new", later) as cluster:
        async with http_to(cluster) as http:
            await until_advanced(http, cluster)
            got = await http.acquire("n1", "a")
            cluster.down()
            logs = {node_id: LogSince(cluster, node_id) for node_id in node_ids(cluster)}
            for node_id in logs:
                cluster.set_tree(node_id, PROJECT)
                cluster.start(node_id)
            for node_id, log in logs.items():
                assert await asyncio.to_thread(exit_code, cluster, node_id) == FAILED
                assert log.lines(NOT_KNOWN)
            for node_id in logs:
                cluster.set_tree(node_id, later)
                cluster.start(node_id)
            await asyncio.to_thread(wait_whole, cluster)
            assert await http.token("n2", "a") == got.body["token"]
            assert (await http.acquire("n3", "b")).body["token"] > got.body["token"]


# -- rules that differ --------------------------------------------------------------------------------------

STEAL: Final = """

from lockstate.reads.holders import holders_of
from lockstate.rules.holds import ends, waiting
from lockstate.words.events import EventKind
from lockstate.words.kinds import HoldKind

_acquire = Locks.acquire


def _acquire_or_steal(self, command, key=None):
    uncommon = command.uncommon
    if uncommon is not None and uncommon.note == "steal" and self._state.rules >= {since}:
        for hold in list(holders_of(self._state, HoldKind.LOCK, command.name)):
            waiting.serve(self._effects, ends.end(self._effects, hold, EventKind.FORCED, "stolen"))
    return _acquire(self, command, key)


Locks.acquire = _acquire_or_steal
"""
"""A change of what an acquire does, as careless as can be: a client takes a lock from its holder."""

COMPARED_WITHIN_S: Final = 10


async def holders_after_a_steal(http: Http, cluster: MixedCluster, asked: str) -> list[list[str]]:
    """Let A hold a lock and B steal it through `asked`; return the holders that each node knows then."""
    assert (await http.acquire("n1", "y", owner="A")).status == 200
    await http.acquire(asked, "y", owner="B", note="steal")
    seen = []
    for node_id in node_ids(cluster):
        view = await http.lock(node_id, "y")
        seen.append([holder["owner"] for holder in view.body["holders"]])
    return seen


async def test_a_change_without_a_number_gives_one_lock_two_holders(tmp_path: Path) -> None:
    """What the numbers are for: two builds differ in what a command does, and nothing keeps them apart.

    Until their states are compared, within ten seconds: then the one that differs from the others stops.
    """
    changed = patched_release(tmp_path / "changed", [("lockstate/rules/locks.py", STEAL.format(since=0))])
    with MixedCluster.of(tmp_path / "mixed", PROJECT) as cluster:
        async with http_to(cluster) as http:
            upgraded = followers(cluster)[0]
            cluster.replace(upgraded, changed)
            await asyncio.to_thread(wait_whole, cluster)
            log = LogSince(cluster, upgraded)
            seen = await holders_after_a_steal(http, cluster, upgraded)
            assert sorted(seen) == [["A"], ["A"], ["B"]]
            assert await asyncio.to_thread(exit_code, cluster, upgraded, COMPARED_WITHIN_S) == FAILED
            assert log.lines("event=node-failed", "the state of this node differs from that of the majority")
            others = [node_id for node_id in node_ids(cluster) if node_id != upgraded]
            for node_id in others:
                assert (await http.acquire(node_id, f"of-{node_id}")).status == 200


async def test_a_change_behind_a_number_never_gives_one_lock_two_holders(tmp_path: Path) -> None:
    """The same change as the next rules: nobody follows it until all can, then all do, from one entry on."""
    changed = patched_release(
        tmp_path / "changed",
        [
            ("lockstate/rules/locks.py", STEAL.format(since=RULES_NEXT)),
            ("lockstate/words/versions.py", NEXT_RULES),
        ],
    )
    with MixedCluster.of(tmp_path / "mixed", PROJECT) as cluster:
        async with http_to(cluster) as http:
            nodes = leader_first(cluster)
            for node_id in nodes[:-1]:
                await asyncio.to_thread(cluster.replace, node_id, changed)
                await asyncio.to_thread(wait_whole, cluster)
                assert await holders_after_a_steal(http, cluster, node_id) == [["A"]] * 3
                assert await rules_of(http, cluster) == {RULES_FIRST}
                held = await http.lock(node_id, "y")
                assert (await http.call("n1", "POST", "/v1/locks/force-release", FORCE)).status == 200
                assert len(held.body["holders"]) == 1
            await asyncio.to_thread(cluster.replace, nodes[-1], changed)
            await asyncio.to_thread(wait_whole, cluster)
            await until_advanced(http, cluster)
            assert await holders_after_a_steal(http, cluster, nodes[0]) == [["B"]] * 3


FORCE: Final = {"name": "y", "reason": "the next round"}
