"""The page for people, as a node serves it: what it says to whom, and what a browser may do with it."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from cluster.observing.obstacles import Obstacle
from cluster.observing.status import ClusterStatus, OwnStatus, PeerStatus
from http_api.ui import overview
from http_api.ui.assets import assets
from tests.unit.http_api.serving import bearer, serving, token_line

OPS, READER = "o" * 40, "r" * 40
TOKENS = token_line("ops", OPS, "read,force,admin,metrics") + token_line(
    "reader", READER, "read@db force@db/own"
)
STATUS = ClusterStatus(
    "n1", "n2", 7, 1234, 12, ready=True,
    nodes=(
        PeerStatus("n1", "http://10.0.0.1:7700", "10.0.0.1:7800", "follower", 1230, "1.2.3", 4),
        PeerStatus("n2", "http://10.0.0.2:7700", "10.0.0.2:7800", "leader", 1234, "1.2.3", 4),
        PeerStatus("n3", "", "10.0.0.3:7800", "unreachable", 0),
    ),
    obstacles=(Obstacle("peer-unreachable", "n3", 61_000, "n3 <b>does not</b> answer", "look at n3"),),
    own=OwnStatus(90_061_000, 512, 2048, 3 << 20, 5 << 30, 1 << 20, 3_600_000, 3, 100),
)  # fmt: skip


def directives(headers: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the content security policy, by directive."""
    parts = [part.split() for part in headers["Content-Security-Policy"].split(";")]
    return {part[0]: part[1:] for part in parts}


async def test_everybody_sees_the_cluster_of_a_node_without_tokens() -> None:
    """The page has the node, its leader and its use of memory, ready to be read."""
    async with serving() as server:
        got = await server.call("GET", "/ui")
        text = got.body.decode()
        assert got.status == 200
        assert "<h1>Overview</h1>" in text
        assert "http://127.0.0.1:1/ui" not in text, "the node leads to itself"
        assert "127.0.0.1:2" in text


async def test_the_address_of_a_node_leads_on() -> None:
    """A browser gets to the page; a program, or curl, is told what there is. Neither needs a token."""
    async with serving() as server:
        server.know(TOKENS)
        headers = {"Accept": "text/html,*/*;q=0.8"}
        browser = await server.call("GET", "/", headers=headers, allow_redirects=False)
        assert (browser.status, browser.headers["Location"]) == (307, "ui")
        assert "asks who you are" in (await server.call("GET", "/", headers=headers)).body.decode()
        other = await server.call("GET", "/")
        assert (other.status, other.headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
        assert set(re.findall(r"/[a-z]\S*", other.body.decode())) >= {
            "/ui",
            "/livez,",
            "/v1/...",
            "/openapi.json",
        }
        assert "docs/http-api.md" in other.body.decode()
        assert (await server.call("HEAD", "/")).status == 200


async def test_a_stranger_sees_no_more_than_probes_tell() -> None:
    """Without a token the page says whether the node is ready, and asks; with one it is the overview."""
    async with serving() as server:
        server.know(TOKENS)
        server.node.told_troubles = ("the <disk> is slow",)
        text = (await server.call("GET", "/ui")).body.decode()
        assert "asks who you are" in text
        assert "the &lt;disk&gt; is slow" in text
        assert not {"n1", "127.0.0.1:2", "Overview"} & set(re.split(r"[<>\s]", text))
        known = (await server.call("GET", "/ui", headers=bearer(OPS))).body.decode()
        assert "<h1>Overview</h1>" in known
        assert "Grants a second" in known
        wrong = await server.call("GET", "/ui", headers=bearer("x" * 40))
        assert (wrong.status, wrong.body["code"]) == (401, "unauthenticated")


async def test_a_stranger_who_looks_counts_as_no_refusal() -> None:
    """A person who opens the page before typing a token is not in the metrics as an unknown caller."""
    async with serving() as server:
        server.know(TOKENS)
        await server.call("GET", "/ui")
        assert not [sample for sample in server.authentication.samples() if "unauthenticated" in sample[0]]


async def test_rates_are_for_those_who_may_read_metrics() -> None:
    """A caller without that right sees the overview without the charts."""
    async with serving() as server:
        server.know(TOKENS)
        text = (await server.call("GET", "/ui", headers=bearer(READER))).body.decode()
        assert "<h1>Overview</h1>" in text
        assert "Grants a second" not in text


@pytest.mark.parametrize("path", ["/ui", "/ui/app.js", "/ui/page.css", "/ui/icon.svg"])
async def test_nothing_comes_from_elsewhere_and_nothing_is_inline(path: str) -> None:
    """The policy allows what this node serves, and no more; types are not guessed."""
    async with serving() as server:
        headers = (await server.call("GET", path)).headers
        policy = directives(headers)
        assert policy.pop("default-src") == policy.pop("base-uri") == ["'none'"]
        assert policy.pop("form-action") == policy.pop("frame-ancestors") == ["'none'"]
        assert policy == {f"{kind}-src": ["'self'"] for kind in ("script", "style", "img", "connect")}
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"


async def test_the_page_needs_nothing_that_the_policy_forbids() -> None:
    """Neither the page nor its program has styles, scripts or handlers inline, or an address of others."""
    async with serving() as server:
        page = (await server.call("GET", "/ui")).body.decode()
    assert not re.search(r"<style|style=|\son\w+=|<script(?![^>]*src=)", page)
    assert not [match for match in re.findall(r"https?://[^\"\s]+", page) if "127.0.0.1" not in match]
    for path, asset in assets().items():
        text = asset.body.decode().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text), (
            path
        )
        assert not re.search(r"localStorage|sessionStorage|indexedDB|document\.cookie", text), path


async def test_what_is_private_is_not_kept_and_files_are_asked_for_again() -> None:
    """The page is stored nowhere, and its files are those of the node's own release."""
    async with serving() as server:
        assert (await server.call("GET", "/ui")).headers["Cache-Control"] == "no-store"
        assert (await server.call("GET", "/ui/caller")).headers["Cache-Control"] == "no-store"
        program = (await server.call("GET", "/ui/app.js")).headers
        assert program["Cache-Control"] == "no-cache"
        assert program["Content-Type"] == "text/javascript; charset=utf-8"


@pytest.mark.parametrize(
    "path", ["/ui/none.js", "/ui/../app.js", "/ui/..%2froutes.py", "/ui/static/app.js", "/ui/pages"]
)
async def test_other_files_are_not_there(path: str) -> None:
    """Only the files of the page are served."""
    async with serving() as server:
        answer = await server.raw(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        )
        assert answer.startswith(b"HTTP/1.1 404 ")


async def test_a_slash_behind_the_address_leads_to_it() -> None:
    """A person may type it."""
    async with serving() as server:
        got = await server.call("GET", "/ui/", allow_redirects=False)
        assert (got.status, got.headers["Location"]) == (308, "../ui")


async def test_a_caller_hears_its_rights() -> None:
    """By prefix, so that the page shows the actions that they allow; a stranger hears nothing."""
    async with serving() as server:
        everything = ["acquire", "admin", "force", "metrics", "read"]
        assert (await server.call("GET", "/ui/caller")).body == {
            "node_id": "n1",
            "principal": "",
            "rights": {"": everything},
        }
        server.know(TOKENS)
        assert (await server.call("GET", "/ui/caller")).status == 401
        got = await server.call("GET", "/ui/caller", headers=bearer(READER))
        assert got.body["principal"] == "reader"
        assert got.body["rights"] == {"db": ["read"], "db/own": ["force"]}


class Showing:
    """A node and its caller, as far as the overview looks at them."""

    def __init__(self) -> None:
        self.node: Any = self
        self.machine: Any = self
        self.next_token = 43
        self.is_shutting_down = False

    def troubles(self) -> tuple[str, ...]:
        """Return none."""
        return ()


def drawn(status: ClusterStatus, rates: list[tuple[float, float, float]] | None = None) -> str:
    """Return the overview of a status, its white space reduced."""
    gateway: Any = Showing()
    return re.sub(r"\s+", " ", overview.whole(gateway, status, rates))


def test_the_overview_tells_what_is_wrong() -> None:
    """Obstacles have their advice, other nodes their pages; what a node says stays text."""
    text = drawn(STATUS)
    assert "n3 &lt;b&gt;does not&lt;/b&gt; answer" in text
    assert "for 1 min 1 s" in text
    assert '<p class="advice">look at n3</p>' in text
    assert '<a href="http://10.0.0.2:7700/ui" rel="noreferrer">n2</a>' in text
    assert "512 B of 2.0 KiB" in text
    assert "3.0 MiB, 5.0 GiB free" in text
    assert "1.0 MiB, 1 h 0 min old" in text
    assert "up 1 d 1 h" in text
    assert "one more failure stops it" in text
    assert '<td class="num">4</td>' in text, "n1 is four entries behind"


def test_the_overview_of_a_node_without_a_leader_says_so() -> None:
    """It survives nothing, and what is shown may be old."""
    text = drawn(msgspec.structs.replace(STATUS, leader=None, lag_ms=None, ready=False))
    assert "no leader is known" in text
    assert "what is shown may be old" in text
    assert 'data-lag="" ' in text


def test_rates_are_drawn_as_lines() -> None:
    """The newest value is told and the highest; a gap in the measurements is a gap in the line."""
    text = drawn(STATUS, [(590.0, 2.0, 0.0), (585.0, 4.0, 0.0), (5.0, 1.5, 0.0), (0.0, 12.0, 0.25)])
    assert 'aria-label="Grants a second in the last ten minutes: now 12, at most 12"' in text
    assert "now 0.2, at most 0.2" in text
    assert 'class="line" d="M10.0 54.0 L15.0 44.0 M595.0 56.5 L600.0 4.0"' in text


@pytest.mark.parametrize(
    ("states", "survives"),
    [
        (("leader", "follower", "follower"), 1),
        (("leader", "follower", "unreachable"), 0),
        (("leader", "follower", "follower", "joining"), 1),
        (("leader", "follower", "follower", "starting", "follower"), 1),
        (("leader",), 0),
    ],
)
def test_what_a_cluster_survives(states: tuple[str, ...], survives: int) -> None:
    """As many voters as may fail while a majority is left; nodes that join do not count."""
    nodes = tuple(PeerStatus(f"n{i}", "", "", state, 1) for i, state in enumerate(states))
    assert msgspec.structs.replace(STATUS, nodes=nodes).survives == survives


def test_without_a_leader_it_survives_nothing() -> None:
    """Not even zero failures: it does not serve."""
    assert msgspec.structs.replace(STATUS, leader=None).survives is None
