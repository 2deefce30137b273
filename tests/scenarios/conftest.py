"""The option that rewrites the traces: `pytest tests/scenarios --rewrite`.

Read the diff before you keep it: a scenario is what should happen, not what does.
"""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --rewrite."""
    parser.addoption("--rewrite", action="store_true", help="rewrite the expected traces of scenarios")


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether to replace expected traces by what happened."""
    return bool(request.config.getoption("--rewrite", default=False))
