"""The token of a client: where it comes from, to whom it is sent, and that it is shown nowhere."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast import AccessDenied, Client, SyncClient
from holdfast.transport import access
from tests.unit.http_api.serving import serving, token_line

GOOD, OTHER = "hft_good-CANARY-4711-".ljust(47, "g"), "hft_other-CANARY-4711-".ljust(47, "o")
LINES = token_line("worker", GOOD, "read,acquire")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (access.TOKEN_VARIABLE, access.TOKEN_FILE_VARIABLE, access.PLAIN_VARIABLE):
        monkeypatch.delenv(name, raising=False)


async def test_a_client_is_known_by_its_token() -> None:
    """Given, or from a variable; without it, it is told so at once, as with one that nobody has."""
    async with serving(tokens=LINES) as served:
        url = f"http://127.0.0.1:{served.port}"
        async with Client(url, token=GOOD) as client:
            hold = await client.acquire("a", wait=0, renew=False)
            await hold.release()
            async with client.watch() as watching:
                await watching.begin()
        for token in (None, OTHER):
            async with Client(url, token=token) as client:
                with pytest.raises(AccessDenied) as raised:
                    await client.acquire("a", wait=0, renew=False)
                assert raised.value.code == "unauthenticated"
                with pytest.raises(AccessDenied):
                    await anext(client.watch())


async def test_a_right_that_is_missing_is_an_error_of_its_own() -> None:
    """It is raised at once: asking again does not help."""
    async with (
        serving(tokens=token_line("worker", GOOD, "read@a")) as served,
        Client(f"http://127.0.0.1:{served.port}", token=GOOD) as client,
    ):
        with pytest.raises(AccessDenied, match="this needs the right acquire") as raised:
            await client.acquire("a", wait=0, renew=False)
        assert raised.value.code == "forbidden"


async def test_the_environment_says_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A token or a file, not both; what is given as an argument counts first."""
    path = tmp_path / "token"
    path.write_text(f"{GOOD}\n")
    async with serving(tokens=LINES) as served:
        url = f"http://127.0.0.1:{served.port}"
        monkeypatch.setenv(access.TOKEN_VARIABLE, GOOD)
        async with Client(url) as client:
            await client.get_lock("a")
        monkeypatch.setenv(access.TOKEN_FILE_VARIABLE, str(path))
        with pytest.raises(ValueError, match="give only one of the two"):
            Client(url)
        monkeypatch.delenv(access.TOKEN_VARIABLE)
        async with Client(url) as client:
            await client.get_lock("a")
        async with Client(url, token=OTHER) as client:
            with pytest.raises(AccessDenied):
                await client.get_lock("a")


async def test_a_file_is_read_again_when_a_node_does_not_know_the_token(tmp_path: Path) -> None:
    """Once for each refusal: a token is exchanged under a client that goes on."""
    path = tmp_path / "token"
    path.write_text(OTHER)
    async with (
        serving(tokens=LINES) as served,
        Client(f"http://127.0.0.1:{served.port}", token_file=path) as client,
    ):
        with pytest.raises(AccessDenied):
            await client.get_lock("a")
        path.write_text(GOOD)
        await client.get_lock("a")
        served.know(token_line("worker", OTHER, "read,acquire"))
        path.write_text(OTHER)
        async with client.watch() as watching:
            await watching.begin()
        path.write_text("")
        served.know(LINES)
        with pytest.raises(AccessDenied):
            await client.get_lock("a")


@pytest.mark.parametrize("make", [Client, SyncClient])
@pytest.mark.parametrize(
    ("url", "is_sent"),
    [
        ("http://127.0.0.1:7700", True),
        ("http://[::1]:7700", True),
        ("http://localhost:7700", True),
        ("https://n1.example.com:7700", True),
        ("http://n1:7700", False),
        ("http://10.0.0.1:7700", False),
        ("http://localhost.example.com:7700", False),
        ("http://127.0.0.1.example.com:7700", False),
        ("http://127.0.0.1@10.0.0.1:7700", False),
    ],
)
def test_a_token_is_not_sent_in_the_open(
    make: Callable[..., object], url: str, *, is_sent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without TLS only to this machine, unless somebody says that nobody else is on the path."""
    urls = ["http://127.0.0.1:7700", url]
    if is_sent:
        make(urls, token=GOOD)
        return
    with pytest.raises(ValueError, match="a token is sent only over https://") as raised:
        make(urls, token=GOOD)
    assert "CANARY" not in str(raised.value)
    make(urls)
    make(urls, token=GOOD, insecure_plain_token=True)
    monkeypatch.setenv(access.PLAIN_VARIABLE, "1")
    make(urls, token=GOOD)


@pytest.mark.parametrize("token", ["", "short", GOOD + " ", "é" * 40, "x" * 257, f"{GOOD}\r\nHost: evil"])
def test_what_cannot_be_a_token_is_refused(token: str, tmp_path: Path) -> None:
    """Before anything is sent, and without showing it."""
    with pytest.raises(ValueError, match=r"token: a token has 32 to 256 visible ASCII") as raised:
        Client(token=token)
    assert "CANARY" not in str(raised.value)
    path = tmp_path / "token"
    path.write_text(token[1:] + "\x00")
    with pytest.raises(ValueError, match=r"token_file: .* a token has 32 to 256"):
        Client(token_file=path)
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        Client(token_file=tmp_path / "none")


async def test_a_client_shows_no_token(caplog: pytest.LogCaptureFixture) -> None:
    """Neither in its repr and that of its parts, nor in errors and logs."""
    caplog.set_level(logging.DEBUG)
    async with serving(tokens=LINES) as served:
        client = Client(f"http://127.0.0.1:{served.port}", token=OTHER)
        texts = [repr(part) for part in (client, client._transport, client._transport.access)]
        with pytest.raises(holdfast.Refused) as raised:
            await client.get_lock("a")
        await client.close()
        texts += [repr(raised.value), str(raised.value.problem), caplog.text]
    assert "CANARY" not in "".join(texts)
