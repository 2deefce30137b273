"""What operators do on the page: each deed with its reason, and only with the right to it."""

from collections.abc import Mapping
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from holdfast import wire
from scripts.local_cluster import LocalCluster
from tests.support.known_cluster import TOKENS
from tests.ui.browsing import call, check_accessible, looking
from tests.ui.scene import playing
from tests.unit.http_api.serving import bearer

pytestmark = pytest.mark.process

TABS_MAX = 60


def tab_to(page: Page, label: str) -> None:
    """Press Tab until what is called so has the focus."""
    wanted = page.get_by_label(label)
    for _ in range(TABS_MAX):
        page.keyboard.press("Tab")
        if wanted.evaluate("element => element === document.activeElement"):
            return
    pytest.fail(f"Tab does not lead to {label}")


def deed(page: Page, button: str, verb: str, reason: str, typed: Mapping[str, str] | None = None) -> None:
    """Press a button, give a reason and what else is asked for, and do it."""
    page.get_by_role("button", name=button).click()
    dialog = page.get_by_role("dialog")
    for label, text in (typed or {}).items():
        dialog.get_by_label(label).fill(text)
    dialog.get_by_label("Reason").fill(reason)
    dialog.get_by_role("button", name=verb).click()
    expect(dialog).to_have_count(0)


def newest(cluster: LocalCluster, event: str) -> Any:
    """Return the newest record of a kind in the audit."""
    found = call(cluster, "GET", wire.AUDIT)["events"]
    return next(record for record in found if record["event"] == event)


def test_a_lock_is_forced_by_keyboard_alone(browser: Browser, cluster: LocalCluster) -> None:
    """From the address to the freed lock: Tab, Enter and what is typed."""
    with playing(cluster) as scene:
        scene.hold("db/migrate", "billing-7")
        with looking(browser, cluster, "locks") as page:
            expect(page.get_by_role("link", name="db/migrate")).to_be_visible()
            page.get_by_role("searchbox").focus()
            for _ in range(TABS_MAX):
                page.keyboard.press("Tab")
                if page.evaluate("document.activeElement.textContent") == "db/migrate":
                    break
            page.keyboard.press("Enter")
            expect(page.get_by_role("heading", name="Lock db/migrate")).to_be_visible()
            expect(page.get_by_label("End the hold of billing-7 on db/migrate")).to_be_visible()
            tab_to(page, "End the hold of billing-7 on db/migrate")
            page.keyboard.press("Enter")
            expect(page.get_by_role("dialog")).to_be_visible()
            check_accessible(page)
            page.keyboard.type("it hangs")
            page.keyboard.press("Enter")
            expect(page.locator("#notice")).to_have_text("The hold of billing-7 on db/migrate has ended.")
            expect(page.get_by_text("Nobody holds it.")).to_be_visible()
        assert newest(cluster, "forced")["reason"] == "it hangs"


def test_a_holder_is_asked_to_give_up_and_may_keep_it(browser: Browser, cluster: LocalCluster) -> None:
    """A revocation with its grace, and its withdrawal."""
    with playing(cluster) as scene:
        scene.hold("db/migrate", "billing-7", scene.session())
        with looking(browser, cluster, "lock/db%2Fmigrate") as page:
            deed(page, "Ask billing-7 to give up db/migrate", "Ask", "it is urgent", {"Time": "600"})
            expect(page.get_by_text("asked to give up, 9 min")).to_be_visible()
            assert newest(cluster, "revoked")["reason"] == "it is urgent"
            deed(page, "Let billing-7 keep db/migrate", "Take it back", "no longer")
            expect(page.get_by_text("asked to give up, 9 min")).to_have_count(0)
            assert newest(cluster, "revocation-withdrawn")["reason"] == "no longer"


def test_a_wait_and_a_session_are_ended(browser: Browser, cluster: LocalCluster) -> None:
    """The wait of one client, and all that another has."""
    with playing(cluster) as scene:
        scene.hold("db/migrate", "billing-7", scene.session(app="billing"))
        scene.wait(wire.LOCK_ACQUIRE, name="db/migrate", owner="web-1", ttl_ms=60_000)
        with looking(browser, cluster, "lock/db%2Fmigrate") as page:
            deed(page, "End the wait of web-1 for db/migrate", "End the wait", "not tonight")
            expect(page.get_by_text("Nobody waits for it.")).to_be_visible()
            page.get_by_role("link", name="Sessions").click()
            deed(page, "End the session s-", "End the session", "it is gone")
            expect(page.get_by_text("There is no such session.")).to_be_visible()
        assert call(cluster, "GET", wire.LOCK.format(name="db/migrate"))["state"] == "free"
        assert newest(cluster, "session-forced")["reason"] == "it is gone"


def test_a_prefix_is_frozen_and_thawed(browser: Browser, cluster: LocalCluster) -> None:
    """For some minutes, or until somebody thaws it."""
    with playing(cluster), looking(browser, cluster, "freezes") as page:
        deed(page, "Freeze a prefix", "Freeze", "the disk is moved", {"Prefix": "db", "For, in": "10"})
        expect(page.get_by_role("rowheader", name="db")).to_be_visible()
        assert call(cluster, "GET", wire.FREEZE.format(name="db"))["reason"] == "the disk is moved"
        deed(page, "Thaw db", "Thaw", "it is moved")
        expect(page.get_by_text("Nothing is frozen.")).to_be_visible()


def test_what_operators_did_is_a_page(browser: Browser, cluster: LocalCluster) -> None:
    """Grants of clients, however many, hide nothing of it; Back shows all records again."""
    with playing(cluster) as scene:
        scene.hold("db/migrate", "billing-7")
        call(cluster, "POST", wire.LOCK_FORCE_RELEASE, name="db/migrate", reason="it hangs")
        with looking(browser, cluster, "audit") as page:
            granted = page.get_by_role("table").get_by_text("granted").first
            expect(granted).to_be_visible()
            page.get_by_role("link", name="Only what operators did").click()
            expect(page.get_by_role("table").get_by_text("it hangs").first).to_be_visible()
            expect(granted).to_have_count(0)
            check_accessible(page)
            page.go_back()
            expect(granted).to_be_visible()


def test_what_was_asked_goes_with_its_page(browser: Browser, cluster: LocalCluster) -> None:
    """Back closes the dialog: an operator would take it for a question about the page that is shown then."""
    with playing(cluster) as scene:
        scene.hold("db/migrate", "billing-7")
        with looking(browser, cluster, "locks") as page:
            page.get_by_role("link", name="db/migrate", exact=True).click()
            page.get_by_role("button", name="End the hold of billing-7 on db/migrate").click()
            expect(page.get_by_role("dialog")).to_be_visible()
            page.go_back()
            expect(page.get_by_role("heading", name="Locks")).to_be_visible()
            expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_refusal_is_told_where_one_asked(browser: Browser, cluster: LocalCluster) -> None:
    """The hold ended before the operator did it: the dialog says so, and that nothing has changed."""
    with playing(cluster) as scene:
        hold_id = scene.hold("db/migrate", "billing-7")["hold_id"]
        with looking(browser, cluster, "lock/db%2Fmigrate", expected="409") as page:
            page.get_by_role("button", name="End the hold of billing-7 on db/migrate").click()
            call(cluster, "POST", wire.LOCK_RELEASE, hold_id=hold_id)
            dialog = page.get_by_role("dialog")
            dialog.get_by_label("Reason").fill("it hangs")
            page.keyboard.press("Enter")
            expect(dialog.get_by_role("alert")).to_contain_text("Nothing has changed: ")
            check_accessible(page)
            page.keyboard.press("Escape")
            expect(dialog).to_have_count(0)


def test_what_one_may_not_do_is_not_offered(browser: Browser, known: LocalCluster) -> None:
    """A caller without the right `force` sees holders and queues, and no button that would be refused."""
    who = bearer(TOKENS["ann"])
    call(known, "POST", wire.LOCK_ACQUIRE, who, name="db/migrate", ttl_ms=60_000, owner="billing-7")
    with looking(browser, known, "lock/db%2Fmigrate", expected="401") as page:
        for name, buttons in (("ann", 0), ("ops", 1)):
            page.locator("#token-button").click()
            page.get_by_role("dialog").get_by_label("Token").fill(TOKENS[name])
            page.keyboard.press("Enter")
            expect(page.locator("#who")).to_have_text(name)
            expect(page.get_by_role("table", name="Holders")).to_contain_text("billing-7")
            expect(page.get_by_role("button", name="End the hold of billing-7 on db/migrate")).to_have_count(
                buttons
            )
