"""What results look like in stored files: independent of how classes are named or encoded later."""

import enum
from typing import Any, Final

import msgspec

FIELDS_BEFORE_RULES_4: Final = {
    "Outcome": 5,
    "BatchOutcome": 3,
    "Event": 14,
    "HolderView": 9,
    "WaiterView": 9,
}
"""How many fields structs had that have got more since. Below rules 4 the others have their defaults."""


def plain(value: Any) -> Any:
    """Return a value as JSON has it: a struct is its fields in their order."""
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        count = FIELDS_BEFORE_RULES_4.get(type(value).__name__, len(fields))
        for field in fields[count:]:
            assert getattr(value, field.name) == field.default, f"{field.name}: older rules do not know it"
        return [plain(getattr(value, field.name)) for field in fields[:count]]
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dict):
        return {plain(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return value
