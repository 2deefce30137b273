"""What `scripts/chaos --prove` does."""

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lab.chaos.targets.target import LabFailure
from lab.chaos.teeth.catalogue import TEETH
from lab.chaos.teeth.prove import prove, table
from lab.chaos.teeth.tooth import Tooth
from scripts.lib import guardian

NOT_PROVED: Final = 1
"""The exit code when nobody objected to something that is wrong, or somebody to what is not."""


def run_teeth(names: Sequence[str] | None, seed: int | None, directory: Path | None) -> int:
    """Try all teeth, or those of these names; print what came of it, and return the exit code.

    Raises LabFailure when there is none of a name, and when a cluster could not be built.
    """
    teeth = _picked(names)
    seed = secrets.randbelow(10**6) if seed is None else seed
    directory = directory or Path(f"prove-{os.getpid()}-{seed}")
    print(f"chaos: {len(teeth)} teeth, seed {seed}, load {os.getloadavg()[0]:.1f}", flush=True)
    with guardian.guarded():
        bites = prove(teeth, seed, directory, lambda text: print(text, flush=True))
    print(f"\n{table(bites)}\n\nthe histories are in {directory}", flush=True)
    return 0 if all(done.is_right for done in bites) else NOT_PROVED


def _picked(names: Sequence[str] | None) -> list[Tooth]:
    """Return the teeth of these names, all if there are no names. Raises LabFailure."""
    unknown = [name for name in names or () if name not in TEETH]
    if unknown:
        raise LabFailure(f"there is no tooth {unknown[0]!r}; there are {', '.join(TEETH)}")
    return [TEETH[name] for name in (TEETH if names is None else names)]
