"""Every version of what a node does and writes: the one list, as data.

The *rules* are what commands do: how an entry changes the state. Nodes of different releases may run side by
side only while all of them follow the same rules, or one lock gets two holders. So the rules that are active
are part of the replicated state, and only a committed entry moves them (`AdvanceVersion`). Formats follow the
rules: until the next rules are active, everything that leaves a node can be read by the release before.

To change what any entry does:

1. Add the next `Rules` here, which say what changed, and give those before the highest tag that they know.
   If the new ones write another format, number it here, too.
2. Keep the old way behind `state.rules`, for at least one minor version.
3. Store bytes of any new format in tests/compat, which replays those of every version.
4. If a stored record has another field, count fingerprint.VERSION up: releases compare their states.

How something gets a new field without a change of what older rules write, and so without step 4:

- A command: another class with a tag of its own, above `command_tag_max` of the rules before. Content digests
  of what is asked in the old way stay the same, and older rules find the new one undecodable, on every node.
  That holds of a command by itself. Inside of a `Numbered` or an `OnBehalf`, a node that knows it would read
  it and others would not: there `codec` must find the whole undecodable by older rules, too, and
  `Gateway._known` must refuse it.
- A result, for results are remembered: another class with a tag of its own.
- A new kind of record: another table (lockstate/stored/snapshot.py), and another sum in the fingerprint that
  is 0 as long as there is none.

What an entry does includes the words of a refusal: outcomes are remembered, so a `detail` that two releases
word differently gives two states. A format that has been released stays readable.
"""

from typing import Final, NamedTuple

TAG_MAX: Final = 127
"""The highest tag that a command can have. The newest rules know all commands that there are."""


class Rules(NamedTuple):
    """One version of the rules."""

    number: int
    command_tag_max: int
    """The highest tag of a command that these rules know; what is above is undecodable."""
    summary: str


RULES: Final = {rules.number: rules for rules in (Rules(1, TAG_MAX, "What release 1.0.0 does."),)}
"""All rules that this release can follow, by number."""

RULES_FIRST: Final = min(RULES)
"""The rules of an empty log."""

ENTRY_FORMATS: Final = {
    1: "[1, [now_ms, fields?], batches]. Fields are numbered; see lockstate/words/codec.py."
}
"""The formats of log entries that this release reads."""

SNAPSHOT_FORMATS: Final = {
    1: "[1, revision, now_ms, next_token, next_order, fields, tables]. Fields are named: rules, group, ..."
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


def rules_newest() -> int:
    """Return the newest rules that this release knows: what it tells its peers, and where a leader moves."""
    return max(RULES)


def too_new(what: str) -> UnknownVersionError:
    """Return the error for something that only a newer release knows."""
    return UnknownVersionError(f"{what}, which this release does not know: upgrade this node")
