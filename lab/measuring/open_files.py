"""How many files this process may have open: each connection is one."""

import resource
from typing import Final

RESERVED: Final = 200
"""Number of open files that are not connections: journal, snapshots, pipes, libraries."""


def raise_limit() -> int:
    """Raise the limit as far as allowed, and return it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def check_room(connections: int) -> None:
    """Make room for so many connections. Raises OSError, which says what to do."""
    limit = raise_limit()
    if limit < connections + RESERVED:
        raise OSError(
            f"{connections} connections need {connections + RESERVED} open files, and no more than {limit}"
            " are allowed: raise the hard limit (`ulimit -Hn`), or ask for fewer"
        )
