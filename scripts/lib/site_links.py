"""A built site, checked as a browser meets it: each link leads somewhere, nothing comes from elsewhere."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

LOADED: Final = frozenset({("link", "href"), ("script", "src"), ("img", "src"), ("iframe", "src")})
"""What a browser fetches by itself: it must lie in the site."""


class _Page(HTMLParser):
    """The anchors of a page, and what it links to and loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element says of links."""
        named = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := named.get(name))}
        for name in ("href", "src"):
            if (value := named.get(name)) is None:
                continue
            if (tag, name) in LOADED and named.get("rel") != "canonical":
                self.loaded.append(value)
            else:
                self.links.append(value)


def wrong(site: Path) -> Iterator[str]:
    """Yield a line for each link that leads nowhere, and for each thing that is loaded from another host."""
    pages = {path: _Page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}
    for path, page in pages.items():
        here = path.relative_to(site)
        yield from (f"{here}: loads {url}" for url in page.loaded if urlsplit(url).netloc)
        for link in (*page.links, *page.loaded):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                yield f"{here}: {link} leads to no file"
            elif target in pages and parts.fragment and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{here}: {link} leads to no anchor"
    for path in sorted(site.rglob("*.css")):
        for url in re.findall(r"url\(['\"]?(https?:[^)'\"]+)", path.read_text("utf-8")):
            yield f"{path.relative_to(site)}: loads {url}"
