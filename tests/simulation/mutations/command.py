"""What scripts/simulate does for --list-mutations and --mutation: hunts, and what it prints of them."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tests.simulation.mutations import swarm
from tests.simulation.mutations.catalogue import MUTATIONS, SURVIVORS
from tests.simulation.mutations.hunt import Hunt, hunt

FOUND: Final = 0
NOT_FOUND: Final = 1
UNKNOWN: Final = 2
ALL: Final = "all"


def listed() -> str:
    """Return the names of all mutations with their sentences."""
    return "\n".join([f"{mutation.name:32} {mutation.sentence}" for mutation in MUTATIONS])


def run(name: str, seeds_max: int | None) -> int:
    """Hunt for one mutation, or for `all`; print what came of it, and return the exit code."""
    chosen = [one for one in (*MUTATIONS, *SURVIVORS) if one.name == name] or (
        MUTATIONS if name == ALL else ()
    )
    if not chosen:
        print(f"no such mutation: {name}; see --list-mutations")
        return UNKNOWN
    hunts = []
    for mutation in chosen:
        hunts.append(hunt(mutation, seeds_max))
        print(told(hunts[-1]), flush=True)
    if name == ALL:
        print("", table(hunts), sep="\n")
    return FOUND if all(one.is_found for one in hunts) else NOT_FOUND


def run_swarm(name: str, rounds_s: Sequence[float], path: Path) -> int:
    """Hunt in the plain swarm, for one mutation or for `all`; print what came of it."""
    chosen = [one for one in MUTATIONS if name in (one.name, ALL)]
    if not chosen:
        print(f"no such mutation: {name}; see --list-mutations")
        return UNKNOWN
    known = swarm.hunt_in_rounds(chosen, rounds_s, path)
    print(swarm.summary(known[one.name] for one in chosen))
    return FOUND if all(known[one.name].checker for one in chosen) else NOT_FOUND


def told(one: Hunt) -> str:
    """Return a few lines about one hunt."""
    name, minutes = one.mutation.name, one.mutation.surroundings.minutes
    spent = f"{one.seeds_count} of {one.seeds_max} seeds of {minutes:g} min, {one.real_s:.0f} s"
    lines = [f"{name}: {f'found by {one.checker}' if one.is_found else 'NOT FOUND'} ({spent})"]
    if one.is_found:
        lines += [
            f"  seed {one.seed}, after {one.after_s:.1f} s: {one.sentence[:300]}",
            f"  repeat: scripts/simulate --mutation {name}",
        ]
    lines += [f"  not counted, it comes without the defect too: {said}" for said in one.not_counted]
    return "\n".join(lines)


def table(hunts: Iterable[Hunt]) -> str:
    """Return the result of many hunts in Markdown."""
    lines = [
        "| mutation | what it breaks | found by | seeds needed | budget |",
        "| --- | --- | --- | --- | --- |",
    ]
    for one in hunts:
        mutation = one.mutation
        found = f"`{one.checker}`" if one.is_found else "nobody"
        needed = str(one.seeds_count) if one.is_found else "-"
        budget = f"{one.seeds_max} x {mutation.surroundings.minutes:g} min"
        lines.append(f"| `{mutation.name}` | {mutation.sentence} | {found} | {needed} | {budget} |")
    return "\n".join(lines)
