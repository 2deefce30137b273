"""Web pages of others, and names that are not a node's."""

from pathlib import Path

import pytest

from holdfast.transport import tls
from http_api.server import tls_context
from http_api.server.callers import Callers
from http_api.server.tls_gate import TlsDoor
from tests.support.certificates import Certificates
from tests.unit.http_api.serving import Served, serving

ACQUIRE = b'{"name":"a","ttl_ms":60000}'
FOLLOWED = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


async def ask(
    served: Served, headers: dict[str, str], *, host: str = "localhost:7700", method: str = "POST"
) -> tuple[int, bytes]:
    """Send an acquire (or a read) as `curl` or a page does it; return the status and all that came."""
    path = "/v1/locks/acquire" if method == "POST" else "/v1/locks/a"
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    lines += f"Host: {host}\r\n" if host else ""
    length = len(ACQUIRE) if method == "POST" else 0
    head = f"{method} {path} HTTP/1.1\r\n{lines}Content-Length: {length}\r\nConnection: close\r\n\r\n"
    got = await served.raw(head.encode() + (ACQUIRE if length else b""))
    return int(got.split(b" ")[1]), got


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "https://evil.example", "Content-Type": "text/plain"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://localhost:3000"},
        {"Origin": "http://localhost"},
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "http://localhost:7700", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "https://localhost:7700", "Sec-Fetch-Site": "same-site"},
        {"Origin": "http://localhost:7700", **FOLLOWED},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        FOLLOWED,
    ],
)
async def test_a_page_of_somebody_else_changes_nothing(headers: dict[str, str]) -> None:
    """A browser says for whom it asks, also with a body that has no type; the call has no effect."""
    async with serving() as served:
        status, got = await ask(served, headers)
        assert status == 403
        assert b'"code":"forbidden-origin","outcome":"not-applied"' in got
        assert not served.node.machine.lock("a").holders


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ],
)
async def test_a_page_of_somebody_else_reads_nothing(headers: dict[str, str]) -> None:
    """Neither by a script nor as a part of itself."""
    async with serving() as served:
        assert (await ask(served, headers, method="GET"))[0] == 403


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/json"},
        {"Origin": "http://localhost:7700"},
        {"Origin": "https://LOCALHOST:7700", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "same-origin"},
    ],
)
async def test_programs_and_pages_of_the_node_may_call(headers: dict[str, str]) -> None:
    """So may curl with a type or without one, and a person who types the address."""
    async with serving() as served:
        assert (await ask(served, headers))[0] == 200


async def test_over_tls_only_a_secure_page_is_the_nodes_own(tmp_path: Path) -> None:
    """Who is on the path can write the page of http://HOST: it must not use the browser's certificate."""
    certificates = Certificates(tmp_path)
    door = TlsDoor(tls_context.load(certificates.files(wants_clients=True)).context)
    trust = tls.make_context(certificates.tls(is_known=True))
    plain, secure = "http://localhost:7700", "https://localhost:7700"
    listed = "http://admin.example.com"
    async with serving(callers=Callers(origins=[listed]), tls=door, trust=trust) as served:
        for headers in (
            {"Origin": plain},
            {"Origin": plain, "Sec-Fetch-Site": "cross-site"},
            {"Origin": plain, "Sec-Fetch-Site": "same-origin"},
            {"Origin": secure, "Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "cross-site"},
        ):
            status, got = await ask(served, headers)
            assert status == 403
            assert b'"code":"forbidden-origin","outcome":"not-applied"' in got
        assert not served.node.machine.lock("a").holders
        for headers in (
            {},
            {"Origin": secure},
            {"Origin": secure, "Sec-Fetch-Site": "same-origin"},
            {"Origin": listed, "Sec-Fetch-Site": "cross-site"},
        ):
            assert (await ask(served, headers, method="GET"))[0] == 200
        assert (await ask(served, {"Origin": secure, "Sec-Fetch-Site": "same-origin"}))[0] == 200
    async with serving(callers=Callers(origins=["*"]), tls=door, trust=trust) as served:
        assert (await ask(served, {"Origin": plain, "Sec-Fetch-Site": "cross-site"}))[0] == 200


async def test_a_person_may_follow_a_link() -> None:
    """A runbook may lead to a node: the person sees the answer, and the page with the link does not."""
    async with serving() as served:
        assert (await ask(served, FOLLOWED, method="GET"))[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:7700",
        "EVIL.example.:7700",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.1.nip.io",
        "locks.example.com.evil.example",
        "evil-locks.example.com",
        "x.locks.example.com",
        "@evil.example",
        "localhost@evil.example",
        "localhost/evil.example",
        "[::1].evil.example",
        "[evil.example]",
        ".",
    ],
)
async def test_a_name_that_somebody_else_may_own_is_refused(host: str) -> None:
    """With such a name a page would be the node's own, as far as its browser knows."""
    async with serving(callers=Callers(["locks.example.com"])) as served:
        status, got = await ask(
            served, {"Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}, host=host
        )
        assert status in (400, 403)
        assert status == 400 or b'"code":"forbidden-host","outcome":"not-applied"' in got
        assert not served.node.machine.lock("a").holders
        assert (await ask(served, {}, host=host, method="GET"))[0] in (400, 403)


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "LocalHost:7700", "localhost.", "n1.localhost:80",
        "127.0.0.1:7700", "10.1.2.3", "127.1:7700", "[::1]:7700", "[2001:db8::1]",
        "n1:7700", "holdfast", "n1.:7700",
        "locks.example.com", "Locks.Example.COM:443", "locks.example.com.:7700",
        "cluster.local", "n1.holdfast.svc.cluster.local:7700",
    ],
)  # fmt: skip
async def test_names_that_nobody_else_can_own_pass(host: str) -> None:
    """Addresses, names without a dot as Compose gives them, and what the node was told."""
    async with serving(callers=Callers(["Locks.example.com", ".cluster.local"])) as served:
        for method in ("POST", "GET"):
            assert (await ask(served, {}, host=host, method=method))[0] == 200


async def test_an_absolute_target_names_its_host_itself() -> None:
    """A request for a proxy says twice whom it means; both have to be this node."""
    async with serving() as served:
        for target, status in (("http://n1:7700/livez", 200), ("http://evil.example/livez", 403)):
            got = await served.raw(f"GET {target} HTTP/1.1\r\nHost: n1\r\nConnection: close\r\n\r\n".encode())
            assert int(got.split(b" ")[1]) == status


async def test_checks_can_be_turned_off() -> None:
    """Both take `*`; origins can be named one by one."""
    named = Callers(origins=["https://Admin.example.com"])
    async with serving(callers=named) as served:
        assert (await ask(served, {"Origin": "https://admin.example.com"}))[0] == 200
        assert (await ask(served, {"Origin": "https://admin.example.com:8443"}))[0] == 403
        assert (await ask(served, {"Origin": "http://admin.example.com"}))[0] == 403
    async with serving(callers=Callers(["*"], ["*"])) as served:
        assert (await ask(served, {"Origin": "https://evil.example"}, host="evil.example"))[0] == 200


async def test_many_names_do_not_fill_the_memory() -> None:
    """What is remembered of good names has a bound."""
    callers = Callers(["*"])
    async with serving(callers=callers) as served:
        for number in range(1100):
            callers.check_host(f"{number}.example")
        assert len(callers._good) <= 1000
        assert (await ask(served, {}, host="n1"))[0] == 200
