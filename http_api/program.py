"""The installed program `holdfast-node`: a node, if what one needs is installed beside the client."""

import importlib.util
import sys
from typing import Final

MODULES: Final = ("pysyncobj", "uvloop")
"""What a node imports and a client does not: the extra `node` of the package."""
NOT_INSTALLED: Final = 2
"""The exit code without them, as for a wrong configuration: to start it again does not help."""


def main() -> int:
    """Run a node with the arguments of the process; return the exit code."""
    missing = [module for module in MODULES if importlib.util.find_spec(module) is None]
    if missing:
        advice = "not installed; pip install 'holdfast[node]'"
        sys.stderr.write(f"holdfast-node: {', '.join(missing)}: {advice}\n")
        return NOT_INSTALLED
    from http_api.__main__ import main as run  # noqa: PLC0415 - it imports what may be missing

    return run()
