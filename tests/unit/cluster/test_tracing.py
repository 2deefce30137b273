"""Which headers make a call part of a trace, and what is recorded of it."""

import itertools
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cluster import tracing
from cluster.tracing import CALLS_PER_S_MAX, ERROR, Context, Span, Tracer, code_of, parse

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
HEX = st.text("0123456789abcdef", min_size=1, max_size=40)


def is_valid(text: str) -> bool:
    """Judge a `traceparent` step by step, as the standard tells it."""
    parts = text.split("-")
    if len(parts) < 4 or [len(part) for part in parts[:4]] != [2, 32, 16, 2]:
        return False
    if any(character not in "0123456789abcdef" for part in parts[:4] for character in part):
        return False
    version, trace_id, span_id, _ = parts[:4]
    if version == "ff" or set(trace_id) == {"0"} or set(span_id) == {"0"}:
        return False
    return len(parts) == 4 if version == "00" else True


@given(
    st.one_of(
        st.text(max_size=60),
        st.tuples(
            st.sampled_from(["00", "01", "cc", "ff", "0", "0A"]),
            st.one_of(st.sampled_from([TRACE, TRACE.upper(), "0" * 32]), HEX),
            st.one_of(st.sampled_from([SPAN, "0" * 16]), HEX),
            st.one_of(st.sampled_from(["00", "01", "03", "ff", "1", "0x"]), HEX),
            st.sampled_from(["", "-", "-what-later-versions-say", ".", " ", "\n"]),
        ).map(lambda parts: "-".join(parts[:4]) + parts[4]),
    )
)
@example(PARENT)
@example(f"{PARENT}\n")
@example(f"01-{TRACE}-{SPAN}-00-more")
@example(f"00-{TRACE}-{SPAN}-00-more")
def test_a_traceparent_is_what_the_standard_says(text: str) -> None:
    """It is read, or ignored as a whole; nothing raises."""
    context = parse(text)
    assert (context is not None) == (is_valid(text) and "\n" not in text)
    if context is not None:
        assert text[2:].startswith(f"-{context.trace_id}-{context.span_id}-")
        assert context.is_sampled == bool(int(text[53:55], 16) & 1)


@given(st.text(max_size=600))
@example("a=1,b=2")
@example("a" * 513)
def test_a_context_comes_through_to_another_node(state: str) -> None:
    """Ids and state; a state that cannot be passed on is left out, and the ids count."""
    context = parse(PARENT, state)
    assert context is not None
    assert context[:3] == (TRACE, SPAN, True)
    assert context.state in (state, "")
    assert bool(context.state) == (len(state) <= 512 and bool(re.fullmatch(r"[ -~\t]+", state)))
    packed = context.packed()
    assert len(packed) == 24 + len(context.state)
    assert Context.of_packed(packed) == context


def test_who_calls_decides_whether_it_is_recorded() -> None:
    """Of calls without a valid `traceparent` a share is, and never one that its caller does not sample."""
    nobody, everybody = Tracer(lambda _: None), Tracer(lambda _: None, share=1.0)
    for tracer in (nobody, everybody):
        assert tracer.of_call(PARENT[:-1] + "0") is None
        span = tracer.of_call(PARENT, "a=1")
        assert span is not None
        assert (span.context.trace_id, span.parent_id, span.context.state) == (TRACE, SPAN, "a=1")
        assert span.context.span_id != SPAN
    assert nobody.of_call("") is None
    for malformed in ("", "x", PARENT.upper()):
        root = everybody.of_call(malformed, "a=1")
        assert root is not None
        assert (root.parent_id, root.context.state) == ("", ""), "a state belongs to its `traceparent`"
        assert len(root.context.trace_id) == 32
        assert root.context.trace_id != TRACE
    seconds = itertools.count()
    half = Tracer(lambda _: None, share=0.5, now_s=lambda: next(seconds))
    assert 100 < sum(half.of_call("") is not None for _ in range(1000)) < 900


def test_a_node_records_so_many_calls_a_second() -> None:
    """Whoever asks for more costs it no more: the rest of that second is served, and not recorded."""
    now_s = [7.0]
    tracer = Tracer(lambda _: None, share=1.0, now_s=lambda: now_s[0])
    asked = [tracer.of_call(PARENT if number % 2 else "") for number in range(CALLS_PER_S_MAX + 5)]
    assert [span is not None for span in asked] == [True] * CALLS_PER_S_MAX + [False] * 5
    now_s[0] = 8.0
    assert tracer.of_call(PARENT) is not None


def test_a_part_ends_once_and_says_what_went_wrong() -> None:
    """Within a block it has the code of the error; nothing is a part of what has ended."""
    ended: list[Span] = []
    tracer = Tracer(ended.append)
    call = tracer.of_call(PARENT)
    assert call is not None
    token = tracing.current.set(call)
    try:
        with pytest.raises(KeyError), tracer.within("part"):
            raise KeyError("x")
        with tracer.within("other"):
            pass
        tracer.end(call, "late")
        tracer.end(call, "later")
        with tracer.within("none"):
            assert tracer.child("none") is None
    finally:
        tracing.current.reset(token)
    assert [(span.name, span.attributes.get(ERROR)) for span in ended] == [
        ("part", "KeyError"), ("other", None), ("call", "late"),
    ]  # fmt: skip
    assert all(span.parent_id == call.context.span_id for span in ended[:2])
    assert all(span.end_ns >= span.start_ns for span in ended)


def test_an_error_is_named_by_its_code() -> None:
    """By that which clients see, if it has one."""
    assert code_of(ValueError()) == "ValueError"
    error = OSError()
    error.code = "no-leader"  # type: ignore[attr-defined]
    assert code_of(error) == "no-leader"
