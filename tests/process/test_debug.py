"""`holdfast debug` and `log-level` of a real node: all is there but secrets, wherever one was put."""

import asyncio
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import holdfast
from holdfast import token_lines
from scripts.lib.ports import reserve
from scripts.local_cluster import PROJECT, node_environment
from tests.process.nodes import DEADLINE_S, running, until
from tests.support.certificates import Certificates

pytestmark = pytest.mark.process

SECRET, NEXT = "canary-of-the-current-secret", "canary-of-the-next-secret"
TOKEN = "hft_" + "canary".ljust(43, "c")


def command(tmp_path: Path, port: int, peer: int) -> list[str]:
    """Return how a node is started that has a secret of every kind, and logs all it can."""
    certificates = Certificates(tmp_path / "tls")
    node, files = certificates.node(), certificates.peer_files("n1")
    secret, tokens = tmp_path / "secret", tmp_path / "tokens"
    secret.write_text(f"current: {SECRET}\nnext: {NEXT}\n")
    digest = token_lines.digest(TOKEN.encode()).hex()
    tokens.write_text(f"ops sha256:{digest} read,acquire,force,admin,metrics\n")
    flags = {
        "data-dir": tmp_path / "data", "http": f"127.0.0.1:{port}", "peer": f"127.0.0.1:{peer}",
        "secret-file": secret, "tokens": tokens, "tls-cert": node.cert, "tls-key": node.key,
        "peer-cert": files.cert, "peer-key": files.key, "peer-ca": files.ca, "log-level": "debug",
    }  # fmt: skip
    return [sys.executable, "-m", "http_api", *(f"--{name}={value}" for name, value in flags.items())]


async def test_no_secret_gets_into_the_archive(tmp_path: Path) -> None:
    """Neither one of a setting, nor the id of a hold or a session, even at the level debug."""
    port, peer = reserve(2)
    argv, archive, token = command(tmp_path, port, peer), tmp_path / "a.tar.gz", tmp_path / "token"
    token.write_text(TOKEN)
    ca = tmp_path / "tls" / "ca.pem"
    url, tls = f"https://127.0.0.1:{port}", holdfast.Tls(ca)

    def line(*words: str) -> str:
        """Run the command line, which must succeed, and return what it prints."""
        ended = subprocess.run(
            [sys.executable, "-m", "holdfast", "--nodes", url, *words],
            cwd=PROJECT,
            env=node_environment() | {"HOLDFAST_CA": str(ca), "HOLDFAST_ACCESS_TOKEN_FILE": str(token)},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    with running(argv, tmp_path / "log"):
        async with holdfast.Client(url, tls=tls, token=TOKEN, timeout=DEADLINE_S) as client:

            async def serves() -> bool:
                try:
                    await client.get_lock("a")
                except holdfast.LockError:
                    return False
                return True

            await until(serves, "the node serves")
            hold = await client.acquire("a")
            async with client.session() as session:
                ids = {hold.hold_id, session.session_id}
                await client.acquire("b", session=session)
            await asyncio.to_thread(line, "debug", str(archive))
            assert "n1 logs info and above for" in await asyncio.to_thread(
                line, "log-level", "n1", "info", "--for", "5m"
            )
            assert "n1: logs info and above for" in await asyncio.to_thread(line, "status")
            assert "n1 logs debug and above (it" in await asyncio.to_thread(line, "log-level", "n1", "debug")
            assert "n1: logs" not in await asyncio.to_thread(line, "status")
            await hold.release()
    with tarfile.open(archive) as opened:
        content = {
            member.name: file.read().decode()
            for member in opened.getmembers()
            if (file := opened.extractfile(member)) is not None
        }
    log = (tmp_path / "log").read_text()
    assert "event=log-level-set level=info before=debug for_ms=300000 by=ops" in log
    assert "event=log-level-set level=debug before=info" in log
    assert "event=request" in content["holdfast-debug/n1/log.txt"]
    secrets = [SECRET, NEXT, "canary", TOKEN, token_lines.digest(TOKEN.encode()).hex(), *ids]
    for key in (tmp_path / "tls").glob("*-key.pem"):
        secrets += [line for line in key.read_text().splitlines() if not line.startswith("-----")]
    found = {(name, secret) for name, text in content.items() for secret in secrets if secret in text}
    assert not found


def test_a_missing_directory_is_said_before_a_node_is_asked(tmp_path: Path) -> None:
    """With the name that was given; no node listens here, and that is not what is wrong."""
    (port,) = reserve(1)
    path = tmp_path / "missing" / "a.tar.gz"
    argv = [sys.executable, "-m", "holdfast", "--nodes", f"http://127.0.0.1:{port}", "debug", str(path)]
    ended = subprocess.run(
        argv,
        cwd=PROJECT,
        env=node_environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 2
    assert f"{path}: there is no directory {path.parent}" in ended.stderr
