"""The tokens file of a running node: read again when it changes, and when an operator asks for it.

A file that changes is read when it has been the same for two looks: half of one could name some of its
principals, and not the others. What cannot be used changes nothing: the node goes on with those that it
knows, and says so.
"""

import asyncio
import logging
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cluster.config import NodeConfig
from cluster.errors import ConfigError
from cluster.file_watch import FileWatch, Signature, signature
from cluster.observing.samples import Sample, gauge
from holdfast import token_lines
from holdfast.token_lines import Line, LinesWrong
from http_api.server.authentication import Authentication, KnownPrincipals
from lockapi.shut_out import ShutOut

LOOK_S: Final = 1.0
"""Seconds between two looks at the file."""
_NAMED_MAX: Final = 5
"""Principals that one line names, at most."""

logger = logging.getLogger("http_api")


class TokensUnusable(Exception):
    """The file cannot be used: the message says why, and shows nothing of it that could be secret."""


class TokensWatch(FileWatch):
    """Keeps the principals of a server what a file says."""

    def __init__(self, path: Path, *, has_client_certificates: bool) -> None:
        """Read the file for the first time. Raises TokensUnusable."""
        super().__init__("tokens")
        self._path = path
        self._has_client_certificates = has_client_certificates
        self._read_last = self._seen = signature(path)
        self._lines = read(path)
        self._authentication: Authentication | None = None
        self._shut_out: ShutOut | None = None
        self._refused = ""

    @property
    def interval_s(self) -> float:
        """Return the seconds between two looks."""
        return LOOK_S

    def serve(self, authentication: Authentication) -> None:
        """Let `authentication` know the principals, now and from now on whenever they change."""
        self._authentication = authentication
        authentication.principals = KnownPrincipals(authentication.gateway, self._lines)
        self._shut_out = ShutOut(authentication.gateway)
        self._shut_out.follow(self._lines)
        self._tell(self._lines)

    def look(self, *, is_asked: bool = False) -> None:
        """Read the file if it has changed and rests since the last look, or if somebody asks for it."""
        if self._is_due(is_asked=is_asked):
            self._take(self._read(), is_asked=is_asked)

    async def look_aside(self, *, is_asked: bool) -> None:
        """Read the file in a thread: many lines take long, and the node has other things to do.

        Then end the waits of whoever is not let in any more.
        """
        if self._is_due(is_asked=is_asked):
            self._take(await asyncio.to_thread(self._read), is_asked=is_asked)
        assert self._shut_out is not None, "a watch begins when there is something to serve"
        await self._shut_out.look(time.time())

    def _is_due(self, *, is_asked: bool) -> bool:
        found: Signature = signature(self._path)
        is_due = is_asked or found == self._seen != self._read_last
        self._seen = found
        if is_due:
            self._read_last = found
        return is_due

    def _read(self) -> tuple[tuple[Line, ...], KnownPrincipals] | TokensUnusable:
        """Return what the file says, or why it cannot be used."""
        assert self._authentication is not None, "a watch begins when there is something to serve"
        try:
            lines = read(self._path)
        except TokensUnusable as error:
            return error
        return lines, KnownPrincipals(self._authentication.gateway, lines)

    def _take(
        self, found: tuple[tuple[Line, ...], KnownPrincipals] | TokensUnusable, *, is_asked: bool
    ) -> None:
        """Let what was read be in force, if it can be used."""
        if isinstance(found, TokensUnusable):
            if is_asked or str(found) != self._refused:
                reason = f"{found}; the present principals stay in force"
                logger.error("event=tokens-not-read reason=%r", reason)
            self._refused = str(found)
            return
        self._refused = ""
        lines, principals = found
        if lines == self._lines and not is_asked:
            return
        assert self._authentication is not None
        assert self._shut_out is not None
        self._lines, self._authentication.principals = lines, principals
        self._shut_out.follow(lines)
        self._tell(lines)

    def _tell(self, lines: tuple[Line, ...]) -> None:
        """Log who is known now, and what is hardly intended."""
        logger.info("event=tokens-read path=%r principals=%d", str(self._path), len(lines))
        for warning in self.warnings(lines):
            logger.warning("event=config-warning detail=%r", warning)

    @property
    def count(self) -> int:
        """How many principals the file has."""
        return len(self._lines)

    def warnings(self, lines: tuple[Line, ...] | None = None) -> Iterator[str]:
        """Yield what is hardly intended: of these lines, or of those that were read last."""
        lines = self._lines if lines is None else lines
        for concern in self._concerns(lines, time.time()):
            yield f"tokens: {str(self._path)!r}: {concern}"

    def _concerns(self, lines: tuple[Line, ...], now_s: float) -> Iterator[str]:
        ended = [line.name for line in lines if line.ends_at_s is not None and line.ends_at_s <= now_s]
        if ended:
            yield f"{_first(ended)} expired (until=): remove the lines"
        if not self._has_client_certificates and any(line.certificates for line in lines):
            yield "lines with cert: have no effect without --tls-client-ca"
        idle = [line.name for line in lines if line.idle_prefixes()]
        if idle:
            yield (
                f"{_first(idle)} with none@PREFIX where no shorter prefix gives any right: see"
                " `holdfast token check`"
            )
        if concern := open_to_others(self._path):
            yield concern

    def samples(self) -> Iterator[Sample]:
        """Yield what is so now."""
        text = "1 while the tokens file is unusable and an earlier one is in force."
        yield gauge("http_tokens_file_refused", text, int(bool(self._refused)))


def read(path: Path) -> tuple[Line, ...]:
    """Read a tokens file. Raises TokensUnusable."""
    try:
        # A pipe would be waited for.
        if not stat.S_ISREG(path.stat().st_mode):
            raise TokensUnusable(f"tokens: {str(path)!r}: must be a regular file")
        with path.open("rb") as file:
            content = file.read(token_lines.BYTES_MAX + 1)
        return token_lines.parse(content)
    except OSError as error:
        raise TokensUnusable(f"tokens: {str(path)!r}: cannot be read: {error.strerror}") from None
    except LinesWrong as error:
        raise TokensUnusable(f"tokens: {str(path)!r}: {error}") from None


def watch_of(config: NodeConfig) -> TokensWatch | None:
    """Return who may call, None if everybody may. Raises ConfigError."""
    if config.tokens is None:
        return None
    try:
        return TokensWatch(config.tokens, has_client_certificates=config.tls_client_ca is not None)
    except TokensUnusable as error:
        raise ConfigError(str(error)) from None


def _first(names: list[str]) -> str:
    """Write some of the names, and how many more there are."""
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return f"{', '.join(names[:_NAMED_MAX])}{more}"


def open_to_others(path: Path) -> str:
    """Return what other users of the machine may do with the file and should not, "" if it is nothing."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return ""  # gone meanwhile: the next look tells of that
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "other users can write it, and so give themselves any right; chmod 600 it"
    if mode & stat.S_IROTH:
        return "other users can read the rights of all principals; chmod 600 it"
    return ""
