"""A client from one URL."""

from typing import Any

import pytest

import holdfast
from holdfast.client.client_options import urls_of


@pytest.mark.parametrize(
    ("url", "nodes"),
    [
        ("holdfast://a", ["http://a:7700"]),
        ("holdfast://a,b:7701/", ["http://a:7700", "http://b:7701"]),
        ("holdfasts://a:7700,[::1]", ["https://a:7700", "https://[::1]:7700"]),
        ("http://[::1]:7701", ["http://[::1]:7701"]),
        ("unix:/run/holdfast.sock", ["unix:/run/holdfast.sock"]),
    ],
)
def test_a_url_names_nodes(url: str, nodes: list[str]) -> None:
    """Several hosts, with the default port where none is given."""
    assert urls_of(url) == nodes


@pytest.mark.parametrize("kind", [holdfast.Client, holdfast.SyncClient])
@pytest.mark.parametrize(
    "url", ["", "a:7700", "redis://a", "holdfast://", "holdfast://:secret@a", "holdfast://a?timeout=5"]
)
def test_a_url_with_anything_else_is_refused(
    kind: type[holdfast.Client | holdfast.SyncClient], url: str
) -> None:
    """Also with a token, which would end up in logs."""
    with pytest.raises(ValueError, match="URL of a cluster"):
        kind.from_url(url)


@pytest.mark.parametrize("kind", [holdfast.Client, holdfast.SyncClient])
def test_an_option_that_there_is_not_is_refused(kind: type[Any]) -> None:
    """However the client is made; the error names the nearest one."""
    with pytest.raises(TypeError, match=r"Client\(\) has no argument 'tokn': did you mean token="):
        kind(["http://127.0.0.1:1"], tokn="x")
    with pytest.raises(TypeError, match="has no argument 'owners': did you mean owner="):
        kind.from_url("holdfast://127.0.0.1:1", owners="me")
