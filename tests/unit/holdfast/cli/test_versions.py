"""The command `version`: what runs, and which node keeps the rules from advancing."""

import json
from typing import Any

import pytest

import holdfast
from holdfast.cli import main
from tests.unit.holdfast.scripted import ScriptedNode, Step, answer


def view(rules: int, *, rules_hold: Any = None, **nodes: tuple[str, str, int]) -> Step:
    """Answer with nodes, each with state, version and rules."""
    rows = [
        {
            "id": node_id,
            "http": "",
            "peer": "",
            "revision": 7,
            "state": state,
            "version": version,
            "rules": known,
        }
        for node_id, (state, version, known) in nodes.items()
    ]
    return answer(
        node_id="n1", leader="n1", term=2, revision=7, nodes=rows, rules=rules, rules_hold=rules_hold
    )


async def version(node_url: str, *options: str) -> int:
    """Run the command; return its exit code."""
    arguments = main.read(["--nodes", node_url, "--timeout", "300ms", "version", *options])
    return await main._main(arguments)


async def test_all_run_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """The client's version, a line for each node, and the rules."""
    new = ("follower", "1.1.0", 2)
    async with ScriptedNode(view(2, n1=("leader", "1.1.0", 2), n2=new)) as node:
        assert await version(node.url) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["client", holdfast.__version__],
        ["ID", "STATE", "VERSION", "RULES"],
        ["n1", "leader", "1.1.0", "2"],
        ["n2", "follower", "1.1.0", "2"],
        ["rules", "2", "are", "active,", "2", "are", "the", "newest", "that", "a", "node", "knows"],
    ]


async def test_who_holds_the_rules_back_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A node that knows only older rules, one that cannot be reached and one that joins, each with why."""
    nodes: dict[str, Any] = {
        "n1": ("leader", "1.1.0", 2),
        "n2": ("follower", "1.0.0", 1),
        "n3": ("unreachable", "1.1.0", 2),
        "n4": ("joining", "1.1.0", 2),
    }
    async with ScriptedNode(view(1, **nodes), view(1, **nodes)) as node:
        assert await version(node.url) == 0
        lines = capsys.readouterr().out.splitlines()
        assert await version(node.url, "-o", "json") == 0
    assert lines[-3:] == [
        "n2 holds the advance to rules 2 back: it runs 1.0.0, which knows rules 1: upgrade it",
        (
            "n3 holds the advance to rules 2 back: it cannot be reached: start it with the new release,"
            " or remove it"
        ),
        "n4 holds the advance to rules 2 back: it is joining",
    ]
    told = json.loads(capsys.readouterr().out)
    assert (told["client"], told["rules"], told["rules_newest"]) == (holdfast.__version__, 1, 2)
    assert [each["id"] for each in told["held_back"]] == ["n2", "n3", "n4"]
    assert told["nodes"][1] == {"id": "n2", "state": "follower", "version": "1.0.0", "rules": 1}


async def test_who_holds_the_rules_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """With the reason and, once all nodes know newer ones, how the cluster moves on."""
    hold = {"by": "ann", "reason": "not before Monday", "held_ms": 7_200_000}
    old, new = ("leader", "1.0.0", 1), ("leader", "1.1.0", 2)
    for state, more in ((old, []), (new, [CAN_MOVE])):
        async with ScriptedNode(view(1, rules_hold=hold, n1=state)) as node:
            assert await version(node.url) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[4:] == ["rules 1 have been held by ann for 2.0h: not before Monday", *more]


CAN_MOVE = "the cluster can move to rules 2, with `holdfast cluster rules release`; then no way back"


async def test_the_client_is_told_without_a_node(capsys: pytest.CaptureFixture[str]) -> None:
    """Its version is printed, and then that no node answers."""
    assert await version("http://127.0.0.1:1") == 121
    assert capsys.readouterr().out == f"client {holdfast.__version__}\n"
