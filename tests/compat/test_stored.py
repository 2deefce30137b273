"""What earlier releases have stored and sent means today what it meant to them, byte for byte.

`stored` holds bytes with what their own release made of them; make_*.py say how. Nothing there ever changes.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lockstate import codec, fingerprint, invariants, snapshot
from lockstate.machine import LockMachine
from tests.compat.values import plain

STORED = Path(__file__).with_name("stored")
FIRST, SECOND, THIRD, FOURTH, FIFTH = "0.1.0", "rules_2", "rules_3", "rules_4", "rules_5"
SIXTH, SEVENTH, EIGHTH = "rules_6", "rules_7", "rules_8"
RULES = {FIRST: 1, SECOND: 2, THIRD: 3, FOURTH: 4, FIFTH: 5, SIXTH: 6, SEVENTH: 7, EIGHTH: 8}
FINGERPRINTS = {
    FIRST: 0x5D3BFE3C0FA97262,
    SECOND: 0xFAC527CD7C497B44,
    THIRD: 0x7BE2EAF83BE98426,
    FOURTH: 0xA7566D4E794F7438,
    FIFTH: 0x4DBB0624765A6F7D,
    SIXTH: 0xCB079B4ADF95475F,
    SEVENTH: 0x30C00184E79FF103,
    EIGHTH: 0xCD65A77C35EA56BE,
}
"""What version 1 of the fingerprint makes of the stored snapshots: releases that tell each other another one
stop each other. If they must change, fingerprint.VERSION changes first."""
EMPTY = {FOURTH: 1, EIGHTH: 1}
"""Tables that a stored snapshot has no row of: with rules 4 nothing had anything beside its fields yet."""
RELEASES = pytest.mark.parametrize("release", RULES)


def load_json(release: str, name: str) -> Any:
    """Return what a stored file says."""
    return json.loads((STORED / release / name).read_text())


# -- entries and states -------------------------------------------------------------------------------------


@RELEASES
def test_entries_do_what_they_did(release: str) -> None:
    """Every command of a stored history has the outcome that its release gave it, and so has the state."""
    machine = LockMachine()
    for number, step in enumerate(load_json(release, "history.json")):
        outcome = machine.apply(codec.decode_entry(bytes.fromhex(step["entry"]), machine.rules))
        assert plain(outcome, RULES[release]) == step["outcome"], f"entry {number}"
        assert snapshot.digest(machine) == step["digest"], f"entry {number}"
    assert machine.rules == RULES[release]


def test_rules_2_do_with_every_command_what_rules_1_did() -> None:
    """Rules 2 brought formats only: the entries of release 0.1.0 have the same outcomes under them."""
    machine = LockMachine()
    machine.state.rules = 2
    for number, step in enumerate(load_json(FIRST, "history.json")):
        entry = codec.decode_entry(bytes.fromhex(step["entry"]), machine.rules)
        assert plain(machine.apply(entry)) == step["outcome"], f"entry {number}"


@RELEASES
def test_a_snapshot_is_what_it_was(release: str) -> None:
    """A stored state with a row in every table is restored, sound, and encoded to the same bytes again."""
    data = (STORED / release / "snapshot").read_bytes()
    machine = snapshot.decode(data)
    invariants.check(machine)
    assert machine.rules == RULES[release]
    tables = [bool(table) for table in msgspec.msgpack.decode(data)[-1]]
    assert tables.count(False) == EMPTY.get(release, 0), "it has all tables"
    assert snapshot.encode(machine) == data
    assert snapshot.digest(machine) in {step["digest"] for step in load_json(release, "history.json")}


@RELEASES
def test_a_fingerprint_means_the_same_in_every_release(release: str) -> None:
    """Nodes of different releases compare the fingerprints of version 1 of their states."""
    machine = snapshot.decode((STORED / release / "snapshot").read_bytes())
    assert fingerprint.VERSION == 1
    assert machine.fingerprint == FINGERPRINTS[release], "count fingerprint.VERSION up"
