"""The browser as the tests use it: a page that fails its test for whatever its console says is wrong."""

import contextlib
import json
import os
import shutil
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from scripts.local_cluster import LocalCluster
from tests.process.nodes import DEADLINE_S

DESK, PHONE = 1280, 390
"""Widths of windows, in pixels."""
Scheme = Literal["light", "dark"]
LOOKS: Final[tuple[tuple[int, Scheme], ...]] = (
    (DESK, "light"),
    (DESK, "dark"),
    (PHONE, "light"),
    (PHONE, "dark"),
)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Run Debian's chromium. Skips the test where it is missing."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("needs chromium: apt-get install chromium")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # it refuses to run as root with one
    expect.set_options(timeout=DEADLINE_S * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=sandbox)
        yield browser
        browser.close()


@contextlib.contextmanager
def looking(
    browser: Browser,
    cluster: LocalCluster,
    page: str = "",
    *,
    node_id: str = "n1",
    width: int = DESK,
    scheme: Scheme = "light",
    has_scripts: bool = True,
    expected: str = "",
) -> Iterator[Page]:
    """Open a page of a node. Fails the test if the console shows an error, other than an `expected` one."""
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, java_script_enabled=has_scripts
    )
    context.set_default_timeout(DEADLINE_S * 1000)
    shown = context.new_page()
    wrong: list[str] = []
    shown.on("console", lambda said: wrong.append(said.text) if said.type in {"error", "warning"} else None)
    shown.on("pageerror", lambda error: wrong.append(str(error)))
    shown.goto(address(cluster, page, node_id))
    try:
        yield shown
    finally:
        context.close()
    assert [text for text in wrong if not expected or expected not in text] == []


def address(cluster: LocalCluster, page: str = "", node_id: str = "n1") -> str:
    """Return where a page of a node is."""
    return f"{cluster.node(node_id).http}/ui{f'#/{page}' if page else ''}"


def check_accessible(page: Page) -> None:
    """Fail the test if axe finds anything that keeps somebody from using the page."""
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def call(
    cluster: LocalCluster, method: str, path: str, headers: Mapping[str, str] | None = None, **body: Any
) -> Any:
    """Make a call to the first node, as a program does."""
    request = urllib.request.Request(
        cluster.node("n1").http + path,
        json.dumps(body).encode() if body else None,
        {"Content-Type": "application/json", **(headers or {})},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
        return json.loads(answer.read())
