"""The URLs of nodes."""

import pytest

from holdfast.operations import node_urls

SOCKET = "unix:/run/holdfast.sock"


@pytest.mark.parametrize(
    "url", ["127.0.0.1:x", "ftp://a", "http://", "", "http:///x", "a b", "http://a:1 http://b:1"]
)
def test_a_url_that_no_node_has_is_refused(url: str) -> None:
    """A node's URL has http or https and a host; a slash at its end does not matter."""
    with pytest.raises(ValueError, match="is not the URL of a node"):
        node_urls.node_urls([url], {})
    assert node_urls.node_urls("http://a:7701/", {}) == ("http://a:7701",)


@pytest.mark.parametrize("has_tls", [False, True])
def test_a_socket_stands_among_addresses(*, has_tls: bool) -> None:
    """In a list, a text with commas or the environment; it never has TLS, and needs none."""
    scheme = "https" if has_tls else "http"
    expected = (SOCKET, f"{scheme}://a:7700")
    for nodes in ([SOCKET, "a"], f" {SOCKET}, a"):
        assert node_urls.node_urls(nodes, {}, has_tls=has_tls) == expected
    assert node_urls.node_urls(None, {"HOLDFAST_NODES": f"{SOCKET},a"}, has_tls=has_tls) == expected
    assert node_urls.only_plain([SOCKET, "https://a"]) == ""
    assert node_urls.only_plain([SOCKET, "http://a"]) == "http://a"


@pytest.mark.parametrize(
    "url", ["unix:", "unix:holdfast.sock", "unix:/", "unix:/run/", "unix:/a b", "unix:/a,b"]
)
def test_a_socket_without_a_path_is_refused(url: str) -> None:
    """One that depends on the working directory, too; the error shows one that is right."""
    with pytest.raises(ValueError, match=r"is not the URL of a node: write unix: and .* like unix:/run/"):
        node_urls.node_urls([url], {})


def test_a_request_over_a_socket_is_addressed_to_this_machine() -> None:
    """Its path is that of the request, not of the socket."""
    assert node_urls.request_url(SOCKET, "/v1/locks") == "http://localhost/v1/locks"
    assert node_urls.request_url("http://a:1", "/v1/locks") == "http://a:1/v1/locks"
    assert node_urls.socket_path(SOCKET) == "/run/holdfast.sock"
    assert node_urls.socket_path("http://a:1") == ""
