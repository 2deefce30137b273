"""A name that nothing here has stays an error for all that looks for names, and for all that copies."""

import copy
import dataclasses
import pickle
from typing import Any
from unittest import mock

import pytest

import holdfast
from holdfast.values.other_words import METHODS, Suggesting

KINDS = (holdfast.SyncClient, holdfast.Client)
EMPTY: list[type[Any]] = [
    holdfast.Client,
    holdfast.Hold,
    holdfast.Lock,
    holdfast.RateLimiter,
    holdfast.Session,
    holdfast.SyncClient,
    holdfast.SyncHold,
    holdfast.SyncLock,
]


@pytest.fixture(params=KINDS)
def lock(request: pytest.FixtureRequest) -> Any:
    """Return a lock of a client that is never asked for anything."""
    return request.param("127.0.0.1:1").lock("a")


class Beside(Suggesting):
    """Something that users call, with a property that fails by itself."""

    @property
    def broken(self) -> str:
        """Fail."""
        raise AttributeError("the reason of the property")


@dataclasses.dataclass
class Job(Suggesting):
    """A class of a user's that is made of ours."""

    name: str
    lock: Any = None


def test_hasattr_knows_what_there_is(lock: Any) -> None:
    """A word of others is not there, however well it is known; a default is given for it."""
    missing = [word for word in METHODS if not hasattr(type(lock), word)]
    assert "is_held" in missing
    for word in (*missing, "__fspath__", "_repr_html_", "anything"):
        assert not hasattr(lock, word)
        assert getattr(lock, word, None) is None
    assert hasattr(lock, "acquire")


@pytest.mark.parametrize("kind", EMPTY, ids=lambda kind: kind.__name__)
def test_an_object_without_anything_in_it_looks_no_further(kind: type[Any]) -> None:
    """Copies and pickles begin with one, and ask it for names: that ends with an AttributeError."""
    empty = object.__new__(kind)
    for name in ("__setstate__", "__deepcopy__", "_transport", "_twin", "try_lock"):
        if not hasattr(kind, name):
            with pytest.raises(AttributeError, match=name):
                getattr(empty, name)


def test_a_lock_is_copied_with_its_client(lock: Any) -> None:
    """It is what to ask for, and has no state; what would need another client says so."""
    copied = copy.copy(lock)
    assert type(copied) is type(lock)
    assert copied.name == lock.name
    with pytest.raises(AttributeError, match=r"acquire\(wait=0\) tries once"):
        copied.try_lock  # noqa: B018 - the read is what is tested
    for way in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be pickled or copied: make a client in each process"):
            way(lock)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mock_has_what_a_client_has(kind: type[Any]) -> None:
    """One that is made by the class or by an object of it; words of others are not in it."""
    for spec in (kind, kind("127.0.0.1:1")):
        for mocked in (mock.Mock(spec=spec), mock.create_autospec(spec, instance=True)):
            assert mocked.lock("a") is not None
            with pytest.raises(AttributeError, match="read_lock"):
                mocked.read_lock("a")


def test_a_dataclass_may_be_made_of_ours() -> None:
    """Its fields, its copies and what it prints are as of any other."""
    job = Job("a")
    assert dataclasses.replace(job, name="b") == Job("b")
    assert copy.deepcopy(job) == pickle.loads(pickle.dumps(job)) == job  # noqa: S301 - our own bytes
    assert repr(job) == "Job(name='a', lock=None)"
    with pytest.raises(AttributeError, match=r"'Job' object has no attribute 'unlock': release\(\)"):
        job.unlock  # type: ignore[attr-defined]  # noqa: B018 - the read is what is tested


def test_a_property_that_fails_says_why() -> None:
    """It is there: nobody is told that it is not."""
    with pytest.raises(AttributeError, match="the reason of the property"):
        Beside().broken  # noqa: B018 - the read is what is tested
