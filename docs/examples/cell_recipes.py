"""Recipes made of cells: guarded write, counter, barrier, group membership, queue. See docs/recipes.md.

Each recipe is a few lines over plain HTTP, so that it can be written in any language.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from itertools import chain
from typing import Any

NODE = os.environ.get("HOLDFAST_NODES", "http://127.0.0.1:7700").split(",")[0]
PATIENCE_S = 30.0
"""Seconds for which to ask again when the cluster cannot answer yet."""
PAUSE_S = 0.05


def call(method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    """Return status and body of an answer, asking again while the cluster is not ready (503)."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(NODE + path, data, headers, method=method)  # noqa: S310 - our own node
    give_up_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:  # noqa: S310 - our own node
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as problem:
            if problem.code != HTTPStatus.SERVICE_UNAVAILABLE or time.monotonic() > give_up_s:
                return problem.code, json.load(problem)
            time.sleep(PAUSE_S)


def path_of(key: str) -> str:
    """Return the path of a cell."""
    return f"/v1/cells/{urllib.parse.quote(key)}"


def keys_below(prefix: str) -> list[str]:
    """Return the keys that begin with `prefix`, in order; enough for the small groups of these recipes."""
    _, page = call("GET", f"/v1/cells?limit=1000&prefix={urllib.parse.quote(prefix)}")
    return [cell["key"] for cell in page["cells"]]


# -- guarded write ------------------------------------------------------------------------------------------


def write_guarded(hold_id: str, key: str, value: str) -> bool:
    """Write a cell if this hold is still there; return whether it was. A late writer changes nothing."""
    body = {
        "compare": [{"hold_id": hold_id}],
        "then": [{"put": key, "value": value}],
        "request_id": uuid.uuid4().hex,
    }
    _, answer = call("POST", "/v1/cells/txn", body)
    return bool(answer["succeeded"])


# -- counter ------------------------------------------------------------------------------------------------


def add(key: str, amount: int) -> int:
    """Add to a counter and return what it is now: read, and write only if nobody wrote in between."""
    while True:
        status, cell = call("GET", path_of(key))
        before, version = (int(cell["value"]), cell["version"]) if status == HTTPStatus.OK else (0, 0)
        body = {"value": str(before + amount), "if_version": version, "request_id": uuid.uuid4().hex}
        status, _ = call("PUT", path_of(key), body)
        if status == HTTPStatus.OK:
            return before + amount


# -- barrier ------------------------------------------------------------------------------------------------


def enter(barrier: str, member: str, session_id: str, count: int) -> None:
    """Wait until `count` members have come. One whose session ends does not count any more."""
    call("PUT", path_of(f"{barrier}/in/{member}"), {"value": "", "session_id": session_id})
    body = {
        "compare": [{"key": f"{barrier}/open", "version": 0}],
        "then": [{"put": f"{barrier}/open", "value": ""}],
    }
    while call("GET", path_of(f"{barrier}/open"))[0] != HTTPStatus.OK:
        # Who sees that all are there opens it: then it stays open, even if somebody leaves at once.
        if len(keys_below(f"{barrier}/in/")) >= count:
            call("POST", "/v1/cells/txn", body)
        time.sleep(PAUSE_S)


# -- group membership ---------------------------------------------------------------------------------------


def join(group: str, member: str, address: str, session_id: str) -> None:
    """Be a member, as long as the session lives."""
    call("PUT", path_of(f"{group}/{member}"), {"value": address, "session_id": session_id})


def members(group: str) -> list[str]:
    """Return who is there now. To hear of changes, watch the prefix of the group."""
    return [key.removeprefix(f"{group}/") for key in keys_below(f"{group}/")]


# -- queue --------------------------------------------------------------------------------------------------


def put_in(queue: str, item: str) -> None:
    """Add an item behind the others: the number of its key is drawn from a counter."""
    number = add(f"{queue}/last", 1)
    call("PUT", path_of(f"{queue}/items/{number:012}"), {"value": item})


def take_out(queue: str) -> str | None:
    """Take the first item, None if there is none. Of two that want the same one, one gets it."""
    while True:
        keys = keys_below(f"{queue}/items/")
        if not keys:
            return None
        status, cell = call("GET", path_of(keys[0]))
        if status == HTTPStatus.OK:
            status, answer = call("DELETE", path_of(keys[0]), {"if_version": cell["version"]})
            if status == HTTPStatus.OK and answer["deleted"]:
                return str(cell["value"])


# -- all of them at work ------------------------------------------------------------------------------------


def open_session(owner: str) -> str:
    """Open a session and return its id. A real program keeps it alive."""
    _, session = call("POST", "/v1/sessions", {"ttl_ms": 60_000, "labels": {"owner": owner}})
    return str(session["session_id"])


def main() -> int:
    """Run every recipe, and print what came of it."""
    base = f"recipes/{uuid.uuid4().hex}"
    with ThreadPoolExecutor(3) as pool:
        _, hold = call("POST", "/v1/locks/acquire", {"name": base, "ttl_ms": 60_000})
        first = write_guarded(hold["hold_id"], f"{base}/guarded", "mine")
        call("POST", "/v1/locks/release", {"hold_id": hold["hold_id"]})
        late = write_guarded(hold["hold_id"], f"{base}/guarded", "too late")
        print(f"guarded write: with the lock {first}, without it {late}")

        sums = list(pool.map(lambda _: [add(f"{base}/counter", 1) for _ in range(3)], range(3)))
        print(f"counter: {sorted(chain.from_iterable(sums))}")

        sessions = {name: open_session(name) for name in ("ann", "bob", "eve")}
        list(pool.map(lambda one: enter(f"{base}/barrier", *one, len(sessions)), sessions.items()))
        print("barrier: all three are through")

        for name, session_id in sessions.items():
            join(f"{base}/group", name, "10.0.0.1:80", session_id)
        call("DELETE", f"/v1/sessions/{sessions['bob']}")
        print(f"group: {', '.join(members(f'{base}/group'))}")

        for item in ("one", "two", "three"):
            put_in(f"{base}/queue", item)
        taken = list(pool.map(lambda _: take_out(f"{base}/queue"), range(4)))
        print(f"queue: {sorted(item for item in taken if item)}, then {take_out(f'{base}/queue')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
