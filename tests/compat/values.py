"""What results look like in stored files: independent of how classes are named or encoded later."""

import enum
from typing import Any, Final

import msgspec

from lockstate.tables.happened import Events

TOLD: Final = frozenset({("Settled", "position")})
"""Fields that say more to the client that waits, on its node alone: no file and no state has them."""


def plain(value: Any) -> Any:
    """Return a value as JSON has it: a struct is its fields in their order, and events are a list of them."""
    if isinstance(value, (list, tuple, Events)):
        return [plain(part) for part in value]
    if isinstance(value, msgspec.Struct):
        name = type(value).__name__
        fields = [field for field in value.__struct_fields__ if (name, field) not in TOLD]
        return [plain(getattr(value, field)) for field in fields]
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {plain(key): plain(part) for key, part in value.items()}
    return value
