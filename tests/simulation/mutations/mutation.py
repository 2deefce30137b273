"""What a mutation is: a deliberate defect, and the worlds in which it does harm soon.

A mutation is switched on by replacing a piece of the product while a world runs. Nothing of it is in the
product, which has no switch for it.
"""

import contextlib
import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, Final
from unittest import mock

import msgspec

import cluster.config
from lockstate.words.settings import NamespaceSettings
from tests.simulation.faults.hostile_network import Chances
from tests.simulation.plan import Plan, make_plan
from tests.simulation.workload import client_commands

Apply = Callable[[], contextlib.AbstractContextManager[object]]

BUSY: Final[Mapping[str, Any]] = {
    "names": ("n0", "n1", "n2"),
    "think_s": 0.4,
    "ttl_ms": (500, 20_000),
    "wait_ms": (1_000, 20_000),
    "timeout_s": (0.5, 4.0),
    "vocabulary_share": 0.0,
    "cells_share": 0.0,
    "overrides_share": 0.0,
}
"""Settings of clients that want the same few locks all the time."""


def many_snapshots() -> contextlib.AbstractContextManager[object]:
    """Allow logs that are compacted sooner than any user would want."""
    return mock.patch.dict(cluster.config._RANGES, {"compact_entries": (1, 10_000_000)})


NAMESPACES: Final = (
    NamespaceSettings(ask_after_ms_min=0),
    NamespaceSettings(ask_after_ms_min=100, grace_ms_min=200, held_ms_max=3_000),
)


OPERATED: Final[Mapping[str, Any]] = {
    "vocabulary_share": 0.5,
    "overrides_share": 0.4,
    "think_s": 0.3,
    "wait_ms": (500, 5_000),
    "ttl_ms": (500, 8_000),
}
"""Settings of clients that often act on what others have."""


def in_namespaces() -> contextlib.AbstractContextManager[object]:
    """Let clients set namespaces alone where waits may ask by themselves, or nothing is held for long."""
    return together(many_snapshots, replaced(client_commands, "NAMESPACES", NAMESPACES))()


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What the worlds of a mutation have in common; a seed decides the rest. Without a defect all is well."""

    nodes_count: int = 3
    minutes: float = 2.0
    rates: Mapping[str, float] = {}
    """Faults per simulated minute, by kind."""
    fault_s: tuple[float, float] = (0.5, 10.0)
    hostile: Chances | None = None
    client_settings: Mapping[str, Any] = {}
    """What clients do otherwise than in BUSY."""
    settings: Mapping[str, Any] = {}
    """Other fields of the plan."""
    around: Apply = many_snapshots
    """What is unusual about these worlds, and no defect."""

    def plan(self, seed: int) -> Plan:
        """Return the plan of one of these worlds."""
        plan = make_plan(seed, self.nodes_count, hostile=False, faults=())
        return msgspec.structs.replace(
            plan,
            **{
                "client_settings": msgspec.structs.replace(
                    plan.client_settings, **{**BUSY, **self.client_settings}
                ),
                "clients_count": 4,
                "quiet_every_s": 40.0,
                "rates": dict(self.rates),
                "fault_s": self.fault_s,
                "hostile": self.hostile,
                "upgraded_s": 0.0,
                **self.settings,
            },
        )


class Mutation(msgspec.Struct, frozen=True, kw_only=True):
    """One deliberate defect."""

    name: str
    sentence: str
    """What the mutated product does."""
    found_by: tuple[str, ...]
    """The checkers that are expected to object."""
    apply: Apply
    surroundings: Surroundings = Surroundings()
    seeds_max: int = 10
    """It has to be found within so many worlds."""


def replaced(target: object, name: str, new: object) -> Apply:
    """Return what puts `new` in the place of an attribute that is there, for a while."""
    assert hasattr(target, name), f"{target} has no {name}: the mutation is out of date"
    old = getattr(target, name)
    if isinstance(old, FunctionType) and isinstance(new, FunctionType):
        assert _takes(new, old), f"{target}.{name} takes other arguments: the mutation is out of date"
    return lambda: mock.patch.object(target, name, new)


def _takes(new: FunctionType, old: FunctionType) -> bool:
    """Whether a function can be called as another one is, with all arguments or only with the needed ones."""
    wanted = inspect.signature(old).parameters.values()
    for given in (wanted, [one for one in wanted if one.default is one.empty]):
        places = [None for one in given if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
        words = {one.name: None for one in given if one.kind is one.KEYWORD_ONLY}
        try:
            inspect.signature(new).bind(*places, **words)
        except TypeError:
            return False
    return True


def together(*all_of: Apply) -> Apply:
    """Return what does several such things at once."""

    @contextlib.contextmanager
    def apply() -> Any:
        with contextlib.ExitStack() as stack:
            for one in all_of:
                stack.enter_context(one())
            yield

    return apply
