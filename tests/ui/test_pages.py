"""All pages of a cluster in which much is going on: everybody can use them, and markup stays text."""

import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Route, expect

from holdfast import wire
from scripts.local_cluster import LocalCluster
from tests.support.known_cluster import TOKENS
from tests.ui.browsing import DESK, PHONE, Scheme, address, call, check_accessible, looking
from tests.ui.scene import MARKUP, Scene, fill, playing

pytestmark = pytest.mark.process

PAGES = {
    "locks": "db/migrate",
    "locks/db%2F": "db/users/42",
    "lock/db%2Fmigrate": "schema 42 to 43",
    "semaphores": "licences",
    "semaphore/licences": "5 of 5 permits are taken",
    "elections": "10.0.0.5:8080",
    "election/scheduler": "deploy-2",
    "rate-limits": "mail/user-7",
    "cells": "v42",
    "sessions": "app:billing",
    "principals": "0 of 50",
    "namespaces": "jobs",
    "freezes": "the disk is moved",
    "deadlocks": "None has been refused.",
    "refusals": "0 since it started",
    "audit": "as agreed",
}
"""By address: a text that each page shows."""


@pytest.fixture
def scene(cluster: LocalCluster) -> Iterator[Scene]:
    """A cluster in which something is going on."""
    with playing(cluster) as scene:
        fill(scene)
        yield scene


FEW = ("locks", "lock/db%2Fmigrate", "semaphores")


@pytest.mark.parametrize(
    ("width", "scheme", "paths"),
    [(DESK, "light", PAGES), (PHONE, "dark", PAGES), (DESK, "dark", FEW), (PHONE, "light", FEW)],
)
def test_every_page_can_be_used_by_everybody(
    browser: Browser, scene: Scene, width: int, scheme: Scheme, paths: Iterable[str]
) -> None:
    """On a desk and a phone, light and dark: it shows what there is, and axe finds nothing."""
    with looking(browser, scene.cluster, width=width, scheme=scheme) as page:
        for path in paths:
            page.goto(address(scene.cluster, path))
            expect(page.locator("#view").get_by_text(PAGES[path]).first).to_be_attached()
            check_accessible(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_a_lock_shows_who_waits_for_whom(browser: Browser, scene: Scene) -> None:
    """Its queue in order, and in the picture what its holder waits for in turn; also in words."""
    with looking(browser, scene.cluster, "lock/db%2Fmigrate") as page:
        queue = page.get_by_role("table", name="Queue").get_by_role("row")
        expect(queue).to_have_count(6)
        expect(queue.nth(1)).to_contain_text("reports-1")
        picture = page.get_by_role("region", name="Who waits for whom").get_by_role("img")
        told = picture.get_attribute("aria-label") or ""
        assert "reports-1 waits for db/migrate; " in told
        assert "db/migrate is held by billing-7; billing-7 waits for jobs/nightly; " in told
        assert told.endswith("; jobs/nightly is held by deploy-2")
        expect(page.locator(".timeline .now")).to_have_count(1)
        expect(page.locator(".timeline .good").nth(3)).to_be_attached()


def test_markup_stays_text(browser: Browser, cluster: LocalCluster) -> None:
    """Whatever clients call their locks, owners, notes and labels, no page makes elements of it."""
    with playing(cluster) as scene:
        session_id = scene.session(app=MARKUP)
        scene.hold(MARKUP, MARKUP, session_id, note=MARKUP)
        scene.wait(wire.LOCK_ACQUIRE, name=MARKUP, owner=f"{MARKUP}2", ttl_ms=60_000)
        with looking(browser, cluster) as page:
            for path in ("locks", f"lock/{quote(MARKUP, safe='')}", "sessions", "audit"):
                page.goto(address(cluster, path))
                expect(page.locator("#view").get_by_text(MARKUP).first).to_be_attached()
                assert page.locator("img:not([role])").count() == 0
                assert page.title() != "hit"


@pytest.mark.parametrize("name", ["constructor", "__proto__", "toString", "valueOf"])
def test_a_name_may_be_a_word_of_javascript(browser: Browser, cluster: LocalCluster, name: str) -> None:
    """A lock that is called as what every object inherits, or below it, has its holders and actions."""
    with playing(cluster) as scene:
        session_id = scene.session(**{name: name})
        for one in (name, f"{name}/{name}"):
            scene.hold(one, name, session_id)
            scene.wait(wire.LOCK_ACQUIRE, name=one, owner=f"{name}2", ttl_ms=60_000)
        with looking(browser, cluster) as page:
            for one in (name, f"{name}/{name}"):
                page.goto(address(cluster, f"lock/{quote(one, safe='')}"))
                expect(page.get_by_role("table", name="Holders")).to_contain_text(name)
                expect(page.get_by_role("button", name=f"End the hold of {name} on {one}")).to_be_visible()
                expect(page.get_by_role("button", name=f"End the wait of {name}2 for {one}")).to_be_visible()
                expect(page.get_by_role("button", name=f"Freeze {one}")).to_be_visible()
            page.goto(address(cluster, f"locks/{name}%2F"))
            expect(page.get_by_role("rowheader", name=f"{name}/{name}")).to_be_visible()
            expect(page.get_by_role("button", name=f"Freeze {name}")).to_be_visible()
            page.goto(address(cluster, "sessions"))
            expect(page.get_by_text(f"{name}:{name}")).to_be_visible()
            page.get_by_role("link", name="s-").click()
            ends = page.get_by_role("table", name="Holders").get_by_role("button", name="End the hold")
            expect(ends).to_have_count(2)


@pytest.mark.parametrize("path", ["lock/%", "%E0%A4%A", "lock", "session/", "constructor", "none/of/them"])
def test_an_address_without_a_page_says_so(browser: Browser, cluster: LocalCluster, path: str) -> None:
    """Whatever somebody has typed or cut off; one goes on from there."""
    with looking(browser, cluster, path) as page:
        expect(page.get_by_role("heading", name="No such page")).to_be_visible()
        check_accessible(page)
        page.get_by_role("link", name="Go to the overview").click()
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        page.goto(address(cluster, "locks"))
        expect(page.get_by_role("heading", name="Locks")).to_be_visible()
        page.evaluate("location.hash = '#/lock/%'")
        expect(page.get_by_role("heading", name="No such page")).to_be_visible()


def test_one_skips_to_the_content_of_a_page(browser: Browser, scene: Scene) -> None:
    """The link for the keyboard leads to the content, and not to the overview."""
    with looking(browser, scene.cluster, "locks") as page:
        expect(page.get_by_role("link", name="db/migrate")).to_be_visible()
        page.get_by_role("link", name="Skip to the content").press("Enter")
        expect(page.locator("#main")).to_be_focused()
        expect(page.get_by_role("heading", name="Locks")).to_be_visible()


@pytest.mark.parametrize(
    ("path", "key", "lost"), [("locks", "locks", "holders"), ("sessions", "sessions", "labels")]
)
def test_a_row_that_cannot_be_shown_hides_no_other(
    browser: Browser, scene: Scene, path: str, key: str, lost: str
) -> None:
    """An answer in which something is missing from one row: the others are shown, sorted and found."""

    def without(route: Route) -> None:
        answer = route.fetch()
        told = answer.json()
        told[key][0][lost] = None
        route.fulfill(response=answer, json=told)

    with looking(browser, scene.cluster, expected="TypeError") as page:
        page.route(f"**/v1/{path}?*", without)
        page.goto(address(scene.cluster, path))
        rows = page.locator("#view tbody tr")
        expect(rows).to_have_count(4)
        expect(rows.filter(has_text="cannot be shown")).to_have_count(1)
        page.get_by_role("button", name="Ends in").click()
        expect(rows).to_have_count(4)
        page.get_by_role("searchbox").fill("deploy")
        expect(rows).to_have_count(1)


@pytest.mark.parametrize("refused", ["tickets/", "holds?", "locks/%6aobs"])
def test_a_lock_is_shown_without_what_is_refused(browser: Browser, scene: Scene, refused: str) -> None:
    """Where the node does not say when waits end, or what others have, holders and queue are there."""
    problem = {"title": "too many requests", "code": "rate-limited", "status": 429}
    with looking(browser, scene.cluster, expected="429") as page:
        asked: list[str] = []
        page.on("response", lambda answer: asked.append(answer.url) if answer.status == 429 else None)
        page.route(lambda url: f"/v1/{refused}" in url, lambda route: route.fulfill(status=429, json=problem))
        page.goto(address(scene.cluster, "lock/db%2Fmigrate"))
        expect(page.get_by_role("table", name="Holders")).to_contain_text("billing-7")
        expect(page.get_by_role("table", name="Queue").get_by_role("row")).to_have_count(6)
        expect(page.get_by_role("region", name="Who waits for whom")).to_be_visible()
        assert asked


def test_one_finds_a_lock_by_typing(browser: Browser, scene: Scene) -> None:
    """Names, owners and labels are looked at; the longest queue comes first if one wants that."""
    with looking(browser, scene.cluster, "locks") as page:
        names = page.get_by_role("table", name="Locks").get_by_role("rowheader")
        expect(names).to_have_text(["db/migrate", "db/users/42", "files/2026/11", "jobs/nightly"])
        page.get_by_role("button", name="Most contended").click()
        expect(names).to_have_text(["db/migrate", "jobs/nightly", "db/users/42", "files/2026/11"])
        search = page.get_by_role("searchbox", name="Search names, owners, labels")
        search.press_sequentially("app:dep")
        expect(names).to_have_text([])
        search.fill("deploy")
        expect(names).to_have_text(["jobs/nightly"])
        search.fill("none of them")
        expect(page.get_by_text("No lock matches.")).to_be_visible()
        search.fill("")
        page.get_by_role("link", name="db/ 2").click()
        expect(names).to_have_text(["db/migrate", "db/users/42"])


def test_what_was_not_searched_is_said(browser: Browser, scene: Scene) -> None:
    """Of more than is loaded, nothing is said to be missing."""

    def with_more(route: Route) -> None:
        answer = route.fetch().json()
        (first, *_) = answer["events"]
        route.fulfill(
            json={**answer, "events": [{**first, "number": number} for number in range(1000, 0, -1)]}
        )

    with looking(browser, scene.cluster) as page:
        page.route("**/v1/audit?*", with_more)
        page.goto(address(scene.cluster, "audit"))
        expect(page.get_by_text("The first 1,000 records. There are more")).to_be_visible()
        page.get_by_role("searchbox").fill("none of them")
        expect(
            page.get_by_text("0 records among the first 1,000. There are more, which were neither")
        ).to_be_visible()
        expect(page.get_by_text("None of these records matches.")).to_be_visible()


def test_locks_come_and_go_as_one_looks(browser: Browser, cluster: LocalCluster) -> None:
    """The page follows the watch, and a link keeps the focus when a row comes above it."""
    with playing(cluster) as scene, looking(browser, cluster, "locks") as page:
        expect(page.get_by_text("No lock is held or waited for.")).to_be_visible()
        hold_id = scene.hold("b", "one")["hold_id"]
        link = page.get_by_role("link", name="b", exact=True)
        link.focus()
        scene.hold("a", "two")
        expect(page.get_by_role("link", name="a", exact=True)).to_be_visible()
        expect(link).to_be_focused()
        call(cluster, "POST", wire.LOCK_RELEASE, hold_id=hold_id)
        expect(link).to_have_count(0)


def test_ages_are_right_on_an_idle_cluster(browser: Browser, cluster: LocalCluster) -> None:
    """They grow as one looks, and are the same after a reload, although nothing has happened meanwhile."""
    old = re.compile(r"^([3-9]|\d\d)(\.\d)? s$")
    with playing(cluster) as scene:
        scene.hold("db/migrate", "billing-7")
        with looking(browser, cluster, "locks") as page:
            cells = page.get_by_role("row").filter(has_text="billing-7").get_by_role("cell")
            expect(cells.nth(2)).to_have_text(old)
            page.reload()
            expect(page.get_by_role("link", name="db/migrate")).to_be_visible()
            assert old.match(cells.nth(2).inner_text())


def test_ten_thousand_locks_are_a_hundred_rows(browser: Browser, cluster: LocalCluster) -> None:
    """Those in sight are drawn; the others come as one scrolls, or by what one types."""
    with playing(cluster) as scene:
        session_id = scene.session()
        for number in range(156):
            locks = [{"name": f"orders/{number:03d}/{part:02d}"} for part in range(64)]
            call(cluster, "POST", wire.LOCK_ACQUIRE, locks=locks, session_id=session_id, owner=f"w-{number}")
        with looking(browser, cluster, "locks") as page:
            expect(page.get_by_text("9,984 locks")).to_be_visible()
            assert page.get_by_role("table", name="Locks").get_attribute("aria-rowcount") == "9985"
            assert page.locator("#locks tbody tr").count() < 100
            page.locator("#locks").evaluate("table => { table.scrollTop = table.scrollHeight }")
            expect(page.get_by_role("link", name="orders/155/63")).to_be_in_viewport()
            assert page.locator("#locks tbody tr").count() < 100
            page.get_by_role("searchbox").fill("orders/077")
            expect(page.get_by_text("64 locks")).to_be_visible()
            call(cluster, "PUT", wire.CELL.format(key="no%2F%2Fname"), value="not a lock")
            scene.hold("orders/077/one more", "late", value="late")
            expect(page.get_by_text("65 locks")).to_be_visible()
            call(cluster, "POST", wire.LOCK_RELEASE, name="orders/077/one more", value="late")
            expect(page.get_by_text("64 locks")).to_be_visible()
            call(cluster, "POST", wire.LOCK_FORCE_RELEASE, name="orders/077/00", reason="a test")
            expect(page.get_by_text("No lock matches.")).to_be_visible()


def test_a_refused_page_is_not_asked_for_again(browser: Browser, known: LocalCluster) -> None:
    """In a minute on a page that the caller has no right for there is one refusal, not sixty."""
    with looking(browser, known, expected="40") as page:
        page.clock.install()
        page.reload()
        page.get_by_role("button", name="Type a token").click()
        page.get_by_role("dialog").get_by_label("Token").fill(TOKENS["ann"])
        page.keyboard.press("Enter")
        expect(page.locator("#who")).to_have_text("ann")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.get_by_role("link", name="Principals").click()
        expect(page.get_by_role("alert")).to_contain_text("this needs the right admin")
        page.clock.run_for(60_000)
        assert len([url for url in asked if wire.QUOTAS in url]) == 1


def test_what_one_may_not_see_is_said(browser: Browser, known: LocalCluster) -> None:
    """A caller without the right for a page reads why, and sees the pages that it has a right for."""
    with looking(browser, known, expected="40") as page:
        page.get_by_role("button", name="Type a token").click()
        page.get_by_role("dialog").get_by_label("Token").fill(TOKENS["ann"])
        page.keyboard.press("Enter")
        page.get_by_role("link", name="Principals").click()
        expect(page.get_by_role("alert")).to_contain_text("this needs the right admin")
        page.get_by_role("link", name="Locks", exact=True).click()
        expect(page.get_by_text("No lock is held or waited for.")).to_be_visible()
        expect(page.locator("#age")).to_contain_text("following")
        page.get_by_role("link", name="Freezes").click()
        expect(page.get_by_text("Nothing is frozen.")).to_be_visible()
        expect(page.get_by_role("button", name="Freeze a prefix")).to_have_count(0)
