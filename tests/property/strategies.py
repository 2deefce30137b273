"""Random commands from so small a world that they meet all the time."""

from hypothesis import strategies as st

from lockstate import limits
from lockstate.commands import (
    Acquire,
    Cancel,
    CloseSession,
    Command,
    ForceRelease,
    KeepAlive,
    OpenSession,
    Release,
    Renew,
)
from lockstate.modes import Mode

NAMES = ["database", "db/a", "db/b"]
SESSION_IDS = ["s1", "s2", "s3"]
OWNERS = ["", "", "ann", "bob"]
REQUEST_IDS = ["", "", "", "r1", "r2"]
ATTEMPT_IDS = ["a1", "a2"]
TTLS_MS = [50, 200, 500]
WAITS_MS = [0, 50, 100, 300, 300]
DELAYS_MS = [0, 0, 0, 50, 120]

MISSING_HOLD_ID = "h-missing"
PAUSES_MS = [0] * 8 + [1, 10, 10, 20, 49, 50, 51, 100, limits.REQUEST_AGE_MS, limits.REQUEST_AGE_MS + 1]
"""Steps of cluster time between entries."""

names = st.sampled_from(["database", *NAMES])
modes = st.sampled_from(list(Mode))
session_ids = st.sampled_from(SESSION_IDS)
request_ids = st.sampled_from(REQUEST_IDS)
attempt_ids = st.sampled_from(ATTEMPT_IDS)
labels = st.sampled_from([{}, {"owner": "ann"}, {"host": "h1"}])


def acquires(hold_id: str) -> st.SearchStrategy[Acquire]:
    """Acquires with the given secret, half of them for a session and half with a lease of their own."""
    common = {
        "name": names,
        "mode": modes,
        "hold_id": st.just(hold_id),
        "attempt_id": attempt_ids,
        "owner": st.sampled_from(OWNERS),
        "wait_ms": st.sampled_from(WAITS_MS),
        "lock_delay_ms": st.sampled_from(DELAYS_MS),
        "note": st.sampled_from(["", "n"]),
        "request_id": request_ids,
    }
    return st.builds(Acquire, session_id=session_ids, **common) | st.builds(
        Acquire, ttl_ms=st.sampled_from(TTLS_MS), **common
    )


def others(hold_ids: list[str]) -> st.SearchStrategy[Command]:
    """Every other command; those about a hold take one of `hold_ids`, or one that never was."""
    hold_id = st.sampled_from([*hold_ids, MISSING_HOLD_ID])
    return st.one_of(
        st.builds(OpenSession, session_ids, st.sampled_from(TTLS_MS), labels, request_ids),
        st.builds(KeepAlive, session_ids),
        st.builds(CloseSession, session_ids, request_ids),
        st.builds(Cancel, hold_id, attempt_ids),
        st.builds(Renew, hold_id, st.sampled_from([0, 0, 50, 200]), request_ids),
        st.builds(Release, hold_id, request_ids),
        st.builds(Release, hold_id),
        st.builds(ForceRelease, names, st.just("because"), st.sampled_from(DELAYS_MS), request_ids),
    )


bad_commands: st.SearchStrategy[Command] = st.sampled_from(
    [
        OpenSession("", 100),
        OpenSession("s1", limits.TTL_MS_MIN - 1),
        OpenSession("s1", 100, {"": "x"}),
        KeepAlive(""),
        CloseSession("s1", "r" * 65),
        Acquire("database", Mode.SHARED, "hx", "a1"),
        Acquire("database", Mode.SHARED, "hx", "a1", session_id="s1", ttl_ms=100),
        Acquire("database", Mode.SHARED, "hx", "a1", ttl_ms=100, wait_ms=-1),
        Acquire("db//a", Mode.EXCLUSIVE, "hx", "a1", ttl_ms=100, request_id="r1"),
        Acquire("d" * 513, Mode.EXCLUSIVE, "hx", "a1", ttl_ms=100),
        Cancel("", "a1"),
        Renew("h1", limits.TTL_MS_MAX + 1),
        Release("\n"),
        ForceRelease("/", "because"),
        ForceRelease("database", "because", -1),
    ]
)
