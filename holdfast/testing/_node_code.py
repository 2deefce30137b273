"""Whether the code of a node can be imported here, and what to do where it cannot. Nothing is imported."""

import importlib.util
import sys
from pathlib import Path
from typing import Final

from holdfast import __version__

PACKAGES: Final = ("lockstate", "lockapi", "cluster", "http_api", "redis_api")
"""What holdfast-node consists of. The first is where no project has anything else of this name."""
_NEEDED: Final = ("pysyncobj", "uvloop")
"""What it needs that the client does not need."""


def paths() -> list[str]:
    """Return the folders in which a process of its own finds a node, and all that this process finds."""
    own = [path for path in sys.path if path]
    return [str(_folder(PACKAGES[0])), *own] if _hidden() else own


def check(name: str, *, may_be_hidden: bool) -> None:
    """Make sure that `name`, which runs the code of a node, finds it, and not what others call the same.

    With `may_be_hidden` a node has a process of its own, in which its packages come first.

    Raises:
        ImportError: it does not; the message says what to do.

    """
    missing = [package for package in (*PACKAGES, *_NEEDED) if importlib.util.find_spec(package) is None]
    if missing:
        raise ImportError(
            f"{name} runs the code of a node, which is not installed for {sys.executable} "
            f"({', '.join(missing)} missing): pip install holdfast-node=={__version__}",
            name=missing[0],
        )
    if (hidden := _hidden()) and not may_be_hidden:
        raise ImportError(
            f"{name} runs the code of holdfast-node in this process, and Python finds {' and '.join(hidden)} "
            f"in {_folder(hidden[0])} before those of {_folder(PACKAGES[0])}: run these tests in a folder "
            "and an environment where it does not, or use LoopbackCluster (the fixture holdfast_cluster), "
            "whose nodes are processes of their own",
            name=hidden[0],
        )


def _hidden() -> list[str]:
    """Return the packages that are not those of the node, because modules of others are found before them."""
    ours = _folder(PACKAGES[0])
    return [package for package in PACKAGES if _folder(package) != ours]


def _folder(package: str) -> Path:
    """Return the folder that an installed package or module lies in."""
    spec = importlib.util.find_spec(package)
    assert spec is not None, "check() has found it"
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).parent
    return Path(spec.origin or "").parent
