"""Linearizability of recorded histories: what an order explains passes, also what nobody heard of."""

from lab.chaos.checkers.catalogue import CHECKERS, check_all
from lab.chaos.checkers.linearizability import linearizable
from tests.unit.lab.chaos.histories import MS, Script


def one_after_the_other() -> Script:
    """Return a history of two holders."""
    script = Script()
    script.grant("h1", 1, 0, 5)
    script.renew("h1", 6, 9)
    script.refused("x", 10, 12)
    script.release("h1", 20, 30)
    script.grant("h2", 2, 25, 35)
    return script


def only_the_search_objects(script: Script) -> bool:
    """Whether no other checker sees what is wrong."""
    return {found.checker for found in check_all(script.history)} == {"linearizability"}


def test_a_right_history() -> None:
    """Grants, refusals, renewals and releases in turn."""
    assert check_all(one_after_the_other().history) == []


def test_a_refusal_of_a_free_lock() -> None:
    """Somebody is refused when nobody can have the lock any more."""
    script = one_after_the_other()
    script.release("h2", 36, 40)
    script.refused("y", 41, 45)
    assert linearizable(script.history) != []


def test_a_lost_request_explains_a_refusal() -> None:
    """The same with a request of unknown outcome, which may have been granted; but only after it was sent."""
    script = one_after_the_other()
    script.release("h2", 36, 40)
    script.refused("y", 41, 45)
    script.unknown("z", 44, 90)
    assert linearizable(script.history) == []
    script.refused("y", 41, 43)
    assert linearizable(script.history) != []


def test_a_grant_that_is_taken_back_with_its_connection() -> None:
    """Others may see the grant of a lost attempt before its node takes it back; not that of a sure one."""

    def seen_before(lost: int) -> Script:
        script = one_after_the_other()
        script.release("h2", 36, 40)
        script.grant("h4", 4, 50, 90, lost=lost)
        script.add("look", "a", 55, 60, result={"holders": [{"token": 3, "owner": "h4"}]})
        script.add("look", "a", 61, 65, result={"holders": []})
        script.add("look", "a", 91, 95, result={"holders": [{"token": 4, "owner": "h4"}]})
        return script

    assert linearizable(seen_before(lost=1).history) == []
    assert only_the_search_objects(seen_before(lost=0))


def test_a_lost_request_that_is_heard_of_when_its_lease_is_over() -> None:
    """Nobody heard of the grant while it lasted; others had the lock before it was asked for again."""
    script = Script()
    script.add("acquire", "a", 0, 190, "unknown", owner="x", ttl_ms=50, request="r")
    script.refused("y", 20, 25)
    script.grant("h2", 2, 100, 110)
    script.release("h2", 120, 130)
    script.grant("h1", 1, 200, 210, ttl=0, owner="x", request="r")
    assert linearizable(script.history) == []


def test_a_refused_request_is_tried_again() -> None:
    """Under one id one client is refused, and the next one is granted what has become free; and only then."""

    def tried_again(call: int) -> Script:
        script = Script()
        script.grant("h1", 1, 0, 5, ttl=5000)
        script.refused("x", 10, 20, request="r")
        script.release("h1", 30, 40)
        script.grant("h2", 2, call, call + 5, owner="x", request="r")
        return script

    assert linearizable(tried_again(45).history) == []
    assert linearizable(tried_again(22).history) != []


def test_a_late_effect_of_a_lost_release() -> None:
    """A release without an answer may happen long after its client gave up; the next holder needs it."""
    script = Script()
    script.grant("h1", 1, 0, 5, ttl=5000)
    script.release("h1", 10, 20, "unknown")
    script.refused("x", 30, 40)
    script.grant("h2", 2, 50, 60)
    assert check_all(script.history) == []
    script.renew("h1", 70, 80)
    assert linearizable(script.history) != []


def test_a_hold_that_ends_between_two_renewals() -> None:
    """A hold is heard of again after its client was told of its end."""
    script = Script()
    script.grant("h1", 1, 0, 5, ttl=10)
    script.renew("h1", 20, 30, outcome="refused", code="lease-expired")
    assert check_all(script.history) == []
    script.renew("h1", 31, 40, ttl=10)
    assert linearizable(script.history) != []


def test_a_lease_that_was_over_when_its_client_heard_of_it() -> None:
    """A repeated request is told of a lease that has ended: nobody knows since when, and others came next."""
    script = Script()
    late = script.grant("h1", 1, 0, 300, ttl=0)
    late.result["sent_ns"] = 290 * MS
    script.grant("h2", 2, 10, 200)
    assert check_all(script.history) == []
    late.result["expires_in_ms"] = 10
    assert check_all(script.history) != []


def test_a_second_answer_that_a_lease_is_over_says_nothing_of_its_end() -> None:
    """A request is repeated long after its lease has ended, and others had the lock meanwhile."""
    script = Script()
    script.grant("h1", 1, 0, 5, ttl=10, request="r")
    script.grant("h2", 2, 20, 30)
    script.grant("h1", 1, 200, 210, ttl=0, request="r")
    assert linearizable(script.history) == []


def test_an_expired_lease_makes_room() -> None:
    """The end of a lease is nobody's operation, and happens no earlier than it may."""
    script = Script()
    script.grant("h1", 1, 0, 5)
    script.grant("h2", 2, 1, 150, wait_ms=1000, ttl=1000)
    assert check_all(script.history) == []
    script = Script()
    script.grant("h1", 1, 0, 5)
    script.grant("h2", 2, 1, 90, wait_ms=1000, ttl=1000)
    assert len(linearizable(script.history)) == 1


def test_a_grant_that_is_over_when_it_is_told() -> None:
    """A repeated request hears late of a hold whose lease has run out since: others had it meanwhile."""
    script = Script()
    script.grant("h1", 1, 0, 500, ttl=0)
    script.grant("h2", 2, 200, 210)
    script.release("h2", 250, 260)
    script.grant("h3", 3, 510, 520)
    assert not linearizable(script.history)


def test_tokens_that_contradict_the_only_order() -> None:
    """Two concurrent grants whose tokens say one order, and whose answers allow only the other one."""
    script = Script()
    script.grant("h1", 2, 0, 100, ttl=1000)
    script.release("h1", 101, 200)
    script.grant("h2", 1, 99, 300, ttl=1000, wait_ms=1000)
    assert only_the_search_objects(script)


def test_permits_that_had_room() -> None:
    """A request for permits is refused though they are free; with somebody in the queue it may be."""
    script = Script()
    script.grant("h1", 1, 0, 5, kind="sem-acquire", permits=2, limit=3)
    script.add("sem-acquire", "a", 6, 9, "refused", code="no-permits", permits=2, limit=3, owner="x")
    assert check_all(script.history) == []
    script.add("sem-acquire", "a", 6, 9, "refused", code="no-permits", permits=1, limit=3, owner="y")
    assert only_the_search_objects(script)


def test_the_end_of_a_session_is_an_end() -> None:
    """A hold ends with its session: the next one has room then, and the old one is not heard of again."""
    script = Script()
    script.grant("h1", 1, 0, 5, session="s", ttl=5000)
    script.add("session-close", "c", 10, 20, session="s")
    script.grant("h2", 2, 21, 30, ttl=5000)
    assert check_all(script.history) == []
    script.grant("h1", 1, 31, 40, session="s", ttl=5000)
    assert linearizable(script.history) != []


def test_a_fence_that_forgets() -> None:
    """A fence names another highest token than the one that it must have."""
    script = Script()
    script.add("advance", "r", 0, 5, token=7)
    script.add("advance", "r", 6, 9, "refused", code="stale-token", token=3, result={"highest_token": 7})
    assert check_all(script.history) == []
    script.add("advance", "r", 10, 20, "refused", code="stale-token", token=3, result={"highest_token": 5})
    assert linearizable(script.history) != []


def test_a_repeated_outcome_is_no_news() -> None:
    """The same request again tells of a hold that is over: it is not granted twice."""
    script = Script()
    script.grant("h1", 1, 0, 5, request="r")
    script.release("h1", 6, 9)
    script.grant("h1", 1, 10, 15, request="r")
    assert check_all(script.history) == []


def test_an_undecided_search_is_reported() -> None:
    """A search that is given up does not pass."""
    [found] = linearizable(one_after_the_other().history, work_max=1)
    assert found.verdict == "undecided"


def test_every_checker_has_a_name() -> None:
    """The catalogue has the search among the cheap ones."""
    assert CHECKERS["linearizability"] is linearizable


def look(script: Script, call: int, until: int, *tokens: int, owner: str = "") -> None:
    """Add a read of the holders."""
    holders = [{"token": token, "owner": owner} for token in tokens]
    script.add("look", "a", call, until, result={"holders": holders})


def test_reads_see_what_was_answered_before() -> None:
    """While a grant or a release is under way either answer is right."""
    script = one_after_the_other()
    look(script, 1, 3)
    look(script, 2, 4, 1)
    look(script, 10, 15, 1)
    look(script, 22, 27)
    look(script, 40, 41, 2)
    assert check_all(script.history) == []


def test_a_stale_read() -> None:
    """Somebody sees a holder whose release was answered, or none after a grant was."""
    for tokens in ((), (1,), (1, 2)):
        script = one_after_the_other()
        look(script, 40, 41, *tokens)
        assert only_the_search_objects(script)


def test_a_read_may_see_a_grant_of_unknown_outcome() -> None:
    """Its token is known to nobody but the reader."""
    script = Script()
    script.unknown("x", 0, 10)
    look(script, 20, 22, 5, owner="x")
    look(script, 30, 32)
    assert linearizable(script.history) == []


def test_a_lost_request_explains_no_token_that_fits_none() -> None:
    """A released token is seen again, an owner has two tokens for one request, or a stranger has one."""

    def lost_and(*looks: tuple[int, str]) -> bool:
        script = Script()
        script.unknown("x", 0, 10)
        script.grant("h5", 5, 20, 25)
        script.release("h5", 30, 35)
        for number, (token, owner) in enumerate(looks):
            look(script, 40 + 10 * number, 45 + 10 * number, token, owner=owner)
        return linearizable(script.history) == []

    assert lost_and((6, "x"), (6, "x"))
    assert not lost_and((5, "h5"))
    assert not lost_and((4, "x"))
    assert not lost_and((6, "x"), (7, "x"))
    assert not lost_and((6, "stranger"))


def test_a_refusal_shows_only_holders() -> None:
    """Those that a refused client is told of are there when it is refused, if perhaps not all of them."""

    def told(token: int) -> bool:
        script = one_after_the_other()
        refused = script.refused("y", 40, 41)
        refused.result = {"holders": [{"token": token, "owner": "h"}]}
        return linearizable(script.history) == []

    assert told(2)
    assert not told(1)


def test_cells() -> None:
    """A lost deletion may come late, beside one that was done; a refused exchange found another value."""
    script = Script()
    script.add("cell-write", "c", 0, 5, value="v1")
    script.add("cell-write", "c", 10, 15, "refused", code="cell-changed", value="v2", expected="")
    script.add("cell-read", "c", 20, 25, result={"value": "v1"})
    script.add("cell-delete", "c", 30, 35, lost=1)
    script.add("cell-read", "c", 40, 45, "refused", code="cell-not-found")
    script.add("cell-write", "c", 50, 55, value="v3", expected="")
    script.add("cell-read", "c", 60, 65, "refused", code="cell-not-found")
    assert linearizable(script.history) == []
    script.add("cell-read", "c", 70, 75, result={"value": "v3"})
    assert len(linearizable(script.history)) == 1
