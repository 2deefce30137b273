"""When the bound on the state moves, and to what: to what the smallest node can bear."""

import pytest

from cluster.commands.batcher import Batcher
from cluster.commands.state_bound import StateBound, agreed
from lockstate.words import codec, limits

MIB = 1 << 20
ACTIVE = 100 * MIB


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        pytest.param(200, [300, 400], 200, id="its own is the smallest"),
        pytest.param(400, [300, 200], 200, id="another is smaller"),
        pytest.param(400, [300, 0], 300, id="who says nothing bears any"),
        pytest.param(400, [0, 0], 400, id="nobody else says"),
        pytest.param(400, [300, None], 100, id="not raised while somebody is silent"),
        pytest.param(400, [50, None], 50, id="lowered at once"),
        pytest.param(100, [None], 100, id="as it is"),
    ],
)
def test_the_smallest_node_decides(own: int, others: list[int | None], expected: int) -> None:
    """A bound that a node cannot bear would end it; one that is too low only until all are heard of."""
    bound = agreed(own * MIB, [None if other is None else other * MIB for other in others], ACTIVE)
    assert bound == expected * MIB


class Leader:
    """A node that proposes what it wants."""

    def __init__(self) -> None:
        self.wanted = ACTIVE
        self.active = limits.STATE_BYTES_MAX
        self.batcher = Batcher()
        self.bound = StateBound(self.batcher, lambda: self.wanted)

    def proposes(self) -> int:
        """Take a step; return the bound that the next entry sets, 0 if there is none."""
        has_proposed = self.bound.step(self.active)
        data = self.batcher.next_entry(0)
        assert has_proposed == (data is not None)
        return 0 if data is None else codec.decode_entry(data).bytes_max


def test_another_bound_is_proposed_once() -> None:
    """Until it is applied, or this node leads anew: then what it proposed may be lost."""
    node = Leader()
    assert [node.proposes(), node.proposes()] == [ACTIVE, 0]
    node.bound.role_changed()
    assert node.proposes() == ACTIVE
    node.active = ACTIVE
    node.bound.role_changed()
    assert node.proposes() == 0, "it is the active one"
    node.wanted = 2 * ACTIVE
    assert node.proposes() == 2 * ACTIVE


def test_nothing_is_proposed_by_who_may_not() -> None:
    """A node that does not lead wants none."""
    node = Leader()
    node.wanted = 0
    assert node.proposes() == 0


def test_what_was_to_be_proposed_goes_with_leadership() -> None:
    """A batcher that is cleared proposes no bound."""
    node = Leader()
    node.bound.step(node.active)
    assert not node.batcher.is_empty
    node.batcher.clear()
    assert node.batcher.is_empty
