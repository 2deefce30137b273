"""The manual page of the API names all there is."""

from pathlib import Path

import pytest

from holdfast import wire
from http_api.server.metrics import RequestCounts
from http_api.server.refusal_trace import RefusalTrace
from http_api.server.routes import Route
from http_api.v1.table import make_routes
from tests.support import http_contract

MANUAL = (Path(__file__).parents[4] / "docs" / "http-api.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("code", wire.PROBLEMS)
def test_every_code_is_explained(code: str) -> None:
    """Each problem code is in the table, in a row with its status and outcome."""
    kind = wire.PROBLEMS[code]
    (row,) = [
        line for line in MANUAL.splitlines() if line.startswith("| `") and f"`{code}`" in line.split("|")[1]
    ]
    assert f"| {kind.status} | {kind.outcome} |" in row


@pytest.mark.parametrize(
    "route", make_routes(RequestCounts(), RefusalTrace()), ids=lambda route: f"{route.method} {route.path}"
)
def test_every_call_is_described(route: Route) -> None:
    """Each call of the route table is in the manual, by method and path."""
    assert f"`{route.method} {route.path}`" in MANUAL


@pytest.mark.parametrize(
    "field", sorted({name for names in http_contract.REQUEST_FIELDS.values() for name in names})
)
def test_every_field_is_described(field: str) -> None:
    """Each field that a request may carry is in the manual."""
    assert f"`{field}`" in MANUAL or f'"{field}"' in MANUAL
