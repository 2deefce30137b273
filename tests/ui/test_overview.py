"""The overview in a browser: with and without JavaScript, for strangers, and on a node without a leader."""

import pytest
from playwright.sync_api import Browser, expect

from holdfast import wire
from scripts.local_cluster import LocalCluster
from tests.process.nodes import followers
from tests.support.known_cluster import TOKENS
from tests.ui.browsing import LOOKS, Scheme, call, check_accessible, looking

pytestmark = pytest.mark.process


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_everybody_can_use_it(browser: Browser, cluster: LocalCluster, width: int, scheme: Scheme) -> None:
    """In both schemes and on a phone: axe finds nothing, and nothing is wider than the window."""
    with looking(browser, cluster, width=width, scheme=scheme) as page:
        expect(page.locator("#age")).to_contain_text("following")
        check_accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_it_can_be_read_without_javascript(browser: Browser, cluster: LocalCluster) -> None:
    """Nodes, leader, and what the cluster survives are in the page that the node sends."""
    with looking(browser, cluster, has_scripts=False) as page:
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        expect(page.get_by_text("more of 3 nodes")).to_be_visible()
        assert page.get_by_role("row").count() == 4
        expect(page.get_by_role("navigation")).to_be_hidden()


def test_it_follows_what_happens(browser: Browser, cluster: LocalCluster) -> None:
    """A node that ends is unreachable in the page, without a reload, and its obstacle comes with advice."""
    gone = next(node_id for node_id in followers(cluster) if node_id != "n1")
    with looking(browser, cluster) as page:
        row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=gone))
        expect(row).to_contain_text("follower")
        cluster.kill(gone)
        expect(row).to_contain_text("unreachable")
        expect(page.get_by_text("one more failure stops it")).to_be_visible()
        expect(page.get_by_role("heading", name="What is wrong")).to_be_visible()
        check_accessible(page)


def test_a_node_without_a_leader_says_so(browser: Browser, cluster: LocalCluster) -> None:
    """It shows what it has, also its locks, and that this may be old."""
    call(cluster, "POST", wire.LOCK_ACQUIRE, name="db/migrate", owner="billing-7", ttl_ms=2_000)
    for node_id in ("n2", "n3"):
        cluster.kill(node_id)
    with looking(browser, cluster, expected="503") as page:
        expect(page.get_by_text("no leader is known")).to_be_visible()
        expect(page.get_by_role("heading", name="What is wrong")).to_be_visible()
        expect(page.locator("#age")).to_contain_text("no leader heard")
        check_accessible(page)
        page.get_by_role("link", name="Locks", exact=True).click()
        expect(page.get_by_role("link", name="db/migrate")).to_be_visible()
        expect(page.locator("#age")).to_contain_text("no leader heard")


def test_a_stranger_types_a_token(browser: Browser, known: LocalCluster) -> None:
    """A wrong one is refused in words; a right one shows the cluster, and ends with the page."""
    with looking(browser, known, expected="401") as page:
        expect(page.get_by_role("heading", name="This node asks who you are")).to_be_visible()
        check_accessible(page)
        page.get_by_role("button", name="Type a token").click()
        dialog = page.get_by_role("dialog", name="Who are you?")
        check_accessible(page)
        page.keyboard.type("x" * 40)
        page.keyboard.press("Enter")
        expect(dialog.get_by_role("alert")).to_contain_text("no principal has this token")
        dialog.get_by_label("Token").fill(TOKENS["ops"])
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        expect(page.locator("#who")).to_have_text("ops")
        kept = "JSON.stringify([localStorage, sessionStorage, document.cookie, location.href, history.state])"
        assert TOKENS["ops"] not in page.evaluate(kept)
        page.reload()
        expect(page.get_by_role("heading", name="This node asks who you are")).to_be_visible()
