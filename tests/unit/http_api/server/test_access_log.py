"""What a line says of a refused call."""

import pytest

from http_api.server.access_log import shown_path

ID = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("route", "asked", "shown"),
    [
        (
            "/v1/locks/{name}",
            "/v1/locks/a-name-that-is-quite-long?stale=true",
            "/v1/locks/a-name-that-is-quite-long",
        ),
        ("/v1/locks/acquire", "/v1/locks/acquire", "/v1/locks/acquire"),
        ("/v1/locks/acquire", "", "/v1/locks/acquire"),
        ("/v1/sessions/{session_id}", f"/v1/sessions/{ID}", "/v1/sessions/{session_id}"),
        ("/v1/tickets/{ticket}", f"/v1/tickets/{ID}", "/v1/tickets/{ticket}"),
        ("-", f"/v1/sessions/{ID[:9]}/x", "/v1/sessions/..."),
        ("-", f"/v2/holds/{ID}?hold_id={ID}", "/v2/holds/..."),
        ("-", "/coffee", "/coffee"),
        ("-", "/a" * 300, "/a" * 100),
    ],
)
def test_a_path_is_shown_without_what_may_be_secret(route: str, asked: str, shown: str) -> None:
    """Names are shown, ids of sessions and whatever looks like one are not."""
    assert shown_path(route, asked) == shown
