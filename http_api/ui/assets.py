"""The files of the page, as they are served: read once."""

from collections.abc import Iterator
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class Asset(NamedTuple):
    """A file: its bytes and its media type."""

    body: bytes
    media_type: str


@cache
def assets() -> dict[str, Asset]:
    """Return all files by their paths below `static`."""
    return dict(_below(resources.files("http_api.ui") / "static", ""))


def _below(folder: Traversable, prefix: str) -> Iterator[tuple[str, Asset]]:
    for item in folder.iterdir():
        path = f"{prefix}{item.name}"
        if item.is_dir():
            yield from _below(item, f"{path}/")
        else:
            yield path, Asset(item.read_bytes(), _TYPES[item.name.rpartition(".")[2]])
