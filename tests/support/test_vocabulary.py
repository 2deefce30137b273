"""The table of commands is complete, and says the same as the tables of the product."""

from typing import get_args

import msgspec
import pytest

from lockstate import catalogue
from lockstate.words.commands.entries import Command, MayBeCancelled, OnBehalf
from lockstate.words.commands.holds import Acquire, AcquirePermits
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.ids import AttemptId, HoldId
from lockstate.words.modes import Mode
from lockstate.words.wanted import Uncommon
from tests.support import vocabulary
from tests.support.vocabulary import VOCABULARY, Word

WORDS = pytest.mark.parametrize("word", VOCABULARY.values(), ids=lambda word: type(word.example).__name__)


def test_no_command_is_left_out() -> None:
    """The table has every command, each with an example of its own kind."""
    assert sorted(map(repr, VOCABULARY)) == sorted(map(repr, get_args(Command)))
    assert [type(word.example) for word in VOCABULARY.values()] == list(VOCABULARY)


@WORDS
def test_fields_that_the_table_names_exist(word: Word) -> None:
    """A scope and the ids of an attempt are fields of the command, and a scope goes with a request id."""
    fields = type(word.example).__struct_fields__
    assert {*word.ids_of_attempt, *(word.scope or ())} <= set(fields)
    assert (word.scope is not None) == ("request_id" in fields)


@WORDS
def test_what_may_wait_says_for_how_long_and_can_be_cancelled(word: Word) -> None:
    """A command may wait if it has a time to wait and an attempt that a client can take back."""
    fields = type(word.example).__struct_fields__
    assert isinstance(word.example, MayBeCancelled) == ("wait_ms" in fields and "attempt_id" in fields)


@WORDS
def test_requests_are_told_apart_as_the_product_does_it(word: Word) -> None:
    """Scope and content of a request are what the memory of requests goes by."""
    command = word.example
    if isinstance(command, OnBehalf):
        return  # what is in it is the request
    if word.scope is not None:
        command = msgspec.structs.replace(command, request_id="r")
    scope = vocabulary.request_scope(command)
    assert catalogue.request_key(command) == (None if scope is None else (scope, "r"))
    again = vocabulary.another_attempt(command, lambda field: f"another {field}")
    assert vocabulary.request_content(again) == vocabulary.request_content(command)
    assert catalogue.content_digest(again) == catalogue.content_digest(command)
    assert (again == command) == (not word.ids_of_attempt)


@WORDS
def test_requests_that_differ_are_told_apart(word: Word) -> None:
    """In any field but those of the attempt, and in any of what is uncommon: none has another's outcome."""
    command = word.example
    if word.scope is None or isinstance(command, OnBehalf):
        return
    ids = {*word.ids_of_attempt, "priority_not_for", "endless_not_for"}
    digest = catalogue.content_digest(command)
    for field in sorted({*command.__struct_fields__} - ids - {"uncommon"}):
        other = msgspec.structs.replace(command, **{field: "something else"})
        assert catalogue.content_digest(other) != digest, field
    if isinstance(command, Acquire | AcquirePermits):
        for field in sorted({*Uncommon.__struct_fields__} - ids):
            uncommon = msgspec.structs.replace(command.uncommon or Uncommon(), **{field: "something else"})
            other = msgspec.structs.replace(command, uncommon=uncommon)
            assert catalogue.content_digest(other) != digest, field


def test_the_first_field_that_is_not_empty_is_the_scope() -> None:
    """A lock for a session counts for the session, another one for its owner; without an id there is none."""
    lock = Acquire("a", Mode.SHARED, HoldId("h"), AttemptId("t"), ttl_ms=50, request_id="r")
    assert vocabulary.request_scope(lock) == ""
    assert vocabulary.request_scope(msgspec.structs.replace(lock, owner="ann")) == "ann"
    assert vocabulary.request_scope(msgspec.structs.replace(lock, owner="ann", session_id="s")) == "s"
    assert vocabulary.request_scope(msgspec.structs.replace(lock, request_id="")) is None
    opening = VOCABULARY[OpenSession].example
    assert vocabulary.request_scope(opening) == ""
