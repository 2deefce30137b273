"""`holdfast cluster rotate-secret`: exchange the cluster's secret while the cluster runs.

The secret lives in files beside the nodes, and travels in no request. The command changes the files that it
is given, lets the operator's own means carry them to other machines, and asks the nodes how far they are:

    SECRET                              everybody has the old one
    current: OLD  next: NEW             everybody accepts both, and proves itself with the old one
    current: NEW  previous: OLD         everybody accepts both, and proves itself with the new one
    NEW                                 the old one opens nothing any more

Each step begins when all nodes say that they have taken the one before. Files say how far an exchange is, so
the command can be repeated, and goes on where it was.
"""

import argparse
import asyncio
import os
import re
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from holdfast import wire
from holdfast.cli.inspector import Inspector
from holdfast.cli.printing import TABLE, print_lines, print_next
from holdfast.operations import exchange
from holdfast.operations.exchange import Attempt
from holdfast.operations.sending import NoAnswer, Sending
from holdfast.transport.transport import Transport
from holdfast.values.clock import now_s
from holdfast.values.errors import InvalidRequest, LockError, Unavailable, refusal
from holdfast.values.whole_file import written

WAIT_MS: Final = 300_000
"""Milliseconds that the nodes may take for each step, unless the command line says otherwise."""
POLL_S: Final = 0.5
ASK_S: Final = 3.0
"""Seconds that a node may take to answer."""
STUCK: Final = "rotation-incomplete"
"""The code of our own failure: not all nodes took a step in time."""

_UNAUTHENTICATED, _FORBIDDEN = 401, 403

_TWO: Final = re.compile(rb"current:[ \t]*(\S+)[ \t\r\n]+(next|previous):[ \t]*(\S+)\s*")
_METRIC: Final = re.compile(
    r'^holdfast_secret_(step|agreed|links_behind)(?:\{\w+="([^"]*)"\})? (\S+)$', re.MULTILINE
)
_STEP_NAMES: Final = {
    "next": "all nodes accept the new secret, too",
    "previous": "all nodes use the new secret",
    "": "all nodes refuse the old secret",
}


class Phase(NamedTuple):
    """What the files say: `step` is that of `other`, as the node's files name it; empty if there is none."""

    current: bytes
    other: bytes = b""
    step: str = ""

    def __repr__(self) -> str:
        """Return it without secrets."""
        return f"Phase({self.step!r})"

    @property
    def content(self) -> bytes:
        """Return what stands in the file."""
        if not self.step:
            return self.current + b"\n"
        return b"current: %s\n%s: %s\n" % (self.current, self.step.encode(), self.other)


def phase_of(content: bytes) -> Phase:
    """Read a secret file. Raises InvalidRequest."""
    two = _TWO.fullmatch(content)
    if two is not None:
        return Phase(two[1], two[3], two[2].decode())
    secret = content.rstrip(b"\r\n")
    if not secret or content.startswith(b"current:"):
        raise _wrong("a secret file is empty, or its lines are not a step of an exchange")
    if not re.fullmatch(rb"[\x21-\x7e]+", secret):
        raise _wrong(
            "the secret has unprintable characters, and does not fit into a line: exchange it by stopping"
            " all nodes once"
        )
    return Phase(secret)


def after(phase: Phase, new: bytes) -> Phase:
    """Return the next step; `new` is the secret that an exchange begins with."""
    match phase.step:
        case "":
            return Phase(phase.current, new, "next")
        case "next":
            return Phase(phase.other, phase.current, "previous")
        case _:
            return Phase(phase.current)


def furthest(phases: Sequence[Phase]) -> Phase:
    """Return the step that some of the files have, when it was interrupted between two of them.

    Raises InvalidRequest if they do not belong to one exchange.
    """
    (first, *others) = found = list(dict.fromkeys(phases))
    if not others:
        return first
    if len(found) == 2:  # noqa: PLR2004 - one step and the one before it
        for before, behind in (found, found[::-1]):
            if after(before, behind.other) == behind:
                return behind
    raise _wrong("the files have different secrets: they must belong to one cluster")


def write(path: Path, phase: Phase) -> None:
    """Replace a secret file in one move, with the owner and the rights that it had. Raises OSError."""
    path = path.resolve()
    old = path.stat()
    with written(path, stat.S_IMODE(old.st_mode)) as file:
        file.write(phase.content)
        if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(file.fileno(), old.st_uid, old.st_gid)


async def run(client: Inspector, arguments: argparse.Namespace) -> int:
    """Take all steps that are left. Raises LockError."""
    paths = [Path(name) for name in arguments.files]
    command, wait_ms = arguments.carry, arguments.wait
    try:
        present = [phase_of(path.read_bytes()) for path in paths]
        phase = furthest(present)
        await _take(client, paths, Phase(phase.current) if not phase.step else phase, command, wait_ms)
        while True:
            phase = after(phase, secrets.token_hex(32).encode())
            await _take(client, paths, phase, command, wait_ms)
            if not phase.step:
                print_lines(["done: the secret was exchanged"])
                return 0
    except OSError as error:
        raise _wrong(f"{error.filename}: {error.strerror}") from None


async def _take(client: Inspector, paths: Sequence[Path], phase: Phase, command: str, wait_ms: int) -> None:
    """Bring all files to a step, carry them to the nodes, wait until all nodes have taken it."""
    for path in paths:
        if path.read_bytes().rstrip() != phase.content.rstrip():
            write(path, phase)
    if command:
        await _carry(command)
    deadline_s = now_s() + wait_ms / 1000
    told = ""
    while (missing := await _missing(client, phase.step)) != "":
        if missing != told:
            print_next(None, f"waiting: {missing}", TABLE)
            told = missing
        if now_s() >= deadline_s:
            raise Unavailable(f"not within {wait_ms / 1000:.0f} s: {missing}", STUCK)
        await asyncio.sleep(POLL_S)
    print_next(None, _STEP_NAMES[phase.step], TABLE)


async def _carry(command: str) -> None:
    """Run what carries the files to other machines. Raises Unavailable when it fails."""
    process = await asyncio.create_subprocess_shell(command)
    code = await process.wait()
    if code != 0:
        raise Unavailable(f"the command that carries the files ended with code {code}: {command}", STUCK)


async def _missing(client: Inspector, step: str) -> str:
    """Return what a step still waits for, in words; empty if all nodes have taken it."""
    try:
        nodes = (await client.cluster()).nodes
    except LockError as error:
        return f"no node answers ({error})"
    transport = client._transport  # noqa: SLF001 - one package
    said = await asyncio.gather(*(_ask(transport, node.http) for node in nodes))
    silent = [node.id for node, values in zip(nodes, said, strict=True) if values is None]
    if silent:
        return f"{', '.join(silent)} does not answer: start it, or remove it from the cluster"
    for node, values in zip(nodes, said, strict=True):
        assert values is not None, "those were found"
        if ("step", "next") not in values:
            return f"{node.id} runs a release that cannot exchange its secret while it runs: upgrade it"
        if {name: values["step", name] == 1 for name in ("next", "previous")} != {
            name: name == step for name in ("next", "previous")
        }:
            return f"{node.id} has not read its secret file"
        others = [other.id for other in nodes if other.id != node.id]
        apart = [other for other in others if values.get(("agreed", other)) != 1]
        if apart:
            return f"{node.id} and {', '.join(apart)} are not connected, or their secrets differ"
        if values.get(("links_behind", "")) != 0:
            return f"{node.id} renews its links"
    return ""


async def _ask(transport: Transport, url: str) -> dict[tuple[str, str], float] | None:
    """Return what a node says of its secrets, None if it does not answer. Raises AccessDenied."""
    if not url:
        return None
    if transport.access is not None:
        transport.access.check(url)
    attempt = Attempt(node=0, method="GET", path=wire.METRICS, body=b"", headers={}, give_up_s=ASK_S)
    try:
        status, body = await transport.connections.send(url, attempt, Sending())
    except NoAnswer:
        return None
    if status in (_UNAUTHENTICATED, _FORBIDDEN):
        code, detail, _, document = exchange.judge(status, body)
        raise refusal(code, f"{url}: {detail}", document)
    return {
        (name, label): float(value) for name, label, value in _METRIC.findall(body.decode("utf-8", "replace"))
    }


def _wrong(detail: str) -> InvalidRequest:
    return InvalidRequest("invalid-request", detail)
