"""The lab's side of the switch: ends with addresses, sockets in them, and rules for the links between."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import msgspec

from lab.chaos.netns.links import Rule
from lab.chaos.netns.namespaces import TUN, socket_in
from lab.chaos.netns.switch import MESSAGE_BYTES_MAX, Answer, Change, Clear, Count, Message, Open
from lab.chaos.targets.target import LabFailure

SUBNET: Final = "10.77.0"
"""Seen in the lab's own namespaces only, so that it does not matter who else uses it."""
ANSWER_S: Final = 20.0
"""How long the switch may take to answer, in seconds."""
END_S: Final = 5.0
FDS_MAX: Final = 64

ROOT: Final = Path(__file__).resolve().parents[3]

Links = Iterable[tuple[str, str]]
"""Ways from one end to another: pairs of names."""


class Passed(NamedTuple):
    """How many packets a link has got, and how many of them it has dropped."""

    sent: int
    dropped: int


def missing() -> str:
    """Return what this machine lacks for such a network, or nothing."""
    if not sys.platform.startswith("linux"):
        return "network namespaces need Linux"
    if os.geteuid() != 0:
        return "network namespaces need root: run it with sudo"
    if not Path(TUN).exists():
        return f"there is no {TUN}: load the kernel's module `tun`, or give the container that device"
    if shutil.which("nsenter") is None:
        return "there is no `nsenter`: install util-linux"
    return ""


class Network:
    """Ends that reach each other only by the switch. May be used from several threads.

    The namespaces have no names. They and the switch go when this process ends, however it ends; what was
    started inside does not, and needs a guard (scripts/lib/guardian.py).
    """

    def __init__(self, names: Sequence[str], *, seed: int = 0) -> None:
        """Build a network with these ends. Raises LabFailure."""
        if reason := missing():
            raise LabFailure(reason)
        self.addresses: Mapping[str, str] = {name: f"{SUBNET}.{i}" for i, name in enumerate(names, 1)}
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(ANSWER_S)
        self._namespaces: dict[str, int] = {}
        with theirs:
            # In a session of its own: Ctrl-C ends the lab, which still has to ask its nodes.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "lab.chaos.netns.switch", str(theirs.fileno())],
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        try:
            self._ask(Open(addresses=dict(self.addresses), seed=seed))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take it down; processes inside are left without a network. Idempotent."""
        self._control.close()
        for namespace in self._namespaces.values():
            os.close(namespace)
        self._namespaces = {}
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    # -- what lives in it -----------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The process of the switch."""
        return self._process.pid

    def enter(self, name: str) -> list[str]:
        """Return the words that start a command at an end; it replaces them, in the same process."""
        return ["nsenter", f"--net=/proc/{os.getpid()}/fd/{self._namespaces[name]}", "--"]

    def socket(
        self, name: str, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM, protocol: int = 0
    ) -> socket.socket:
        """Return a new socket at an end. Raises OSError."""
        return socket_in(self._namespaces[name], family, kind, protocol)

    # -- what happens to packets ----------------------------------------------------------------------------

    def change(self, key: str, links: Links, rule: Rule) -> None:
        """Let links obey a rule until `clear(key)`, beside those of other keys; replaces an older one.

        It holds when this returns. Raises LabFailure.
        """
        self._ask(Change(key=key, links=list(links), rule=rule))

    def clear(self, key: str = "") -> None:
        """End the rules of a key, or all of them. Idempotent. Raises LabFailure."""
        self._ask(Clear(key=key))

    def counts(self) -> dict[tuple[str, str], Passed]:
        """Return what each link has passed so far. Raises LabFailure."""
        return {(source, to): Passed(*rest) for source, to, *rest in self._ask(Count()).counts}

    def _ask(self, message: Message) -> Answer:
        """Tell the switch something; return its answer. Takes the namespaces if it sends them."""
        with self._lock:
            try:
                self._control.send(msgspec.json.encode(message))
                data, descriptors, _, _ = socket.recv_fds(
                    self._control, MESSAGE_BYTES_MAX, FDS_MAX, socket.MSG_CMSG_CLOEXEC
                )
            except OSError as error:
                raise LabFailure(f"the packet switch does not answer: {error}") from error
        if descriptors:
            self._namespaces = dict(zip(self.addresses, descriptors, strict=True))
        if not data:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_S)
            raise LabFailure(f"the packet switch has ended (exit code {self._process.returncode})")
        answer = msgspec.json.decode(data, type=Answer)
        if answer.failure:
            raise LabFailure(answer.failure)
        return answer


def between(ones: Iterable[str], others: Iterable[str]) -> list[tuple[str, str]]:
    """Return the links in both directions between two groups."""
    others = list(others)
    return [pair for one in ones for other in others for pair in ((one, other), (other, one))]
