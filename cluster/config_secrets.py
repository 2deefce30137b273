"""The secret of a cluster, and the second one that it accepts while one takes the place of the other.

A secret file holds the secret and nothing else; or, while it is being exchanged, two lines (decision 14):

    current: SECRET       what this node proves itself with, and accepts
    next: SECRET          it will be current soon; or `previous:`, it was; accepted, too

Nothing here, and no message, ever shows a secret.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SECRET_BYTES_MIN: Final = 16
"""128 bits, if they are random."""
FILE_BYTES_MAX: Final = 64 << 10
"""Bytes of a secret file; what is longer is another file."""

CURRENT: Final = "current"
STEPS: Final = ("next", "previous")
"""What the other secret is, while there is one."""

_LINE: Final = re.compile(rb"([a-z]+):[ \t]*(.*?)[ \t\r]*")


class SecretsUnreadable(Exception):
    """The content of a secret file is wrong; the message says what is, without the content."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """The secret that a node proves itself with, and the other one that it accepts; `step` says what that is.

    `step` is "next", "previous", or empty if there is no other.
    """

    current: bytes = field(repr=False)
    other: bytes = field(default=b"", repr=False)
    step: str = ""

    @property
    def accepted(self) -> tuple[bytes, ...]:
        """Return all secrets by which a peer may prove itself, the current one first."""
        return (self.current, self.other) if self.other else (self.current,)


def parse(content: bytes) -> Secrets:
    """Read the content of a secret file. Raises SecretsUnreadable."""
    if not content.startswith(f"{CURRENT}:".encode()):
        # The file of a cluster that exchanges nothing: any bytes.
        return Secrets(_checked(content.rstrip(b"\r\n"), "the file"))
    lines = [_LINE.fullmatch(line) for line in content.splitlines() if line.strip()]
    named = {line[1].decode(): line[2] for line in lines if line is not None}
    steps = [step for step in STEPS if step in named]
    if len(lines) != len(named) or set(named) != {CURRENT, *steps} or len(steps) > 1:
        allowed = "'current: SECRET' and 'next: SECRET', or 'previous: SECRET'"
        raise SecretsUnreadable(f"the file must have one secret and nothing else, or two lines: {allowed}")
    current = _checked(named[CURRENT], CURRENT)
    if not steps:
        return Secrets(current)
    other = _checked(named[steps[0]], steps[0])
    if other == current:
        raise SecretsUnreadable(f"'{steps[0]}' is the same secret as '{CURRENT}'")
    return Secrets(current, other, steps[0])


def read(path: Path) -> Secrets:
    """Read a secret file. Raises SecretsUnreadable."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise SecretsUnreadable(f"cannot be read: {error.strerror}") from None
    if len(content) > FILE_BYTES_MAX:
        raise SecretsUnreadable("the file is too long for a secret")
    return parse(content)


def _checked(secret: bytes, where: str) -> bytes:
    if not secret:
        raise SecretsUnreadable(f"{where} is empty")
    if len(secret) < SECRET_BYTES_MIN:
        raise SecretsUnreadable(
            f"{where} has a secret of {len(secret)} bytes: must have {SECRET_BYTES_MIN} bytes or more"
        )
    return secret
