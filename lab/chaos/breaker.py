"""Runs a schedule: begins each fault, heals it, and waits until all is well before the next. One thread."""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lab.chaos.faults.fault import Fault, PromiseBroken
from lab.chaos.history import HistoryWriter, Witnessed
from lab.chaos.lab import now_ns
from lab.chaos.schedule import PAUSE, Step
from lab.chaos.targets.target import LabFailure, Target


class _Broken:
    """A fault that has begun and is not healed."""

    def __init__(self, fault: Fault[Any], name: str) -> None:
        self.fault = fault
        self.name = name
        self.fault_id: int | None = None
        """What it has in the history, once it has begun."""
        self.ends_s = 0.0


class Breaker:
    """Breaks what the schedule says. `run` blocks; `stop`, from any thread, lets it heal and return soon."""

    def __init__(
        self,
        target: Target,
        faults: Mapping[str, type[Fault[Any]]],
        history: HistoryWriter,
        *,
        seed: int,
        say: Callable[[str], None],
    ) -> None:
        """`seed` is also what the faults choose by; `say` tells people what happens."""
        self._target = target
        self._faults = faults
        self._history = history
        self._seed = seed
        self._say = say
        self._stopped = threading.Event()
        self._present: list[_Broken] = []
        self.done = 0
        """How many faults were begun."""

    @property
    def broken(self) -> str:
        """What is broken just now, for people."""
        return ", ".join(broken.name for broken in list(self._present)) or "nothing"

    def stop(self) -> None:
        """Begin no more, and heal what is broken."""
        self._stopped.set()

    def run(self, steps: Sequence[Step], until_s: float) -> None:
        """Go through `steps`, but begin none that would last beyond `until_s` of time.monotonic().

        All is healed and every node ready when this returns. Raises LabFailure when that cannot be reached.
        """
        try:
            for number, step in enumerate(steps):
                if not step.overlaps:
                    self._heal_all()
                self._sleep(step.after_s)
                if self._stopped.is_set() or time.monotonic() + step.lasts_s > until_s:
                    break
                if step.fault != PAUSE:
                    self._begin(number, step)
        finally:
            self._heal_all()

    def _begin(self, number: int, step: Step) -> None:
        chance = random.Random(f"fault/{self._seed}/{number}")
        fault = self._faults[step.fault](self._target, chance, dict(step.options), self._say)
        began_ns = now_ns()
        broken = _Broken(fault, step.fault)
        self._present.append(broken)
        try:
            where = fault.begin()
        except PromiseBroken as seen:
            self._history.write(Witnessed(at_ns=now_ns(), text=f"{step.fault}: {seen}"))
            where = []
        broken.ends_s = time.monotonic() + step.lasts_s
        broken.name = f"{step.fault} ({', '.join(where)})" if where else step.fault
        broken.fault_id = self._history.fault_begin(step.fault, where, began_ns, **step.options)
        self.done += 1
        self._say(f"{broken.name} for {step.lasts_s:.1f} s")

    def _heal_all(self) -> None:
        """Let everything that is broken last its time, heal it, and wait until all nodes are ready."""
        if not self._present:
            return
        healed = []
        failures: list[Exception] = []
        while self._present:
            broken = min(self._present, key=lambda item: item.ends_s)
            self._sleep(broken.ends_s - time.monotonic())
            try:
                broken.fault.end()
            except Exception as error:  # noqa: BLE001 - the others are healed all the same
                failures.append(error)
            self._present.remove(broken)
            if broken.fault_id is not None:
                healed.append(broken.fault_id)
        if failures:
            raise LabFailure(f"what was broken could not be healed: {failures[0]!r}") from failures[0]
        self._target.wait_ready()
        for fault_id in healed:
            self._history.fault_end(fault_id, now_ns())

    def _sleep(self, seconds: float) -> None:
        self._stopped.wait(max(0.0, seconds))
