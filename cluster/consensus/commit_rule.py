"""Which part of its log a leader may take for committed: what a majority has on disk (Raft, section 5.3)."""

from collections.abc import Iterable


def majority_index(synced_index: int, match_indexes: Iterable[int]) -> int:
    """Return the highest index that a majority of the voters has on disk.

    `synced_index` is how far this leader's own copy is there: it counts like any other, and no further.
    `match_indexes` are what the other voters have acknowledged, each after a sync of its own.
    """
    indexes = sorted((synced_index, *match_indexes), reverse=True)
    return indexes[len(indexes) // 2]
