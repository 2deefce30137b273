"""Every version of what a node does and writes: the one list, as data.

The *rules* are what commands do: how an entry changes the state. Nodes of different releases may run side by
side only while all of them follow the same rules, or one lock gets two holders. So the rules that are active
are part of the replicated state, and only a committed entry moves them (`AdvanceVersion`). Formats follow the
rules: until rules 2 are active, everything that leaves a node can be read by release 0.1.0.

To change what any entry does:

1. Add the next `Rules` here. They say what changed and which formats they write.
2. Keep the old way behind `state.rules`, for at least one minor version.
3. Store bytes of any new format in tests/compat, which replays those of every version.
4. If a stored record has another field, count fingerprint.VERSION up: releases compare their states.

How something gets a new field without a change of what older rules write, and so without step 4:

- A command: another class with a tag of its own, which may inherit from the first one. Content digests of
  what is asked in the old way stay the same, and older rules find the new one undecodable, on every node.
- A result, for results are remembered: another class with a tag of its own, which inherits from the first.
- A hold, a ticket or a session: a field of `Extra` (lockstate/extras.py).
- An event: a field at the end, with a default; below rules 4 snapshots leave it out.
- A new kind of record: another table with `since` (lockstate/snapshot.py), and another sum in the fingerprint
  that is 0 as long as there is none.

What an entry does includes the words of a refusal: outcomes are remembered, so a `detail` that two releases
word differently gives two states. A format that has been released stays readable.
"""

from typing import Final, NamedTuple


class Rules(NamedTuple):
    """One version of the rules, and what a node writes while it is the active one."""

    number: int
    entry_format: int
    """The format of proposed entries (lockstate/codec.py)."""
    snapshot_format: int
    """The format of snapshots, written and sent (lockstate/snapshot.py)."""
    command_tag_max: int
    """The highest tag of a command that these rules know; what is above is undecodable."""
    summary: str


RULES: Final = {
    rules.number: rules
    for rules in (
        Rules(1, 2, 4, 18, "What release 0.1.0 does."),
        Rules(2, 3, 5, 18, "The same outcome of every command; AdvanceVersion; formats with room to grow."),
        Rules(3, 3, 5, 18, "Member lists with a cluster id; a bound on the memory that the state takes."),
        Rules(4, 3, 5, 42, "Cells (tags 40 to 42); a table for what records have beside their fields."),
        Rules(5, 3, 5, 46, "Calls say what they mean (tags 43 to 46); refusals are not remembered."),
        Rules(
            6,
            3,
            5,
            50,
            "What operators override is audited (tags 47 to 49); a keepalive may change a ttl (50).",
        ),
        Rules(7, 3, 5, 72, "Streams: sessions that number their commands (tags 70 to 72)."),
        Rules(
            8,
            3,
            5,
            75,
            "Events name tickets and say why waits end; holders are asked to give up (73 to 75).",
        ),
        Rules(
            9,
            3,
            5,
            85,
            "The whole vocabulary (tags 76 to 82); all attempts at a request count, not only the last. What"
            " is made belongs to a principal, which may have a quota (83, 84); what"
            " lies below a name may have a namespace (85).",
        ),
    )
}
"""All rules that this release can follow, by number."""

RULES_FIRST: Final = 1
"""The rules of an empty log, and of a snapshot that does not name any."""
RULES_BOUNDED: Final = 3
"""The first rules with a bound on the memory that the state takes (lockstate/budget.py)."""
RULES_EXTRAS: Final = 4
"""The first rules with commands above tag 18, and with what records have beside their fields
(lockstate/extras.py). A command that is added after their release needs further rules: a node that does not
know it would take it for undecodable while others apply it."""
RULES_EXPLICIT: Final = 5
"""The first rules in which calls say what they mean: which kind of hold, and what an acquire of what is held
already is to do. They share no permits, and remember no refusal that changed nothing."""
RULES_OVERRIDES: Final = 6
"""The first rules in which operators end sessions, lift delays and forget fences."""
RULES_NUMBERED: Final = 7
"""The first rules with streams: commands that a session numbers, applied once without a memory of request
ids (lockstate/streams.py)."""
RULES_FOLLOWED: Final = 8
"""The first rules in which a queue can be followed by the numbers of its tickets, holders are asked to give
up, and a semaphore that is in use need not be told its limit."""
RULES_WHOLE: Final = 9
"""The first rules with the whole vocabulary: all modes of the classical lock manager, several kinds at once,
priorities, values, and holds without a deadline."""
RULES_OLDEST: Final = min(RULES)
"""The oldest rules that this release can still follow."""
RULES_NEWEST: Final = max(RULES)
"""The newest rules that this release knows: what it tells its peers, and where a leader moves the cluster."""

ENTRY_FORMATS: Final = {
    2: "[2, now_ms, batches]. Release 0.1.0; the first to stay readable.",
    3: "[3, [now_ms, fields?], batches]. Fields are numbered; see lockstate/codec.py.",
}
"""The formats of log entries that this release reads."""

SNAPSHOT_FORMATS: Final = {
    4: "[4, revision, now_ms, next_token, next_order, tables]. Release 0.1.0; the first to stay readable.",
    5: "[5, revision, now_ms, next_token, next_order, fields, tables]. Fields are named: rules, group, ...",
}
"""The formats of snapshots that this release reads."""

GROUP: Final = 0
"""The number of the only Raft group. Formats have 16 bits for it, so that more groups need no new format."""
GROUPS_COUNT: Final = 1
"""How many Raft groups the cluster has."""


class UnknownVersionError(Exception):
    """Another release wrote this, and to guess what it means would make this replica differ from the others.

    The node that meets it must stop, and has changed nothing.
    """


def too_new(what: str) -> UnknownVersionError:
    """Return the error for something that only a newer release knows."""
    return UnknownVersionError(f"{what}, which this release does not know: upgrade this node")
