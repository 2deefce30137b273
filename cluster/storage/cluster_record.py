"""What a data directory knows of its cluster: which one it is, and how far its founding has come.

`cluster.json` is written before anything is said of it to a peer (consensus/founding.py), and read at the
start.
"""

from typing import Final

import msgspec

from lockstate.words.versions import GROUP, GROUPS_COUNT

CLUSTER_NAME: Final = "cluster.json"
FORMAT: Final = 1
"""The format of `cluster.json`."""
CLUSTER_ID_BYTES: Final = 16
"""The random bytes of a cluster id, which is written as twice as many hexadecimal digits."""
SLOTS_COUNT: Final = 16_384
"""Into so many slots the names of locks will be divided when a cluster has several groups."""
SLOTS_ALL: Final = ((0, SLOTS_COUNT - 1),)
"""The slots that the only group owns: all, as runs of (first, last)."""
PLACEMENT_FIRST: Final = 1
"""The version of the first division of the slots among groups."""


class Founder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One node of a founding: where the others reach it, and its data directory."""

    peer: str
    disk_id: str


class Founding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a cluster begins with. `cluster_id` is 32 random hexadecimal digits, made once.

    The other fields leave room for clusters of several groups: the number of this one, how many there are,
    the runs of slots that it owns, and the version of that division.
    """

    cluster_id: str
    nodes: dict[str, Founder]
    group: int = GROUP
    groups_count: int = GROUPS_COUNT
    slots: tuple[tuple[int, int], ...] = SLOTS_ALL
    placement_version: int = PLACEMENT_FIRST


class ClusterRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `cluster.json`.

    `founding` is what this node has stored of the founding that it takes part in; `is_complete` if every
    founder is known to have stored the same. `cluster_id` is that of the cluster this node belongs to: empty
    until the founding is complete or, if this node joins, until a leader has told it.
    """

    format: int = FORMAT
    cluster_id: str = ""
    founding: Founding | None = None
    is_complete: bool = False
