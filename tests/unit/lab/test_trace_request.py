"""The trace of a request: what the recorder counts, and that a whole run reports it."""

import asyncio
import re
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from cluster.config import Address
from lab.trace import command as trace_request
from lab.trace.call_trace import NO_CALLER, CallRecorder, CallTrace

ROOT = Path(__file__).resolve().parents[3]


def outer() -> None:
    """Call twice."""
    inner()
    inner()


def inner() -> None:
    """Call nothing."""


def test_the_recorder_sees_who_called_whom() -> None:
    """Each call is recorded with its caller and told if it is watched; nothing after the end is."""
    told: list[tuple[int, str]] = []

    def on_watched(index: int, frame: FrameType) -> None:
        told.append((index, frame.f_code.co_name))

    recorder = CallRecorder(frozenset(), "inner", on_watched)
    recorder.start()
    outer()
    recorder.stop()
    outer()
    # The last is the recorder's own `stop`.
    assert [(call.caller, call.code.co_name) for call in recorder.calls] == [
        (NO_CALLER, "outer"),
        (0, "inner"),
        (0, "inner"),
        (NO_CALLER, "stop"),
    ]
    assert told == [(1, "inner"), (2, "inner")]


def test_an_ignored_file_is_left_out_but_not_what_it_calls() -> None:
    """A call made by a function of an ignored file counts as made by that function's own caller."""
    recorder = CallRecorder(frozenset({__file__}), "", lambda _index, _frame: None)
    recorder.start()
    Address.parse("127.0.0.1:7700")
    asyncio.iscoroutine(None)
    recorder.stop()
    trace = CallTrace(recorder.calls, ROOT)
    assert trace.our_files() == {str(ROOT / "cluster" / "config.py")}
    assert trace.callbacks_count() == len({"Address.parse", "iscoroutine", "stop"})
    assert 0 < trace.ours_count() < len(trace.calls)
    assert trace.describe(trace.stack(0)[0]).startswith("Address.parse  cluster/config.py:")
    assert len(list(trace.first(1).tree())) == 1


@pytest.mark.parametrize("disturbed_count", [0, 3, trace_request.TRIES_COUNT_MAX])
async def test_a_request_with_a_heartbeat_in_it_is_not_counted(
    monkeypatch: pytest.MonkeyPatch, disturbed_count: int
) -> None:
    """Another one is traced; where every request sends its entry too often, that is told."""
    left = [disturbed_count]
    run = trace_request.TracedRun(CallTrace([], ROOT), CallTrace([], ROOT), 0)

    async def trace_once(*_: object) -> trace_request.TracedRun:
        left[0] -= 1
        if left[0] >= 0:
            raise trace_request.DisturbedError("the request passed Link.send 4 times, not 3 times")
        return run

    monkeypatch.setattr(trace_request, "trace_once", trace_once)
    unused: Any = None
    if disturbed_count < trace_request.TRIES_COUNT_MAX:
        assert await trace_request.trace_undisturbed(unused, unused, unused) is run
    else:
        with pytest.raises(trace_request.TracingError, match="4 times, not 3"):
            await trace_request.trace_undisturbed(unused, unused, unused)


def test_timers_are_not_held_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that waits for one is answered a little later, and not counted."""
    monkeypatch.setattr(trace_request, "HELD_S", 0.05)

    async def wait(seconds: float) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, trace_request.PausableLoop)
        with loop.holding_timers():
            await asyncio.sleep(seconds)

    with asyncio.Runner(loop_factory=trace_request.PausableLoop) as runner:
        runner.run(wait(0))
        with pytest.raises(trace_request.DisturbedError, match="took longer"):
            runner.run(wait(0.01))


@pytest.mark.parametrize("flags", [(), ("--http",)], ids=["node", "http"])
def test_a_whole_run_reports_its_figures(flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Three nodes start, one acquire is counted, and each of its figures is above zero."""
    assert trace_request.main(["--runs", "3", "--top", "5", "--files", "--tree", *flags]) == 0
    out = capsys.readouterr().out
    for figure in ("Python calls", "Python calls, own", "files", "files, own", "loop callbacks"):
        found = re.search(rf"^{figure}  +([0-9,]+)", out, re.MULTILINE)
        assert found is not None, figure
        assert int(found[1].replace(",", "")) > 0
    assert re.search(r"^frames to Link\.send +\d+ ", out, re.MULTILINE)
    assert "\nlockstate/machine.py\n" in out
    assert re.search(r"^ +LockMachine\.apply  lockstate/machine\.py:\d+$", out, re.MULTILINE)
    assert ("http_api/" in out) == bool(flags)
