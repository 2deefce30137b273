"""Defects of revocation, of waits that ask and of bounds on holding, of what is told of queues, of limits."""

from typing import Final

from lockstate.reads.held import waiter_view
from lockstate.reads.holders import holders_of
from lockstate.rules import semaphores
from lockstate.rules.effects import Effects
from lockstate.rules.holds import grants
from lockstate.rules.pleas import Pleas
from lockstate.rules.sessions import Sessions
from lockstate.rules.waits import Waits
from lockstate.tables.pleas import PleaTable
from lockstate.tables.records import Ask, Hold, Plea, Semaphore, Ticket
from lockstate.words.claims import Claims
from lockstate.words.commands.holds import AcquirePermits, PutOff, Renew
from lockstate.words.commands.overrides import ForceWaits, Revoke, WithdrawRevocation
from lockstate.words.events import Left
from lockstate.words.refusals import Refused
from lockstate.words.results import Granted, Result, WaitsForced
from tests.simulation.mutations.mutation import OPERATED, Mutation, Surroundings, in_namespaces, replaced

_ASKED: Final = Surroundings(minutes=2, client_settings={"vocabulary_share": 0.9, "think_s": 0.15})
_OPERATED: Final = Surroundings(client_settings=OPERATED)
_IN_NAMESPACES: Final = Surroundings(client_settings=OPERATED, around=in_namespaces)


def _never_asked(pleas: Pleas, hold: Hold, command: Revoke) -> bool:
    """Forget what was asked before, also if that was to be done earlier."""
    del pleas, hold, command
    return False


def _put_off_again(pleas: Pleas, command: PutOff) -> Result:
    """Let a holder say "not yet" as often as it likes."""
    for plea in pleas._state.pleas.of_hold(command.hold_id).values():
        if plea.is_put_off:
            pleas._state.ledger.change(plea)
            plea.is_put_off = False
    return _put_off(pleas, command)


_put_off = Pleas.put_off


def _released_in_the_end(pleas: Pleas, plea: Plea) -> None:
    """Ask, and let the hold be when the grace is over."""
    pleas._state.pleas.drop(plea)


def _withdrawn_in_words(pleas: Pleas, command: WithdrawRevocation) -> Result:
    """Tell that what was asked is taken back, and go on counting."""
    table, held = pleas._state.pleas, holders_of(pleas._state, command.kind, command.name)
    asked = [plea for hold in held for plea in table.of_name(hold.hold_id, command.kind, command.name)]
    result = _withdraw(pleas, command)
    for plea in asked:
        if plea.order not in table.rows:
            table.enter(plea)
    return result


def _withdrawn_with_bounds(pleas: Pleas, command: WithdrawRevocation) -> Result:
    """Let a withdrawal end bounds, too."""
    result, table = _withdraw(pleas, command), pleas._state.pleas
    for hold in holders_of(pleas._state, command.kind, command.name):
        for plea in table.of_name(hold.hold_id, command.kind, command.name):
            if plea.is_bound:
                table.drop(plea)
    return result


_withdraw = Pleas.withdraw


def _keep_pleas_of_a_wait(table: PleaTable, ticket: int) -> None:
    """Leave what a wait has asked for when it is over."""
    del table, ticket


def _ask_whomever(pleas: Pleas, ticket: Ticket, hold: Hold) -> bool:
    """Let a wait ask any holder in its way."""
    del pleas, ticket, hold
    return True


def _ask_again(pleas: Pleas, ask: Ask) -> None:
    """Let a wait ask again after the same time."""
    state = pleas._state
    _ask(pleas, ask)
    asks = state.tickets[ask.hold_id].details.asks
    if asks is not None:
        state.pleas.enter_ask(Ask(state.take_order(), state.now_ms + asks.ask_after_ms + 1, ask.hold_id))


_ask = Pleas.ask


def _end_without_notice(pleas: Pleas, plea: Plea) -> None:
    """End what was held for too long, and do not tell its holder before."""
    if plea.is_told:
        _end(pleas, plea)
        return
    pleas._state.ledger.change(plea)
    plea.is_told = True
    pleas._state.deadlines.move(plea, plea.expires_at_ms + plea.grace_ms)


_end = Pleas.end


def _renew_with_bounds(sessions: Sessions, command: Renew) -> Result:
    """Begin the time for which a hold may be held anew with each renewal."""
    result, state = _renew(sessions, command), sessions._state
    for plea in state.pleas.of_hold(command.hold_id).values():
        if plea.is_bound and not plea.is_told:
            state.deadlines.move(plea, max(plea.expires_at_ms, state.now_ms + plea.grace_ms))
    return result


_renew = Sessions.renew


def _force_no_wait(waits: Waits, command: ForceWaits) -> Result:
    """Say of a wait that it has ended, and let it go on."""
    state = waits._state
    queue = enumerate(list(state.tickets.values()), 1)
    meant = [(place, one) for place, one in queue if command.ticket == one.order]
    if not meant:
        return _force_waits(waits, command)
    views = [waiter_view(state, one, command.name, place, command.kind) for place, one in meant]
    return WaitsForced(tuple(views), 0)


_force_waits = Waits.force


def _tell_no_reason(effects: Effects, ticket: Ticket, why: Left) -> None:
    """Say of every wait that its time was over."""
    del why
    _tell_left(effects, ticket, Left.TIMED_OUT)


_tell_left = Effects.tell_left


def _begin_for_another(
    effects: Effects, hold: Hold, claims: Claims, waited_ms: int, ticket: int = 0
) -> Granted:
    """Give the wait that ends the number of the newest one."""
    return _begin(effects, hold, claims, waited_ms, ticket and effects.state.next_order - 1)


_begin = grants.begin


def _any_limit(semaphore: Semaphore, command: AcquirePermits) -> Refused | None:
    """Take who insists on a limit for one who does not."""
    return _check_limit(semaphore, command) if command.permits > semaphore.limit else None


_check_limit = semaphores._check_limit


PLEAS: Final = (
    Mutation(
        name="revocation-postpones-another",
        sentence="A second revocation gives the holder more time.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(Pleas, "_is_asked", _never_asked),
        surroundings=_ASKED,
    ),
    Mutation(
        name="put-off-for-ever",
        sentence="A holder puts off a revocation more than once.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(Pleas, "put_off", _put_off_again),
        surroundings=_ASKED,
    ),
    Mutation(
        name="revocation-has-no-end",
        sentence="A hold that was to be given up lives on when the grace is over.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(Pleas, "end", _released_in_the_end),
        surroundings=_ASKED,
    ),
    Mutation(
        name="withdrawn-revocation-counts",
        sentence="A revocation that was taken back ends the hold all the same.",
        found_by=("reply", "model-state", "model-events", "read-view"),
        apply=replaced(Pleas, "withdraw", _withdrawn_in_words),
        surroundings=_OPERATED,
    ),
    Mutation(
        name="withdrawal-ends-bounds",
        sentence="Whoever takes back a revocation lets the hold be held for ever.",
        found_by=("reply", "model-state", "model-events", "read-view"),
        apply=replaced(Pleas, "withdraw", _withdrawn_with_bounds),
        surroundings=_IN_NAMESPACES,
    ),
    Mutation(
        name="ask-outlives-its-wait",
        sentence="A holder is forced for a wait that asked, and is over.",
        found_by=("reply", "model-state", "model-events", "read-view"),
        apply=replaced(PleaTable, "drop_ticket", _keep_pleas_of_a_wait),
        surroundings=_IN_NAMESPACES,
    ),
    Mutation(
        name="wait-asks-anybody",
        sentence="A wait asks holders of other principals whose priority is as high.",
        found_by=("reply", "model-state", "model-events", "read-view"),
        apply=replaced(Pleas, "_may_ask", _ask_whomever),
        surroundings=_IN_NAMESPACES,
    ),
    Mutation(
        name="wait-asks-again",
        sentence="A wait asks a second time, of holders that came after the first.",
        found_by=("reply", "model-state", "model-events", "read-view"),
        apply=replaced(Pleas, "ask", _ask_again),
        surroundings=_IN_NAMESPACES,
    ),
    Mutation(
        name="bound-without-notice",
        sentence="A hold that was held for too long ends, and its holder was not told before.",
        found_by=("reply", "model-state", "model-events", "read-view"),
        apply=replaced(Pleas, "end", _end_without_notice),
        surroundings=_IN_NAMESPACES,
    ),
    Mutation(
        name="renewal-moves-bounds",
        sentence="A hold that is renewed may be held for longer than its namespace allows.",
        found_by=("reply", "model-state", "model-events", "read-view"),
        apply=replaced(Sessions, "renew", _renew_with_bounds),
        surroundings=_IN_NAMESPACES,
    ),
    Mutation(
        name="forced-wait-goes-on",
        sentence="A wait that an operator ended goes on.",
        found_by=("reply", "model-state", "model-events", "read-view"),
        apply=replaced(Waits, "force", _force_no_wait),
        surroundings=_OPERATED,
    ),
    Mutation(
        name="left-for-another-reason",
        sentence="A wait ends with the wrong reason.",
        found_by=("model-events",),
        apply=replaced(Effects, "tell_left", _tell_no_reason),
        surroundings=_ASKED,
    ),
    Mutation(
        name="grant-of-another-ticket",
        sentence="A grant names the wrong wait.",
        found_by=("queue-told", "model-events"),
        apply=replaced(grants, "begin", _begin_for_another),
        surroundings=_ASKED,
    ),
    Mutation(
        name="strict-limit-ignored",
        sentence="A request that insists on another limit of a semaphore is granted.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(semaphores, "_check_limit", _any_limit),
        surroundings=_ASKED,
    ),
)
