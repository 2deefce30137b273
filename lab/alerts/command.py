"""scripts/check-deploy --alerts: a real Prometheus tells each fault by its alert, and nothing else."""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from lab.alerts.faults import FAULTS, NOT_MADE, AlertFault, put_a_little, repeated
from lab.alerts.watched import POLL_S, Prometheus, WatchedCluster
from lab.chaos.targets.target import LabFailure
from scripts.lib import guardian

QUIET_S: Final = 60.0
"""How long nothing may fire before the first fault, unless told: longer than any `for` and most windows."""
HEALED_S: Final = 180.0
"""How long alerts may take to end: longer than the longest window."""
CALM_S: Final = 5.0
"""How long nothing must have fired for alerts to have ended."""
WRONG: Final = 1
NOT_RUN: Final = 2
PREFIX: Final = "Holdfast"
DESCRIPTION: Final = (
    "Start three nodes, and a Prometheus that watches them by deploy/prometheus/rules.yaml with half a minute"
    " made a second. See that nothing fires while all is well; then make one fault after the other, and see"
    " that its alerts fire and no others, and that they end when it is whole again. Needs the package"
    " prometheus and a C compiler. The exit code is 0 if all was so, 1 if not, and 2 if it could not be run."
)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What Prometheus told of one fault."""

    fault: str
    fired: dict[str, float]
    """Seconds until each alert fired."""
    ended_s: float | None
    """Seconds from when all was whole until nothing fired; None if something still did."""
    wrong: str = ""
    """What is not as it should be."""


def try_fault(fault: AlertFault, lab: WatchedCluster, prometheus: Prometheus) -> Verdict:
    """Break something, wait for its alerts, make it whole, and wait for their end."""
    fired: dict[str, float] = {}
    began_s = time.monotonic()

    def look() -> bool:
        now = prometheus.firing()
        for alert in now:
            fired.setdefault(alert.removeprefix(PREFIX), round(time.monotonic() - began_s, 1))
        return bool(now)

    try:
        lab.lead()
        with fault.broken(lab):
            until_s = time.monotonic() + fault.within_s
            while not fault.fires <= fired.keys() and time.monotonic() < until_s:
                look()
                time.sleep(POLL_S)
        wrong = ""
    except LabFailure as error:
        wrong = str(error)
    healed_s = latest_s = time.monotonic()
    while (now_s := time.monotonic()) < healed_s + HEALED_S and now_s < latest_s + CALM_S:
        latest_s = now_s if look() else latest_s
        time.sleep(POLL_S)
    has_ended = now_s >= latest_s + CALM_S
    return Verdict(
        fault=fault.name,
        fired=fired,
        ended_s=round(latest_s - healed_s, 1) if has_ended else None,
        wrong=wrong or objection(fault, fired.keys(), has_ended=has_ended),
    )


def objection(fault: AlertFault, fired: Iterable[str], *, has_ended: bool) -> str:
    """Return what is wrong with the alerts that fired, empty if nothing is."""
    seen = set(fired)
    told = {
        "silent": fault.fires - seen,
        "unexpected": seen - fault.fires - fault.beside,
        "still firing": set() if has_ended else {"some"},
    }
    return "; ".join(f"{what}: {', '.join(sorted(names))}" for what, names in told.items() if names)


def quiet(prometheus: Prometheus, lab: WatchedCluster, quiet_s: float) -> str:
    """Look for a while at a cluster that is well and in use; return what fires, empty if nothing does."""
    until_s = time.monotonic() + quiet_s
    with repeated(lambda: put_a_little(lab), 0.5):
        while time.monotonic() < until_s:
            if firing := prometheus.firing():
                return ", ".join(firing)
            time.sleep(POLL_S)
    return ""


def run(faults: Sequence[AlertFault], directory: Path, quiet_s: float) -> list[Verdict]:
    """Try faults, one after the other, at one cluster; print what came of each. Raises LabFailure."""
    lab = WatchedCluster(directory)
    lab.open()
    try:
        prometheus = Prometheus(directory / "prometheus", lab)
        try:
            if firing := quiet(prometheus, lab, quiet_s):
                raise LabFailure(f"the cluster is well, and this fires: {firing}")
            print(f"right  {'(all is well)':26} nothing fired within {quiet_s:.0f} s", flush=True)
            verdicts = []
            for fault in faults:
                verdicts.append(verdict := try_fault(fault, lab, prometheus))
                print(line(verdict), flush=True)
            return verdicts
        finally:
            prometheus.close()
    finally:
        lab.close()


def line(verdict: Verdict) -> str:
    """Return a verdict as a line of text."""
    fired = ", ".join(f"{alert} after {after_s:.0f} s" for alert, after_s in verdict.fired.items())
    ended = "" if verdict.ended_s is None else f"; ended {verdict.ended_s:.0f} s after it was whole"
    said = f"{fired or 'nothing'}{ended}" + (f" -- {verdict.wrong}" if verdict.wrong else "")
    return f"{'WRONG' if verdict.wrong else 'right'}  {verdict.fault:26} {said}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/check-deploy --alerts", description=DESCRIPTION)
    parser.add_argument("--only", metavar="FAULT,...", help=f"of {', '.join(fault.name for fault in FAULTS)}")
    parser.add_argument(
        "--quiet", metavar="SECONDS", type=float, default=QUIET_S,
        help=f"how long nothing may fire before the first fault; default {QUIET_S:.0f}",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    names = None if options.only is None else set(options.only.split(","))
    if unknown := (names or set()) - {fault.name for fault in FAULTS}:
        parser.error(f"there is no fault {', '.join(sorted(unknown))}")
    if shutil.which("prometheus") is None:
        print("scripts/check-deploy: no prometheus: apt-get install prometheus", file=sys.stderr)
        return NOT_RUN
    directory = Path(tempfile.mkdtemp(prefix="holdfast-alerts-"))
    with guardian.guarded():
        guardian.run_if_killed(["rm", "-rf", str(directory)])
        try:
            chosen = [fault for fault in FAULTS if names is None or fault.name in names]
            verdicts = run(chosen, directory, options.quiet)
        except LabFailure as error:
            print(f"scripts/check-deploy: {error}", file=sys.stderr)
            return NOT_RUN
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    for alert, why in NOT_MADE.items():
        print(f"-      {PREFIX}{alert} is not made here: {why}")
    return WRONG if any(verdict.wrong for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
