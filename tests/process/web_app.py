"""A FastAPI application for uvicorn whose `def` dependencies hold locks: threads enter and leave blocks."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException

import holdfast

app = FastAPI()
client = holdfast.SyncClient(timeout=30)
one_object = client.lock("soak/table", mode="shared")
"""Shared by all requests, as a module-level lock of a program is."""
_inside: Counter[str] = Counter()
_looking = threading.Lock()


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Raise RuntimeError if another request of this process is inside for the same name."""
    with _looking:
        _inside[name] += 1
        if _inside[name] > 1:
            raise RuntimeError(f"two are inside for {name}")
    try:
        yield
    finally:
        with _looking:
            _inside[name] -= 1


def acquired(number: int) -> Iterator[holdfast.SyncHold]:
    """Hold a lock during the request, by the form that the manual recommends."""
    with client.acquire(("soak", number), wait=60) as hold:
        yield hold


def entered() -> Iterator[holdfast.SyncHold]:
    """Enter the object that all requests share."""
    with one_object as hold:
        yield hold


@app.post("/acquired/{number}")
def work_alone(hold: Annotated[holdfast.SyncHold, Depends(acquired)]) -> dict[str, bool]:
    """Work under a lock of its own; every seventh request fails in the middle of it."""
    with alone(hold.name):
        if hold.token % 7 == 0:
            raise HTTPException(418, "on purpose")
        return {"is_valid": hold.is_valid}


@app.post("/entered/{number}")
def read_together(number: int, hold: Annotated[holdfast.SyncHold, Depends(entered)]) -> dict[str, bool]:
    """Work beside others; every seventh request fails in the middle of it."""
    assert number >= 0
    if hold.token % 7 == 0:
        raise HTTPException(418, "on purpose")
    return {"is_valid": hold.is_valid}
