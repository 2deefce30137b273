"""What simulated clients ask for: every command that clients can send."""

import ast
from pathlib import Path

from lockstate.catalogue import ROWS

HERE = Path(__file__).parent


def test_clients_send_every_command() -> None:
    """Each command of the catalogue that a client has a right for is made by some simulated client."""
    trees = [ast.parse(path.read_text("utf-8")) for path in HERE.glob("*.py")]
    calls = [node.func for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    made = {called.id for called in calls if isinstance(called, ast.Name)}
    never = [
        row.command.__name__ for row in ROWS if row.right is not None and row.command.__name__ not in made
    ]
    assert not never, f"no simulated client sends {', '.join(never)}"
