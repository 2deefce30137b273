"""The command `status`: every node is asked, and the answers are put together."""

import contextlib
import json
import re
from typing import Any

import pytest

from holdfast.cli import main
from tests.unit.holdfast.scripted import ScriptedNode, Step, answer, problem

OWN = {
    "uptime_ms": 90_000,
    "state_bytes": 3 << 20,
    "state_bytes_max": 1 << 30,
    "directory_bytes": 5 << 20,
    "free_bytes": 7 << 30,
    "snapshot_bytes": 100,
    "snapshot_age_ms": 120_000,
    "connections": 4,
    "connections_max": 900,
}
STATES = {"n1": "leader", "n2": "follower", "n3": "follower"}


def node_row(node_id: str, state: str, **changes: Any) -> dict[str, Any]:
    """Return how a node is shown."""
    row = {
        "id": node_id,
        "http": "",
        "peer": "",
        "state": state,
        "revision": 7,
        "version": "1.0.0",
        "rules": 1,
    }
    return row | changes


def view(node_id: str, states: dict[str, str] | None = None, **changes: Any) -> Step:
    """Answer as this node."""
    states = states or STATES
    rows = [node_row(each, state) for each, state in states.items()]
    fields = {
        "node_id": node_id, "leader": "n1", "term": 2, "revision": 7, "lag_ms": 40, "ready": True,
        "nodes": rows, "obstacles": [], "now_ms": 60_000, "own": OWN,
    }  # fmt: skip
    return answer(**(fields | changes))


async def status(
    capsys: pytest.CaptureFixture[str], *steps: Step, urls: tuple[str, ...] = ()
) -> tuple[int, str]:
    """Run the command against nodes that answer so; return exit code and output."""
    async with contextlib.AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(ScriptedNode(step)) for step in steps]
        asked = ",".join([*(node.url for node in nodes), *urls])
        code = await main._main(main.read(["--nodes", asked, "status"]))
        assert all(len(node.seen) == 1 for node in nodes)
    return code, capsys.readouterr().out


def cells(out: str, node_id: str) -> list[str]:
    """Return the cells of a node's line."""
    (line,) = [line for line in out.splitlines() if line.startswith(f"{node_id} ")]
    return re.split(r"\s{2,}", line)


async def test_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each node, as it says itself, and one failure that three nodes survive."""
    behind = [node_row("n3", "follower", revision=4, version="1.0.1")]
    code, out = await status(
        capsys,
        view("n1", lag_ms=0),
        view("n2"),
        view("n3", nodes=behind, revision=4, now_ms=58_000),
    )
    assert code == 0
    memory, disk = "3.0 MiB of 1.0 GiB", "5.0 MiB, 7.0 GiB free"
    rest = ["1.5m", memory, disk, "2.0m", "4 of 900"]
    assert cells(out, "n1") == ["n1", "leader", "1.0.0", "2", "0", "leads", *rest]
    assert cells(out, "n2") == ["n2", "follower", "1.0.0", "2", "0", "0.0s", *rest]
    assert cells(out, "n3") == ["n3", "follower", "1.0.1", "2", "3 (2.0s)", "0.0s", *rest]
    assert out.splitlines()[-1] == "survives 1 more failure"


async def test_a_node_that_does_not_answer_degrades_the_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    """Its line has what the others know; what they say is shown once, with what to do."""
    states = STATES | {"n3": "unreachable"}
    gone = {
        "kind": "unreachable",
        "peer": "n3",
        "for_ms": 5_000,
        "detail": "n3 is away",
        "advice": "start n3",
    }
    code, out = await status(
        capsys,
        view("n1", states, obstacles=[gone]),
        view("n2", states, obstacles=[gone | {"for_ms": 4_000}]),
        urls=("http://127.0.0.1:1",),
    )
    assert code == 3
    assert cells(out, "n3") == ["n3", "unreachable", "1.0.0", "-", "-", "-", "-", "-", "-", "-", "-"]
    assert "\nhttp://127.0.0.1:1: no connection: Connection refused. " in out
    assert out.splitlines()[-3:] == [
        "unreachable for 5 s: n3 is away",
        "    start n3",
        "survives 0 more failures",
    ]


async def test_why_a_node_gave_no_answer_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """With its id where the others know its URL. Once all members have told, other URLs are nobody's."""
    async with ScriptedNode(problem("tls-required")) as secure, ScriptedNode(view("n2")) as node:
        told = node_row("n1", "leader", http=secure.url.replace("http:", "https:"), revision=6)
        node.then(view("n2", nodes=[told, node_row("n2", "follower")]))
        code = await main._main(main.read(["--nodes", f"{secure.url},{node.url}", "status"]))
        out = capsys.readouterr().out
        assert code == 0
        assert "\nn1: this port speaks only TLS; use https://\n" in out
        assert cells(out, "n1")[4] == "-", "a leader is never behind"
        node.then(view("n2", nodes=[node_row("n2", "follower")]))
        await main._main(main.read(["--nodes", f"{secure.url},{node.url}", "status"]))
        assert "TLS" not in capsys.readouterr().out
        node.then(view("n2"))
        await main._main(main.read(["--nodes", f"{secure.url},{node.url}", "status", "-o", "json"]))
        (why,) = json.loads(capsys.readouterr().out)["unanswered"]
        assert why == f"{secure.url}: this port speaks only TLS; use https://"


async def test_a_node_of_another_cluster_is_no_good_news(capsys: pytest.CaptureFixture[str]) -> None:
    """Though it has the id of a member: what it says is not shown as what that member says."""
    ours = [node_row(each, state, peer=f"{each}:7800") for each, state in STATES.items()]
    ours[2]["state"] = "unreachable"
    theirs = [node_row("n3", "leader", peer="staging:7800")]
    code, out = await status(
        capsys,
        view("n3", nodes=theirs, leader="n3", term=1),
        view("n1", nodes=ours),
        view("n2", nodes=ours),
    )
    assert code == 3
    assert cells(out, "n3")[1] == "unreachable"
    assert "\nstaging:7800 says that it is n3, and n1 knows no such member: correct --nodes, " in out
    assert out.splitlines()[-1] == "survives 0 more failures"


async def test_trouble_of_one_node_is_told_although_all_serve(capsys: pytest.CaptureFixture[str]) -> None:
    """A node that has trouble itself is asked itself. Two of them have it twice."""
    full = {
        "kind": "disk-nearly-full",
        "peer": None,
        "for_ms": 0,
        "detail": "nearly full",
        "advice": "make room",
    }
    code, out = await status(capsys, view("n1"), view("n2", obstacles=[full]), view("n3", obstacles=[full]))
    assert code == 3
    assert out.count("make room") == 2
    assert "n3: disk-nearly-full for 0 s: nearly full\n    make room\n" in out
    assert out.splitlines()[-1] == "survives 1 more failure"


async def test_who_should_lead_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """With whoever wants it, and, while another node leads, why."""
    wish = {"id": "n2", "by": "ops", "reason": "it is near", "for_ms": 120_000, "why_not": "it is joining"}
    _, out = await status(capsys, view("n1", preferred=wish))
    assert "\nprefers n2, as asked by ops 2.0m ago: it is near\n    n2 does not lead: it is joining\n" in out
    _, out = await status(capsys, view("n1", preferred=wish | {"by": "", "why_not": ""}))
    assert "\nprefers n2, as asked 2.0m ago: it is near\n    n2 does not lead\n" in out
    _, out = await status(capsys, view("n1", preferred=wish | {"id": "n1", "why_not": ""}))
    assert "\nprefers n1, as asked by ops 2.0m ago: it is near\nsurvives" in out


async def test_without_a_leader_nothing_is_served(capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code says so."""
    states = {"n1": "follower", "n2": "unreachable", "n3": "unreachable"}
    code, out = await status(capsys, view("n1", states, leader=None, ready=False))
    assert (code, out.splitlines()[-1]) == (121, "serves nothing: no leader is known")


async def test_when_no_node_answers_each_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """With why it does not, and then what to do; that a look has changed nothing is left out."""
    urls = "http://127.0.0.1:1,http://127.0.0.1:2"
    assert await main._main(main.read(["--nodes", urls, "status"])) == 121
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "holdfast: http://127.0.0.1:1: no connection: Connection refused",
        "holdfast: http://127.0.0.1:2: no connection: Connection refused",
        "holdfast: no node answers; start them (their logs say why they stopped), or correct --nodes",
    ]
    assert await status(capsys, problem("forbidden"), urls=("http://127.0.0.1:1",)) == (119, "")


async def test_joining_nodes_do_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    """They are part of no majority yet."""
    code, out = await status(capsys, view("n1", STATES | {"n4": "joining", "n5": "joining"}))
    assert (code, out.splitlines()[-1]) == (0, "survives 1 more failure")


async def test_json_has_all_that_the_nodes_say(capsys: pytest.CaptureFixture[str]) -> None:
    """The fields of /v1/cluster as the leader has them, and every answer."""
    async with ScriptedNode(view("n2", term=1)) as old, ScriptedNode(view("n1")) as new:
        code = await main._main(main.read(["--nodes", f"{old.url},{new.url}", "status", "-o", "json"]))
    told = json.loads(capsys.readouterr().out)
    assert (code, told["node_id"], told["serves"], told["survives"]) == (0, "n1", True, 1)
    assert told["own"] == OWN
    assert {each["node_id"] for each in told["views"]} == {"n1", "n2"}
