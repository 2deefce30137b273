"""What nodes say of their states and logs, and what a majority makes of it. Pure.

A digest that two nodes do not share says that one of them is wrong, and not which. So nobody is believed
alone, not even a leader: a node is wrong when more than half of all voters have the same other digest, and
right when more than half, itself counted if it votes, have its own. Else nobody can know.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Annotated, Final

import msgspec

DIGESTS_MAX: Final = 16
"""Digests of one kind in a message, at most."""

Word = Annotated[int, msgspec.Meta(ge=0)]
"""A revision, an index, a term or a digest."""


class DigestReport(msgspec.Struct, frozen=True, array_like=True):
    """What a node says of itself. Fields come at the end, with a default."""

    version: int
    """The version of the fingerprints (lockstate.tables.fingerprint): others cannot be compared."""
    states: Annotated[list[tuple[Word, Word]], msgspec.Meta(max_length=DIGESTS_MAX)] = []
    """Revisions, and the fingerprint of the state at each."""
    entries: Annotated[list[tuple[Word, Word, Word]], msgspec.Meta(max_length=DIGESTS_MAX)] = []
    """Index and term of entries that are in dispute, and the digest of the log at each (log_digest)."""


def majority(told: Mapping[str, int], voters: Collection[str]) -> int | None:
    """Return the digest that more than half of all voters have told, None if there is none."""
    counts = Counter(digest for node_id, digest in told.items() if node_id in voters)
    for digest, count in counts.items():
        if 2 * count > len(voters):
            return digest
    return None


def nodes_with(told: Mapping[str, int], digest: int) -> str:
    """Return who has told this digest, for people."""
    return ", ".join(sorted(node_id for node_id, theirs in told.items() if theirs == digest))
