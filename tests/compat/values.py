"""What results look like in stored files: independent of how classes are named or encoded later."""

import enum
from typing import Any

import msgspec


def plain(value: Any) -> Any:
    """Return a value as JSON has it: a struct is its fields in their order."""
    if isinstance(value, msgspec.Struct):
        return [plain(part) for part in msgspec.structs.astuple(value)]
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dict):
        return {plain(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return value
