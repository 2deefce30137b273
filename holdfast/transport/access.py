"""The token by which nodes know a client: where it comes from, and to whom it is sent."""

import ipaddress
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from holdfast import token_lines, wire
from holdfast.values.process import OfOneProcess

TOKEN_VARIABLE: Final = "HOLDFAST_ACCESS_TOKEN"  # noqa: S105 - a name
"""The variable with the token. (HOLDFAST_TOKEN is the fencing token that `holdfast run` tells commands.)"""
TOKEN_FILE_VARIABLE: Final = "HOLDFAST_ACCESS_TOKEN_FILE"  # noqa: S105
PLAIN_VARIABLE: Final = "HOLDFAST_INSECURE_PLAIN_TOKEN"
"""Set to 1, it lets the token be sent without TLS to other machines."""
_FILE_BYTES_MAX: Final = 4096

_log = logging.getLogger("holdfast")


class Access(OfOneProcess):
    """A token, or the file that it is read from. Its repr, like all errors, shows no token."""

    def __init__(
        self,
        token: str | None = None,
        file: str | os.PathLike[str] | None = None,
        *,
        is_plain_allowed: bool = False,
    ) -> None:
        """Take a token, or read it from `file`. Raises ValueError when it cannot be one.

        It is sent to other machines without TLS only if `is_plain_allowed`.
        """
        self._is_plain_allowed = is_plain_allowed
        if token is not None and file is not None:
            raise ValueError("token, token_file: give only one of the two")
        self._file = None if file is None else Path(file)
        self._token = _checked(token, "token") if token is not None else self._read()

    def headers_for(self, url: str) -> dict[str, str]:
        """Return the header with the token, for a node of this URL.

        Raises ValueError if others could read it.
        """
        self.check(url)
        return self.headers()

    def headers(self) -> dict[str, str]:
        """Return the header with the token, for a node whose URL was checked."""
        return {wire.HEADER_AUTHORIZATION: f"{wire.BEARER} {self._token}"}

    def check(self, url: str) -> None:
        """Refuse to send the token where others on the path could read it. Raises ValueError."""
        if url.startswith("http://") and not self._is_plain_allowed and not _is_this_machine(url):
            raise ValueError(
                f"{url}: a token is sent only over https://, or to this machine: whoever is on the path could"
                f" read it. If nobody else is, say so: insecure_plain_token=True, or {PLAIN_VARIABLE}=1"
            )

    def read_again(self) -> bool:
        """Read the file again, since a node does not know the token; return whether it has another one."""
        if self._file is None:
            return False
        before = self._token
        try:
            self._token = self._read()
        except ValueError as error:
            _log.warning("token not read, the one before stays in use: error=%s", error)
        return self._token != before

    def _read(self) -> str:
        if self._file is None:
            raise ValueError("token, token_file: give one of the two")
        try:
            with self._file.open("rb") as file:
                content = file.read(_FILE_BYTES_MAX)
        except OSError as error:
            raise ValueError(f"token_file: {str(self._file)!r} cannot be read: {error.strerror}") from None
        return _checked(content.decode("ascii", "replace").strip(), f"token_file: {str(self._file)!r}")


def _checked(token: str, what: str) -> str:
    if not token_lines.is_token(token):
        raise ValueError(
            f"{what}: a token has {token_lines.TOKEN_CHARS_MIN} to {token_lines.TOKEN_CHARS_MAX} visible"
            " ASCII characters; make one with `holdfast token new`"
        )
    return token


def of(
    token: str | None,
    file: str | os.PathLike[str] | None,
    environment: Mapping[str, str],
    *,
    is_plain_allowed: bool = False,
) -> Access | None:
    """Return the token that is given or, if none is, that of the environment; None if there is none.

    Raises ValueError.
    """
    is_plain_allowed = is_plain_allowed or environment.get(PLAIN_VARIABLE) == "1"
    if token is not None or file is not None:
        return Access(token, file, is_plain_allowed=is_plain_allowed)
    token, file = environment.get(TOKEN_VARIABLE) or None, environment.get(TOKEN_FILE_VARIABLE) or None
    if token is None and file is None:
        return None
    try:
        return Access(token, file, is_plain_allowed=is_plain_allowed)
    except ValueError as error:
        raise ValueError(f"{TOKEN_VARIABLE}, {TOKEN_FILE_VARIABLE}: {error}") from None


def _is_this_machine(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
