"""A client from one URL."""

import pytest

import holdfast
from holdfast.client.client_options import ClientOptions, urls_of


@pytest.mark.parametrize(
    ("url", "nodes"),
    [
        ("holdfast://a", ["http://a:7700"]),
        ("holdfast://a,b:7701/", ["http://a:7700", "http://b:7701"]),
        ("holdfasts://a:7700,[::1]", ["https://a:7700", "https://[::1]:7700"]),
        ("http://[::1]:7701", ["http://[::1]:7701"]),
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


def test_the_options_are_those_of_a_client() -> None:
    """Whatever a client takes, `from_url` takes."""
    given = holdfast.Client.__init__.__annotations__.keys() - {"nodes", "return"}
    assert ClientOptions.__annotations__.keys() == given
    holdfast.Client.from_url("holdfast://127.0.0.1:1", timeout=1, owner="me", stream=False)
