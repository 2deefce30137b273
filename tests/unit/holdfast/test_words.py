"""The words of the client are those of the nodes."""

from typing import get_args

import pytest

import holdfast
from lockstate.words.cell_operations import Relation
from lockstate.words.kinds import Algorithm, HoldKind, IfHeld
from lockstate.words.modes import Mode, Scope


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (holdfast.Algorithm, Algorithm),
        (holdfast.HoldKind, HoldKind),
        (holdfast.IfHeld, IfHeld),
        (holdfast.Mode, Mode),
        (holdfast.Relation, Relation),
        (holdfast.Scope, Scope),
    ],
)
def test_each_word_of_a_node_is_one_of_the_client(ours: object, theirs: type) -> None:
    """What a type checker allows is what nodes take."""
    assert set(get_args(ours)) == {str(word.value) for word in theirs}  # type: ignore[attr-defined]
