"""The installed program of a node: it starts one, or says what to install."""

import subprocess
import sys

import pytest

from http_api import program

SCRIPT = """
import sys
{hide}
from http_api.program import main
sys.argv = ["holdfast-node", "--version"]
sys.exit(main())
"""


@pytest.mark.parametrize("missing", [["uvloop"], ["pysyncobj", "uvloop"]])
def test_where_only_the_client_is_installed_it_says_so(missing: list[str]) -> None:
    """Without a traceback: what is missing, what installs it, and an exit code that tells of a failure."""
    hide = "".join(f"sys.modules[{module!r}] = None\n" for module in missing)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(hide=hide)], capture_output=True, text=True, check=False
    )
    names = ", ".join(missing)
    said = f"holdfast-node: {names}: not installed; pip install 'holdfast[node]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (program.NOT_INSTALLED, "", said)


def test_with_all_that_a_node_needs_it_runs_one() -> None:
    """The arguments of the process are the node's."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(hide="")], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("holdfast")
