"""What the client reads of several answers is in each of them, of the same type."""

from typing import Any, get_args

import msgspec
import pytest

from holdfast.wire import answers
from holdfast.wire.answers import HoldGiven


def read_of(kind: type[Any]) -> dict[str, set[Any]]:
    """Return the fields of a struct with their types, without that they may be missing."""
    return {
        field.name: set(get_args(field.type) or (field.type,)) - {msgspec.UnsetType}
        for field in msgspec.structs.fields(kind)
        if field.name in HoldGiven.__struct_fields__
    }


@pytest.mark.parametrize(
    "kind", [answers.GrantedJson, answers.GrantedSeveralJson, answers.PermitsGrantedJson]
)
def test_every_answer_that_gives_a_hold_has_what_is_read(kind: type[Any]) -> None:
    """An acquire of whatever kind, a conversion, an addition."""
    assert read_of(kind) == read_of(HoldGiven)


@pytest.mark.parametrize("kind", [answers.GrantedOfKindsJson, answers.ElectedJson])
def test_what_always_has_a_deadline_need_not_say_that_it_has_none(kind: type[Any]) -> None:
    """Several kinds at once, a campaign: they always say when it is."""
    assert read_of(kind) | {"no_deadline": {bool}} == read_of(HoldGiven)
    assert {field.name: field.type for field in msgspec.structs.fields(kind)}["expires_in_ms"] is int
