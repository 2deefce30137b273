"""The words that requests may say, by the field that has them. A test compares them with the nodes' own."""

from typing import Literal, TypeAlias

Mode: TypeAlias = Literal["exclusive", "shared", "update", "concurrent-read", "concurrent-write"]
"""What a hold of a lock allows others: see "What conflicts" in docs/semantics.md."""

Scope: TypeAlias = Literal["node", "subtree"]
"""What a lock covers: its name alone, or also every name below it."""

HoldKind: TypeAlias = Literal["lock", "semaphore", "election"]
"""What a hold is of: each kind is renewed and released by calls of its own."""

IfHeld: TypeAlias = Literal["renew", "count", "refuse"]
"""What an acquire does if its session holds just these locks already."""

Algorithm: TypeAlias = Literal["fixed-window", "sliding-window", "gcra"]
"""How a rate limit counts."""

CellField: TypeAlias = Literal["value", "version", "create_revision", "mod_revision"]
"""What of a cell a transaction compares."""

Relation: TypeAlias = Literal["=", "!=", "<", ">"]
"""How a cell is compared in a transaction."""
