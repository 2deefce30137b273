"""Every command of every face passes lockapi/gateway.py: the one place where it can be refused."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockapi.node import NodeState, ServingNode

ROOT = Path(__file__).resolve().parents[2]
FACES = ("lockapi", "http_api", "redis_api")
GATEWAY = "lockapi/gateway.py"
KNOW_THE_NODE = {"lockapi/node.py", GATEWAY, "http_api/app.py"}
"""The modules that may name ServingNode: its contract, its user, and the place that hands it over."""

ACTIONS = frozenset(vars(ServingNode)) - frozenset(vars(NodeState))
"""What only the gateway calls on a node: submit, acquire, read and the changes of the members."""


def actions_in(source: str) -> Iterator[str]:
    """Yield the calls of a node's actions, made on anything that is called a node."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=action)) if action in ACTIONS:
                if name == "node":
                    yield f"{node.lineno}: {name}.{action}"
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(attr="node" | "_node" as name), attr=action)
            ):
                if action in ACTIONS:
                    yield f"{node.lineno}: {name}.{action}"


def modules() -> list[str]:
    """Return the paths of the faces' modules."""
    return sorted(path.relative_to(ROOT).as_posix() for face in FACES for path in (ROOT / face).rglob("*.py"))


@pytest.mark.parametrize("path", modules())
def test_only_the_gateway_acts_on_the_node(path: str) -> None:
    """No handler submits a command, reads or changes the members except through the gateway."""
    source = (ROOT / path).read_text("utf-8")
    found = list(actions_in(source))
    assert bool(found) == (path == GATEWAY), f"{path}: call the gateway instead: {found}"
    names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    assert "ServingNode" not in names or path in KNOW_THE_NODE, (
        f"{path}: take a Gateway, or a NodeState to look"
    )


def test_what_a_node_shows_cannot_act() -> None:
    """Handlers see the node as NodeState, which has none of its actions: the type checker stops them."""
    assert {"submit", "acquire", "read", "add_member", "remove_member", "transfer_leadership"} <= ACTIONS
    assert not ACTIONS & frozenset(vars(NodeState))


@pytest.mark.parametrize(
    "source",
    ["await node.submit(c, 1)", "await self._node.acquire(c, 1)", "await gateway.node.add_member(x, y, 1)"],
)
def test_an_action_is_found(source: str) -> None:
    """A way around the gateway is seen, and the gateway's own calls are none."""
    (line,) = actions_in(f"async def f():\n    {source}")
    assert line.startswith("2: ")
    assert not list(actions_in("async def f():\n    await gateway.submit(command, kind, 1)"))
