"""The hunt in the plain swarm: worlds of plain seeds, made for no defect, until one of them shows it.

Round after round, each longer than the one before; what was found is written to a file after every mutation,
and a later run goes on from there, with other seeds.
"""

import time
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.simulation.mutations.hunt import LONGER_S
from tests.simulation.mutations.mutation import Mutation
from tests.simulation.plan import Plan, make_plan, nodes_of
from tests.simulation.run import run

WORLD_S: Final = 120
"""Simulated seconds of each world."""


class Found(msgspec.Struct, kw_only=True):
    """What came of the hunts for one mutation so far. `checker` is empty while nobody has objected."""

    name: str
    checker: str = ""
    seed: int = 0
    worlds: int = 0
    real_s: float = 0.0
    """Of all rounds together, until it was found."""
    sentence: str = ""
    not_counted: int = 0
    """Worlds that fail without the mutation, too."""


def read(path: Path) -> dict[str, Found]:
    """Return what is known, by mutation."""
    if not path.exists():
        return {}
    lines = path.read_text("utf-8").splitlines()
    found = [msgspec.json.decode(line, type=Found) for line in lines if line]
    return {one.name: one for one in found}


def write(path: Path, found: Iterable[Found]) -> None:
    """Write what is known, one mutation a line."""
    path.write_text("".join(f"{msgspec.json.encode(one).decode()}\n" for one in found), "utf-8")


def hunt_in_rounds(mutations: Sequence[Mutation], rounds_s: Sequence[float], path: Path) -> dict[str, Found]:
    """Give each mutation that is not found yet so many real seconds in each round."""
    known = read(path)
    for budget_s in rounds_s:
        for mutation in mutations:
            found = known.setdefault(mutation.name, Found(name=mutation.name))
            if not found.checker:
                _hunt(mutation, found, budget_s)
                write(path, known.values())
                print(told(found), flush=True)
    return known


def _hunt(mutation: Mutation, found: Found, budget_s: float) -> None:
    """Run worlds for a while. The first one that shows the defect ends it."""
    began_s, before_s = time.perf_counter(), found.real_s
    while not found.checker and time.perf_counter() - began_s < budget_s:
        found.worlds += 1
        # Other seeds for each mutation, and never the same twice.
        seed = zlib.crc32(f"{mutation.name} {found.worlds}".encode())
        report = run(plan(seed), WORLD_S, mutation=mutation.apply())
        found.real_s = round(before_s + time.perf_counter() - began_s, 1)
        if report.violation:
            if run(plan(seed), report.simulated_s + LONGER_S).violation:
                found.not_counted += 1
            else:
                found.checker, found.seed, found.sentence = report.checker, seed, report.violation[:200]


def plan(seed: int) -> Plan:
    """Return the plan of a world of the plain swarm."""
    return make_plan(seed, nodes_of(seed))


def told(found: Found) -> str:
    """Return a line about one mutation."""
    spent = f"{found.worlds} worlds, {found.real_s:.0f} s"
    if not found.checker:
        return f"{found.name}: not found ({spent}, {found.not_counted} not counted)"
    return f"{found.name}: {found.checker} ({spent}), scripts/simulate --seed {found.seed}: {found.sentence}"


def summary(known: Iterable[Found]) -> str:
    """Return how many were found, and which were not."""
    every = list(known)
    missing = [one.name for one in every if not one.checker]
    share = f"{len(every) - len(missing)} of {len(every)}"
    return f"found by the plain swarm: {share}; not: {', '.join(missing) or 'none'}"
