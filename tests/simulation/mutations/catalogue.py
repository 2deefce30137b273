"""All mutations, in the order in which they are listed, and those that nobody can find."""

from typing import Final

from tests.simulation.mutations.bad_disks import BAD_DISKS
from tests.simulation.mutations.belonging import BELONGING
from tests.simulation.mutations.cells import CELLS
from tests.simulation.mutations.consensus import CONSENSUS
from tests.simulation.mutations.disks import DISKS
from tests.simulation.mutations.hand_overs import HAND_OVERS
from tests.simulation.mutations.held_already import HELD_ALREADY
from tests.simulation.mutations.hold_values import HOLD_VALUES
from tests.simulation.mutations.links import LINKS
from tests.simulation.mutations.liveness import LIVENESS
from tests.simulation.mutations.membership import MEMBERSHIP
from tests.simulation.mutations.modes import MODES
from tests.simulation.mutations.mutation import Mutation
from tests.simulation.mutations.overrides import OVERRIDES
from tests.simulation.mutations.pleas import PLEAS
from tests.simulation.mutations.principals import PRINCIPALS
from tests.simulation.mutations.priorities import PRIORITIES
from tests.simulation.mutations.redis_repeats import REDIS_REPEATS
from tests.simulation.mutations.requests import REQUESTS
from tests.simulation.mutations.rules import RULES
from tests.simulation.mutations.several import SEVERAL
from tests.simulation.mutations.snapshots import SNAPSHOTS
from tests.simulation.mutations.states import STATES
from tests.simulation.mutations.streams import STREAMS
from tests.simulation.mutations.subtrees import SUBTREES
from tests.simulation.mutations.survivors import SURVIVORS
from tests.simulation.mutations.vocabulary import VOCABULARY

__all__ = ["MUTATIONS", "SURVIVORS"]

MUTATIONS: Final[tuple[Mutation, ...]] = (
    *BELONGING,
    *CONSENSUS,
    *DISKS,
    *BAD_DISKS,
    *LINKS,
    *LIVENESS,
    *MEMBERSHIP,
    *REQUESTS,
    *RULES,
    *SNAPSHOTS,
    *STATES,
    *STREAMS,
    *VOCABULARY,
    *HAND_OVERS,
    *HELD_ALREADY,
    *OVERRIDES,
    *PLEAS,
    *MODES,
    *HOLD_VALUES,
    *PRINCIPALS,
    *PRIORITIES,
    *SEVERAL,
    *SUBTREES,
    *CELLS,
    *REDIS_REPEATS,
)
