"""Patterns of Redis: what each matches, and that none takes long."""

import time

import pytest

from redis_api.protocol.globs import matcher


@pytest.mark.parametrize(
    ("pattern", "matched", "others"),
    [
        (b"", [b""], [b"a"]),
        (b"*", [b"", b"a", b"a\nb\xff"], []),
        (b"a?c", [b"abc", b"a\nc"], [b"ac", b"abbc"]),
        (b"a*c", [b"ac", b"abcc"], [b"acb"]),
        (b"*b*d*", [b"bd", b"abcde", b"bbdd"], [b"db"]),
        (b"a**b", [b"ab", b"axb"], [b"a"]),
        (b"*ab", [b"ab", b"aab", b"abab"], [b"aba"]),
        (b"h[ae]llo", [b"hello", b"hallo"], [b"hillo", b"h[ae]llo"]),
        (b"h[^e]llo", [b"hallo", b"h\nllo"], [b"hello"]),
        (b"[^]", [b"a", b"\n"], [b"", b"ab"]),
        (b"[^^a]", [b"b"], [b"^", b"a"]),
        (b"[a^\\]]", [b"^", b"]", b"a"], [b"b"]),
        (b"h[c-a]", [b"ha", b"hb", b"hc"], [b"hd", b"h-"]),
        (b"[\\]-]", [b"]", b"-"], [b"\\"]),
        (b"[]a", [], [b"a", b"]a"]),
        (b"x[ab", [b"xa", b"xb"], [b"x[ab"]),
        (b"\\*\\[\\", [b"*[\\"], [b"a[\\"]),
        (b"a.c+(", [b"a.c+("], [b"abc+("]),
        (b"{lock}:*", [b"{lock}:", b"{lock}:1"], [b"lock:1"]),
    ],
)
def test_what_a_pattern_matches(pattern: bytes, matched: list[bytes], others: list[bytes]) -> None:
    """The whole channel has to be as it says."""
    compiled = matcher(pattern)
    assert [each for each in matched if compiled.fullmatch(each) is None] == []
    assert [each for each in others if compiled.fullmatch(each) is not None] == []


def test_no_pattern_takes_long() -> None:
    """Many stars do not mean many ways of looking."""
    began_s = time.perf_counter()
    assert matcher(b"*a" * 200 + b"*b").fullmatch(b"a" * 512) is None
    assert matcher(b"*aaaaaaab" * 50).fullmatch(b"a" * 512) is None
    assert time.perf_counter() - began_s < 0.5


def test_no_pattern_takes_long_to_read() -> None:
    """A set that has nearly all bytes is short."""
    began_s = time.process_time()
    matcher(b"[^a]" * 128)
    matcher(b"[!-\xff]" * 102)
    assert time.process_time() - began_s < 0.05
