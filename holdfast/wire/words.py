"""The words that travel, by the field that has them. A test compares them with the nodes' own.

Requests may say only these words. Answers say them as text (`...Said`), for a newer node may say one that a
client does not know; the API's published description names the words that nodes say today.
"""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

Mode: TypeAlias = Literal["exclusive", "shared", "update", "concurrent-read", "concurrent-write"]
"""What a hold of a lock allows others: see "What conflicts" in docs/semantics.md."""
ModeSaid: TypeAlias = Annotated[str, Meta(title="Mode")]

Scope: TypeAlias = Literal["node", "subtree"]
"""What a lock covers: its name alone, or also every name below it."""
ScopeSaid: TypeAlias = Annotated[str, Meta(title="Scope")]

HoldKind: TypeAlias = Literal["lock", "semaphore", "election"]
"""What a hold is of: each kind is renewed and released by calls of its own."""
HoldKindSaid: TypeAlias = Annotated[str, Meta(title="Kind")]

IfHeld: TypeAlias = Literal["renew", "count", "refuse"]
"""What an acquire does if its session holds just these locks already."""

Algorithm: TypeAlias = Literal["fixed-window", "sliding-window", "gcra"]
"""How a rate limit counts."""
AlgorithmSaid: TypeAlias = Annotated[str, Meta(title="Algorithm")]

CellField: TypeAlias = Literal["value", "version", "create_revision", "mod_revision"]
"""What of a cell a transaction compares."""

Relation: TypeAlias = Literal["=", "!=", "<", ">"]
"""How a cell is compared in a transaction."""

PRIORITY_DEFAULT = 5
"""The priority of a request that does not name one."""
