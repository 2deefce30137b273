"""Defects of what operators do to what others have, and of sessions that live by another ttl."""

from typing import Any, Final

import msgspec

import lockstate.machine
import lockstate.rules.fences
import lockstate.rules.forgotten_rates
from lockstate.catalogue import request_key
from lockstate.reads.holders import holders_of
from lockstate.rules import cluster_acts, freezes
from lockstate.rules.effects import Effects
from lockstate.rules.holds import waiting
from lockstate.rules.kinded import Kinds
from lockstate.rules.sessions import Sessions
from lockstate.tables import queues
from lockstate.tables.claim_table import Freed
from lockstate.tables.delays import delays_of, end_delay
from lockstate.tables.freezes import FrozenPrefixes
from lockstate.tables.records import Hold, Session, Ticket
from lockstate.tables.state import State
from lockstate.words.claims import Claims
from lockstate.words.commands.admin import RecordAct
from lockstate.words.commands.entries import Command
from lockstate.words.commands.overrides import (
    ForceCloseSession,
    ForceRelease,
    ForgetFence,
    ForgetRates,
    LiftDelay,
)
from lockstate.words.commands.sessions import KeepAlive
from lockstate.words.events import EventKind
from lockstate.words.results import DelaysLifted, FenceForgotten, RatesForgotten, Result, SessionForced
from tests.simulation.mutations.mutation import OPERATED, Mutation, Surroundings, replaced

_OPERATED: Final = Surroundings(minutes=2, client_settings={"vocabulary_share": 0.9, "think_s": 0.15})

_end = Sessions.end


def _end_in_order(sessions: Sessions, session: Session, kind: EventKind, reason: str = "") -> tuple[str, ...]:
    """Let holds of a forced session end as if they had been released, without their delays."""
    return _end(sessions, session, EventKind.RELEASED if kind is EventKind.FORCED else kind, reason)


def _forced_and_alive(sessions: Sessions, command: ForceCloseSession) -> Result:
    """Say that a session has ended, and end nothing."""
    for session in sessions._state.sessions.values():
        if f"s-{session.order}" == command.session_name:
            return SessionForced(command.session_name, session.owner, ())
    return _force_close(sessions, command)


_force_close = Sessions.force_close


def _lift_and_serve_nobody(kinds: Kinds, command: LiftDelay) -> Result:
    """Leave those that wait to the next end of something."""
    state = kinds._state
    delays = delays_of(state, command.kind, command.name)
    left_ms = max([delay.expires_at_ms - state.now_ms for delay in delays], default=0)
    for delay in delays:
        kinds._effects.tell_lifted(delay, command.reason)
        end_delay(state, delay)
    return DelaysLifted(len(delays), max(left_ms, 0))


def _can_go_while_frozen(state: State, ticket: Ticket, claims: Claims, *ended: Any) -> bool:
    """Let a ticket pass a freeze that newcomers do not pass."""
    frozen, state.freezes = state.freezes, FrozenPrefixes(state.deadlines, state.ledger)
    try:
        return _can_go(state, ticket, claims, *ended)
    finally:
        state.freezes = frozen


_can_go = queues.can_go


def _thaw_and_serve_nobody(state: State, prefix: str) -> Freed:
    """Leave those that wait below a prefix to the next end of something."""
    del state, prefix
    return []


def _forget_nothing(effects: Effects, command: ForgetFence) -> Result:
    """Say that a token was forgotten, and keep it."""
    highest = effects.state.fences.get(command.name)
    if highest is not None:
        effects.tell_forgotten(command.name, highest, command.reason)
    return FenceForgotten(highest)


def _forget_no_rates(effects: Effects, command: ForgetRates) -> Result:
    """Say that rate limits were forgotten, and count on."""
    found = list(effects.state.rates.named(command.name, is_prefix=command.is_prefix))
    for limiter in found:
        effects.tell_rate_forgotten(limiter, command.reason)
    return RatesForgotten(len(found))


def _ttl_kept(sessions: Sessions, command: KeepAlive) -> Result:
    """Keep a session alive with the ttl that it has."""
    return _keep_alive(sessions, KeepAlive(command.session_id))


_keep_alive = Sessions.keep_alive


def _force_all(kinds: Kinds, command: ForceRelease) -> Result:
    """End every hold of a name, also those that came behind the one that is meant."""
    return _force_release(kinds, msgspec.structs.replace(command, token=0))


def _force_the_first(kinds: Kinds, command: ForceRelease) -> Result:
    """End one hold of a name, however many there are."""
    of_name = holders_of(kinds._state, command.kind, command.name)
    token = command.token or next((hold.token for hold in of_name), 0)
    return _force_release(kinds, msgspec.structs.replace(command, token=token))


def _force_without_delay(kinds: Kinds, command: ForceRelease) -> Result:
    """Let the next one in at once, whatever delay the operator asks for."""
    return _force_release(kinds, msgspec.structs.replace(command, lock_delay_ms=0))


_force_release = Kinds.force_release


def _extend_by_the_newest(state: State, lease: Hold | Session) -> None:
    """Let a shorter ttl count at once."""
    state.deadlines.move(lease, state.now_ms + lease.ttl_ms)


def _no_key_of_an_act(command: Command) -> tuple[str, str] | None:
    """Take a request to record an act for a new one each time."""
    return None if isinstance(command, RecordAct) else _request_key(command)


_request_key = request_key


def _prefer_for_ever(effects: Effects, node_id: str, reason: str) -> None:
    """Let a node be preferred on."""


OVERRIDES: Final = (
    Mutation(
        name="act-recorded-twice",
        sentence="A repeated request records once more what an operator does to the members.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(lockstate.machine, "request_key", _no_key_of_an_act),
        surroundings=Surroundings(client_settings=OPERATED),
    ),
    Mutation(
        name="preference-outlives-its-end",
        sentence="A node is preferred on when nobody is to be, or when it is to be removed.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(cluster_acts, "_end_preference", _prefer_for_ever),
        surroundings=Surroundings(client_settings=OPERATED),
    ),
    Mutation(
        name="forced-session-leaves-no-delays",
        sentence="The holds of a session that is ended by force leave no lock-delays.",
        found_by=("reply", "model-state", "model-events", "delay-kept"),
        apply=replaced(Sessions, "end", _end_in_order),
        surroundings=_OPERATED,
    ),
    Mutation(
        name="forced-session-lives",
        sentence="A session that is ended by force lives on.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(Sessions, "force_close", _forced_and_alive),
        surroundings=_OPERATED,
    ),
    Mutation(
        name="lifted-delay-serves-nobody",
        sentence="A waiter goes on waiting after the delay was lifted.",
        found_by=("model-events", "model-state", "reply"),
        apply=replaced(Kinds, "lift_delay", _lift_and_serve_nobody),
        surroundings=_OPERATED,
    ),
    Mutation(
        name="waiter-passes-a-freeze",
        sentence="A waiter is granted what it waits for while that is frozen.",
        found_by=("model-events", "model-state", "reply"),
        apply=replaced(waiting, "can_go", _can_go_while_frozen),
        surroundings=_OPERATED,
    ),
    Mutation(
        name="thaw-serves-nobody",
        sentence="A waiter goes on waiting after the prefix was thawed.",
        found_by=("model-events", "model-state", "reply"),
        apply=replaced(freezes, "_freed", _thaw_and_serve_nobody),
        surroundings=_OPERATED,
    ),
    Mutation(
        name="forgotten-fence-stays",
        sentence="A fence that was forgotten refuses what it refused before.",
        found_by=("reply", "model-state"),
        apply=replaced(lockstate.rules.fences, "forget", _forget_nothing),
        surroundings=_OPERATED,
    ),
    Mutation(
        name="forgotten-rate-limit-counts-on",
        sentence="A rate limit that was forgotten counts what was taken before.",
        found_by=("reply", "model-state"),
        apply=replaced(lockstate.rules.forgotten_rates, "forget", _forget_no_rates),
        surroundings=_OPERATED,
    ),
    Mutation(
        name="ttl-not-changed",
        sentence="A keepalive with another ttl leaves the old one.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(Sessions, "keep_alive", _ttl_kept),
        surroundings=_OPERATED,
    ),
    Mutation(
        name="force-of-one-ends-all",
        sentence="A force of one hold ends all that are held under the name.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(Kinds, "force_release", _force_all),
        surroundings=_OPERATED,
    ),
    Mutation(
        name="force-of-all-ends-one",
        sentence="A force of all that is held under a name ends the first hold only.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(Kinds, "force_release", _force_the_first),
        surroundings=_OPERATED,
    ),
    Mutation(
        name="force-leaves-no-delay",
        sentence="A force leaves no delay but the one of the hold.",
        found_by=("reply", "model-state", "model-events", "delay-kept"),
        apply=replaced(Kinds, "force_release", _force_without_delay),
        surroundings=_OPERATED,
    ),
    Mutation(
        name="shorter-ttl-counts-at-once",
        sentence="A shorter ttl takes back time that was promised.",
        found_by=("reply", "model-state", "model-events", "lease-early", "exclusion"),
        apply=replaced(State, "extend", _extend_by_the_newest),
        surroundings=_OPERATED,
    ),
)
