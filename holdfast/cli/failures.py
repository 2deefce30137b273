"""What failures mean to people and scripts: a sentence, what to do next, and an exit code."""

import argparse
import re
from typing import Final

from holdfast.cli import cells, cluster, exit_codes, force
from holdfast.cli.printing import say
from holdfast.cli.waiting import spoken
from holdfast.values import errors

HOLDERS_NAMED: Final = 3
"""How many of those that hold a lock are named."""
_WAIT_LONGER: Final = "wait longer, with --wait; `--wait forever` waits for as long as it takes"

_FAILURES: Final[tuple[tuple[type[errors.LockError], int, str], ...]] = (
    (errors.LockHeld, exit_codes.CONFLICT, "wait for it with --wait 1m"),
    (errors.RateLimited, exit_codes.CONFLICT, "wait for it with --wait 1m"),
    (
        errors.Compacted,
        exit_codes.REFUSED,
        "look at what there is now, and watch from now on, without --since",
    ),
    (
        errors.LeaseExpired,
        exit_codes.REFUSED,
        "the hold was over already; run what must last longer under `holdfast run`",
    ),
    (
        errors.AccessDenied,
        exit_codes.REFUSED,
        "nothing was changed; check HOLDFAST_ACCESS_TOKEN_FILE, and the tokens file of the nodes",
    ),
    (errors.Refused, exit_codes.REFUSED, "nothing was changed; see `holdfast {} --help`"),
    (
        errors.TlsRefused,
        exit_codes.UNAVAILABLE,
        "nothing was changed; check HOLDFAST_CA, HOLDFAST_CERT, HOLDFAST_KEY and the nodes' files",
    ),
    (
        errors.Unavailable,
        exit_codes.UNAVAILABLE,
        "nothing was changed; are these nodes running? (--nodes, HOLDFAST_NODES)",
    ),
    (errors.OutcomeUnknown, exit_codes.UNKNOWN, "it may have been done; look with `holdfast get NAME`"),
    (
        errors.LeaseLost,
        exit_codes.LOST,
        "somebody else may hold the lock now; check what the command has done",
    ),
)
"""The exit code of each failure, and what to do next. The first row that fits counts."""
_STARTING: Final = (
    "nothing was changed; repeat it when the node has started, or give it longer with --timeout"
)
_ENDED: Final = "nothing was changed; see who has the lock now with `holdfast get NAME`"
_TOO_SHORT: Final = frozenset({"expired", "session-expired", ""})
"""How holds end that had too short a lease; not known: perhaps they had."""
_OTHER_KIND: Final = "nothing was changed; say what is held with --kind, such as --kind election"
_HOLD_ID: Final = re.compile(r"[0-9a-f]{32}")
"""What a hold_id looks like that a node has made."""
_MISSING: Final = {
    force.NOTHING: "look at what there is with `holdfast get` or `holdfast list`",
    cells.MISSING: "look at what there is with `holdfast cell list`",
}
"""What to do next when a thing that a command names does not exist, by the code of the failure."""


def explained(error: errors.LockError | OSError | ValueError, arguments: argparse.Namespace) -> int:
    """Say what failed and what to do, and return the exit code. Raises BrokenPipeError if nobody reads."""
    if isinstance(error, errors.LockError):
        return _of_cluster(error, arguments)
    if isinstance(error, OSError):
        return _of_system(error, arguments)
    return fail(exit_codes.USAGE, str(error), f"see `holdfast {_words(arguments)} --help`")


def _is_name(given: str | None) -> bool:
    """Whether somebody gave something else, such as the name of a lock, where a hold_id belongs."""
    return given is not None and given != "-" and given[:1] != "{" and not _HOLD_ID.fullmatch(given)


def _of_cluster(error: errors.LockError, arguments: argparse.Namespace) -> int:
    """Explain why the cluster did not do it."""
    code, hint = next(row[1:] for row in _FAILURES if isinstance(error, row[0]))
    if arguments.command == "cluster":
        hint = cluster.hint(error) or hint
    if isinstance(error, errors.LeaseExpired) and _is_name(getattr(arguments, "hold_id", None)):
        hint = (
            "give the hold_id that `holdfast acquire` printed, not a name; "
            "`holdfast force release NAME` ends holds by name"
        )
    elif isinstance(error, errors.LeaseExpired) and _ending(error) not in _TOO_SHORT:
        hint = _ENDED
    if isinstance(error, errors.Refused) and error.code == "wrong-kind" and hasattr(arguments, "kind"):
        hint = _OTHER_KIND
    if isinstance(error, errors.Unavailable) and error.code == "not-ready":
        hint = _STARTING
    if isinstance(error, errors.Refused) and error.code in _MISSING:
        return fail(code, error.detail, _MISSING[error.code])
    if isinstance(error, errors.LockHeld | errors.RateLimited):
        code = getattr(arguments, "conflict_exit_code", code)
    if isinstance(error, errors.LockHeld):
        return fail(code, _held(error, arguments), _WAIT_LONGER if getattr(arguments, "wait", None) else hint)
    return fail(code, str(error), hint.format(_words(arguments)))


def _ending(error: errors.LeaseExpired) -> str:
    """Return the event by which a hold ended, as far as the cluster remembers."""
    ended = error.problem.get("ended")
    return str(ended.get("event", "")) if isinstance(ended, dict) else ""


def _of_system(error: OSError, arguments: argparse.Namespace) -> int:
    """Explain what this machine did not do. Raises BrokenPipeError if nobody reads."""
    if arguments.takes_command:
        code = exit_codes.NOT_FOUND if isinstance(error, FileNotFoundError) else exit_codes.NOT_RUNNABLE
        return fail(code, str(error), "the command could not be started; the lock is released")
    if isinstance(error, BrokenPipeError):
        raise error
    if arguments.alone is not None:
        what = f"{error.filename}: {error.strerror}"
        return fail(exit_codes.REFUSED, what, "nothing was replaced; put that right and repeat the command")
    return fail(exit_codes.REFUSED, str(error), "the answer could not be printed")


def _held(error: errors.LockHeld, arguments: argparse.Namespace) -> str:
    """Say who has what was asked for, and how long its lease goes on if it is not renewed."""
    holders = error.problem.get("holders")
    if not isinstance(holders, list) or not all(isinstance(holder, dict) for holder in holders):
        return str(error)
    texts = []
    for holder in holders[:HOLDERS_NAMED]:
        known = [f"token {holder['token']}"] if "token" in holder else []
        if "expires_in_ms" in holder:
            known.append(f"{spoken(holder['expires_in_ms'] / 1000)} of its lease left")
        texts.append(f"{holder.get('owner')} ({', '.join(known)})" if known else str(holder.get("owner")))
    more = len(holders) - len(texts)
    texts += [f"{more} more"] if more else []
    return f"{getattr(arguments, 'name', 'it')!r} is held by {', '.join(texts)}" if texts else str(error)


def _words(arguments: argparse.Namespace) -> str:
    """Return the words of the command."""
    return " ".join(filter(None, (arguments.command, getattr(arguments, "action", None))))


def fail(code: int, what: str, hint: str) -> int:
    """Say what is wrong, and what to do; return the exit code."""
    say(what, hint)
    return code
