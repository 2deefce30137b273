"""The file of a history: what is written is read again, also after the writer was killed."""

from pathlib import Path

import pytest

from lab.chaos.history import (
    FinalHolds,
    Header,
    HistoryFailure,
    HistoryWriter,
    Holder,
    NodeState,
    Note,
    Operation,
    public_id,
    read_history,
)


def write_some(path: Path) -> None:
    """Write one line of each kind."""
    with HistoryWriter(path) as writer:
        writer.write(Header(seed=7, target="processes", nodes={"n1": "http://127.0.0.1:1"}))
        fault_id = writer.fault_begin("kill-leader", ["n1"], 5, how="SIGKILL")
        writer.write(
            Operation(
                id=writer.next_id(),
                client="c1",
                workload="mutex",
                kind="acquire",
                name="a",
                call_ns=3,
                return_ns=9,
                outcome="ok",
                result={"token": 4},
            )
        )
        writer.fault_end(fault_id, 8)
        writer.write(NodeState(node="n1", revision=3, digest="d", at_ns=11))
        writer.write(
            FinalHolds(
                kind="lock",
                prefix="",
                call_ns=10,
                return_ns=12,
                holders=[Holder(name="a", owner="o", token=4)],
            )
        )
        writer.write(Note(at_ns=2, text="no root here"))
        writer.sync()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Every kind of line survives, and faults have their end."""
    write_some(tmp_path / "history")
    history = read_history(tmp_path / "history")
    assert history.header.seed == 7
    assert [(item.what, item.begin_ns, item.end_ns) for item in history.faults] == [("kill-leader", 5, 8)]
    assert [(item.kind, item.result) for item in history.of("mutex")] == [("acquire", {"token": 4})]
    assert history.node_states[0].digest == "d"
    assert history.final_holds[0].holders[0].token == 4
    assert (history.begin_ns, history.end_ns) == (2, 12)


@pytest.mark.parametrize("cut", [1, 2, 17])
def test_torn_last_line(tmp_path: Path, cut: int) -> None:
    """A lab that was killed while it wrote leaves half a line, which is left out."""
    path = tmp_path / "history"
    write_some(path)
    path.write_bytes(path.read_bytes()[:-cut])
    history = read_history(path)
    assert history.notes == []
    assert len(history.operations) == 1


def test_broken_line_in_the_middle(tmp_path: Path) -> None:
    """Any other broken line is an error that names the line."""
    path = tmp_path / "history"
    write_some(path)
    lines = path.read_bytes().split(b"\n")
    lines[2] = lines[2][:-5]
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(HistoryFailure, match=":3:"):
        read_history(path)


def test_another_format(tmp_path: Path) -> None:
    """A history of another version is refused."""
    with HistoryWriter(tmp_path / "history") as writer:
        writer.write(Header(seed=1, target="x", nodes={}, format=99))
    with pytest.raises(HistoryFailure, match="99"):
        read_history(tmp_path / "history")


def test_fault_without_an_end(tmp_path: Path) -> None:
    """A fault that never ended lasts to the end of the history."""
    with HistoryWriter(tmp_path / "history") as writer:
        writer.fault_begin("pause", ["n2"], 5)
        writer.write(Note(at_ns=50, text="later"))
    assert read_history(tmp_path / "history").faults[0].end_ns == 50


def test_public_ids_hide_the_secret() -> None:
    """Two holds have two names, and neither has the secret in it."""
    assert public_id("0f5c") != public_id("0f5d")
    assert "0f5c" not in public_id("0f5c")
