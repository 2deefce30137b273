"""The timeline of a history: all that happened is in it, nothing from elsewhere, and a browser draws it."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lab.chaos import timeline
from lab.chaos.checkers.catalogue import check_all
from lab.chaos.history import FaultBegin, FaultEnd, Header, History
from tests.unit.lab.chaos.histories import MS, Script

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER_S = 60
NASTY = "</script><script>document.body.dataset.error='injected'</script>"


def broken_history() -> History:
    """Return a history with a fault, two holders at a time, and a name that would like to be a program."""
    script = Script()
    script.grant("h1", 1, 0, 50, ttl=5000, client="c-2").node = "n1"
    script.grant("h2", 2, 100, 300, ttl=5000, client="c-10").node = "n2"
    script.grant("h3", 3, 400, 420, name=NASTY, client="c-2")
    return History(
        [
            Header(seed=7, target="processes", nodes={"n1": "http://a", "n2": "http://b"}),
            *script.lines,
            FaultBegin(id=90, what="kill-leader", where=["n2"], at_ns=80 * MS),
            FaultEnd(id=90, at_ns=350 * MS),
        ]
    )


def page() -> str:
    """Return the page of the broken history."""
    history = broken_history()
    return timeline.page(history, check_all(history))


def data_of(text: str) -> Any:
    """Return the JSON that stands in a page."""
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(found[1])


def test_all_that_happened_is_in_the_page() -> None:
    """Lanes of nodes and clients, operations with their times, the fault with its lane, the objections."""
    data = data_of(page())
    assert data["lanes"] == ["n1", "n2", "c-2", "c-10"]
    assert [(item["lane"], item["node"], item["begin"], item["end"]) for item in data["operations"]] == [
        (2, 0, 0, 50),
        (3, 1, 100, 300),
        (2, -1, 400, 420),
    ]
    assert data["faults"] == [{"what": "kill-leader", "where": ["n2"], "lanes": [1], "begin": 80, "end": 350}]
    assert {item["checker"] for item in data["violations"]} >= {"overlap", "early-lease", "linearizability"}
    assert [item["id"] for item in data["operations"] if item["blamed"]] == [1, 2]


def test_nothing_comes_from_elsewhere() -> None:
    """The page needs no other file and no network, and no name ends its script."""
    text = page()
    assert not re.search(r"(?:src|href)\s*=|@import|url\(|https?://", text)
    assert NASTY not in text
    assert data_of(text)["operations"][2]["name"] == NASTY


def test_a_long_history_is_cut_around_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many operations those next to the first objection stay; the page counts the others."""
    monkeypatch.setattr(timeline, "OPERATIONS_MAX", 2)
    data = data_of(page())
    assert [item["id"] for item in data["operations"]] == [2, 3]
    assert data["left_out"] == 1


PROBE = """
<script>
window.addEventListener("error", (event) => { document.body.dataset.error = event.message; });
const seen = document.body.dataset, events = {}, box = canvas.getBoundingClientRect();
events.first = seen.drawn;
for (let turn = 0; turn < 30; turn++)
  canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -1, clientX: box.left + x(405), clientY: 200 }));
events.zoomed = seen.drawn;
canvas.dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
events.whole = seen.drawn;
const row = TOP + 3 * LANE + 5, scale = window.devicePixelRatio || 1;
canvas.dispatchEvent(new MouseEvent("click", { clientX: box.left + x(200), clientY: box.top + row }));
events.told = told.textContent;
const pen = canvas.getContext("2d");
events.pixel = [...pen.getImageData(x(200) * scale, row * scale, 1, 1).data].join(",");
document.body.dataset.events = JSON.stringify(events);
</script>
"""


def test_a_browser_draws_it(tmp_path: Path) -> None:
    """A real browser runs the page without an error: it draws, zooms at the wheel, and tells of a click."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no chromium or chrome is installed")
    path = tmp_path / "timeline.html"
    path.write_text(page().replace("</body>", PROBE + "</body>"), "utf-8")
    done = subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--window-size=1200,700",
            "--dump-dom",
            path.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=BROWSER_S,
        check=True,
    )
    assert "data-error" not in re.sub(r"<script.*?</script>", "", done.stdout, flags=re.DOTALL), done.stdout
    found = re.search(r'data-events="([^"]*)"', done.stdout)
    assert found, done.stderr
    events = json.loads(html.unescape(found[1]))
    assert (events["first"], events["zoomed"], events["whole"]) == ("3", "1", "3")
    assert events["told"].startswith("#2 c-10 acquire a: ok, 100 to 300 ms")
    assert events["pixel"] == "213,0,0,255"  # the colour of what is objected to
    assert done.stdout.count("<li>") == len(data_of(path.read_text("utf-8"))["violations"])
