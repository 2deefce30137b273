"""Libraries that only tests of recipes, guides, /openapi.json and /ui need, which are skipped without."""

import importlib.util
import re
from collections.abc import Iterable
from typing import Final

import pytest

LIBRARIES: Final = (
    "alembic",
    "axe_playwright_python",
    "apscheduler",
    "celery",
    "django",
    "fastapi",
    "flask",
    "playwright",
    "pottery",
    "redis",
    "redis_lock",
    "requests",
    "schemathesis",
    "sqlalchemy",
    "uvicorn",
)
"""What tests import of the groups `recipes`, `faces`, `openapi` and `ui` of pyproject.toml."""
_IMPORT: Final = re.compile(r"^\s*(?:from|import) (\w+)", re.MULTILINE)


def skip_without(name: str) -> None:
    """Skip a test, or the module that asks, where a library is missing."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"needs {name}: scripts/test --all installs it", allow_module_level=True)


def skip_without_those_of(text: str) -> None:
    """Skip a test that runs this program, or this page, where a library that it imports is missing."""
    for name in _IMPORT.findall(text):
        if name in LIBRARIES:
            skip_without(name)


class ModuleWithLibraries(pytest.Module):
    """A file of tests that is skipped where it imports one of the libraries, itself or through others."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Return the tests of the file."""
        try:
            return super().collect()
        except self.CollectError as error:
            if isinstance(error.__cause__, ModuleNotFoundError) and error.__cause__.name in LIBRARIES:
                skip_without(error.__cause__.name)
            raise
