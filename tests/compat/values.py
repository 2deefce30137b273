"""What results look like in stored files: independent of how classes are named or encoded later."""

import enum
from typing import Any, Final

import msgspec

from lockstate.results import EventKind
from lockstate.versions import RULES_FOLLOWED

FIELDS_BEFORE: Final = {
    4: {"Outcome": 5, "BatchOutcome": 3, "HolderView": 9, "WaiterView": 9},
    8: {"Event": 14},
    9: {"Settled": 3, "Event": 16},
}
"""How many fields structs had before some rules, that have got more with these. The others have their
defaults in what older rules do."""
TOLD: Final = frozenset({("Settled", "position")})
"""Fields that say more to the client that waits, on its node alone: no file and no state has them."""


def plain(value: Any, rules: int = 1) -> Any:
    """Return a value as JSON has it: a struct is its fields in their order, as the tree of `rules` knew them.

    Without the further fields, so that files of older trees can be compared.
    """
    if isinstance(value, msgspec.Struct):
        name = type(value).__name__
        fields = [field for field in msgspec.structs.fields(value) if (name, field.name) not in TOLD]
        known = [counts[name] for below, counts in FIELDS_BEFORE.items() if rules < below and name in counts]
        count = min(known, default=len(fields))
        for field in fields[count:]:
            assert getattr(value, field.name) == field.default, f"{field.name}: older rules do not know it"
        return [plain(getattr(value, field.name), rules) for field in fields[:count]]
    if value is EventKind.LEFT and rules < RULES_FOLLOWED:
        return "wait-ended"  # nobody was told of it by this name, nor is it kept
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {plain(key, rules): plain(part, rules) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part, rules) for part in value]
    return value
