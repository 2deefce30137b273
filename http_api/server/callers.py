"""Who may call: by which names a node is called, and for which web pages a browser may call it.

A browser sends what any page asks it to, with all the reach of the machine that it runs on. It says for whom:
`Origin` and `Sec-Fetch-Site` are its own words, no page can change them. So pages of others are refused.

A page can also come from a name whose owner has it point to this node (DNS rebinding); then it is one of the
node's own, as far as the browser knows. But `Host` has that name, so a node answers only to names that nobody
else can own: addresses, names without a dot, and what it was told.

Programs that are not browsers can send what they like; they are not what this is for.
"""

import re
from collections.abc import Iterable
from typing import Final

from aiohttp import hdrs

from http_api.server.call import Call
from http_api.server.refusals import CallRefused

ANY: Final = "*"
"""Instead of names or origins: all of them."""

_SITE: Final = "Sec-Fetch-Site"
_OWN_SITES: Final = frozenset({"same-origin", "none"})
"""A page of this node, or a person who typed the address."""
_FOLLOWED_LINK: Final = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
"""A person who followed a link and will see the answer; the page that has the link will not."""
_HOST: Final = re.compile(r"(?:\[(?P<ipv6>[0-9a-f:.]+)\]|(?P<name>[^:\[\]/@]+?)\.?)(?::\d{0,5})?")
_REMEMBERED_MAX: Final = 1000
"""Values of `Host` that were found to be good, so that they need not be taken apart for each call."""


class Callers:
    """Knows the names of a node, and the origins that may call it besides."""

    def __init__(self, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        """Answer to `hosts`: names, or domains with a dot in front, for the domain and all below it."""
        listed = {host.lower() for host in hosts}
        self._origins = frozenset(origin.lower() for origin in origins)
        self._is_any_host = ANY in listed
        self._domains = tuple(host for host in listed if host.startswith("."))
        self._names = listed | {domain[1:] for domain in self._domains}
        self._good: set[str] = set()

    def check(self, call: Call) -> None:
        """Refuse a call that comes by another name, or from a page of somebody else. Raises CallRefused."""
        headers = call.headers
        host = headers.get(hdrs.HOST, "")
        if host not in self._good:
            self.check_host(host)
        if not call.raw_path.startswith("/"):
            self.check_host(call.url.raw_authority)
        origin, site = headers.get(hdrs.ORIGIN), headers.get(_SITE)
        if origin is not None:
            if ANY in self._origins or origin.lower() in self._origins:
                return
            _check_origin(origin, host, is_secure=_is_over_tls(call))
        if (
            site is not None
            and site not in _OWN_SITES
            and (origin is not None or not _is_followed_link(call))
        ):
            detail = f"{_SITE}: {site[:300]!r}; pages of other sites cannot call this node (--allow-origin)"
            raise CallRefused("forbidden-origin", detail)

    def check_host(self, host: str) -> None:
        """Refuse a name that is not this node's. A program that gives none is not a browser.

        Raises CallRefused.
        """
        if host and not self._is_any_host and not self._is_own(host.lower()):
            detail = (
                f"Host: {host[:300]!r}; this node does not answer to this name: call it by its address, or"
                " allow the name (--allow-host)"
            )
            raise CallRefused("forbidden-host", detail)
        if len(self._good) < _REMEMBERED_MAX:
            self._good.add(host)

    def _is_own(self, host: str) -> bool:
        """Whether nobody else can have this name, or it was told to be this node's."""
        parts = _HOST.fullmatch(host)
        if parts is None:
            return False
        name = parts["name"]
        if name is None:
            return True
        head, dot, last = name.rpartition(".")
        # No domain has a number at its end, so that is an address, however it is written.
        is_nobodys = not dot or last.isdecimal() or last == "localhost"
        return is_nobodys or name in self._names or (bool(head) and name.endswith(self._domains))


def _check_origin(origin: str, host: str, *, is_secure: bool) -> None:
    """Refuse a page that is not this node's.

    Whoever is on the path can write a page of `http://HOST`, and a browser would show the node its user's
    certificate for it. So over TLS only `https` is the node's own. A connection without TLS carries no
    certificate, and may come from a proxy that ends TLS: there `https` is the node's own, too.
    """
    own = {f"https://{host.lower()}"} if is_secure else {f"http://{host.lower()}", f"https://{host.lower()}"}
    if origin.lower() not in own:
        detail = f"Origin: {origin[:300]!r}; pages of other sites cannot call this node (--allow-origin)"
        raise CallRefused("forbidden-origin", detail)


def _is_over_tls(call: Call) -> bool:
    """Whether this connection has TLS. A client that has left meanwhile gets no answer: then be strict."""
    # `call.secure` is always False here: aiohttp's server does not see the TLS of the gate beneath it.
    return call.transport is None or call.transport.get_extra_info("ssl_object") is not None


def _is_followed_link(call: Call) -> bool:
    """Whether a person has followed a link to this node. That changes nothing here."""
    headers = call.headers
    return call.method == "GET" and all(headers.get(name) == word for name, word in _FOLLOWED_LINK.items())
