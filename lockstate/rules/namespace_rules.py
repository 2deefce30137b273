"""What a namespace says of what is asked for below it, and the command that sets one.

The longest namespace that covers a name decides as a whole: what it leaves open is not looked up in those
around it. It is looked at when something is asked for: what is held or waited for already stays as it is, but
for the lock-delay and how long something may be held, which are those of the moment in which a hold begins.
"""

from collections.abc import Collection, Iterable
from typing import Final, get_args

from lockstate.rules.checks import invalid
from lockstate.rules.effects import Effects
from lockstate.rules.rates import check_rate
from lockstate.tables.namespaces import Counted, Namespace
from lockstate.tables.records import Hold, names_of
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.commands.admin import SetNamespace
from lockstate.words.commands.holds import Acquire, AcquirePermits, AcquireSeveral, Acquisition, Campaign
from lockstate.words.events import EventKind
from lockstate.words.kinds import HoldKind, IfHeld
from lockstate.words.refusals import Reason, Refused, RefusedInNamespace
from lockstate.words.results import NamespaceSet, Result
from lockstate.words.settings import NamespaceSettings
from lockstate.words.wanted import PRIORITY_DEFAULT, Asking, Uncommon

_SET: Final = NamespaceSet()


def set_namespace(effects: Effects, command: SetNamespace) -> Result:
    """Set a namespace, give one other settings, or remove it."""
    state, prefix, settings = effects.state, command.prefix, command.settings
    table = state.namespaces
    refused = limits.check_prefix(prefix) or limits.check_text(
        "reason", command.reason, limits.REASON_BYTES_MAX
    )
    if refused is None and settings is not None:
        refused = check_settings(settings)
        if refused is None and prefix not in table.rows and len(table.rows) >= limits.NAMESPACES_COUNT_MAX:
            detail = f"the cluster has {len(table.rows)} namespaces; no more are allowed"
            refused = Refused(Reason.OVERLOADED, detail, retry_after_ms=1000)
    if refused is not None:
        return refused
    if settings is not None:
        since = state.next_token, state.next_order, state.cells.revision + 1
        table.put(Namespace(prefix, settings, *since))
        effects.tell_set(EventKind.NAMESPACE_SET, settings, command.reason, name=prefix)
    elif prefix in table.rows:
        table.remove(prefix)
        effects.tell_set(EventKind.NAMESPACE_REMOVED, None, command.reason, name=prefix)
    return _SET


def check_settings(settings: NamespaceSettings) -> Refused | None:
    """Refuse numbers that mean nothing."""
    lowest, highest = settings.ttl_ms_min, settings.ttl_ms_max
    for field, ttl_ms in (("ttl_ms_min", lowest), ("ttl_ms_max", highest)):
        if ttl_ms is not None and limits.check_ttl(ttl_ms) is not None:
            return invalid(f"{field}: {ttl_ms}; must be {limits.TTL_MS_MIN} to {limits.TTL_MS_MAX}")
    if lowest is not None and highest is not None and lowest > highest:
        return invalid(f"ttl_ms_min: {lowest}; must not be above ttl_ms_max, {highest}")
    if settings.if_held is IfHeld.COUNT:
        return invalid("if_held: count: only an acquire can say that; must be renew or refuse")
    delay_ms = settings.lock_delay_ms_min
    if delay_ms is not None:
        refused = limits.check_range("lock_delay_ms_min", delay_ms, limits.LOCK_DELAY_MS_MAX)
        if refused is not None:
            return refused
    held_ms = settings.held_ms_max
    if held_ms is not None and not limits.TTL_MS_MIN <= held_ms <= limits.HELD_MS_MAX:
        return invalid(f"held_ms_max: {held_ms}; must be {limits.TTL_MS_MIN} to {limits.HELD_MS_MAX}")
    numbers = [(what, getattr(settings, what)) for what in get_args(Counted)]
    checks = [
        limits.check_range(what, number, limits.QUOTA_MAX) for what, number in numbers if number is not None
    ]
    checks.append(_check_least(settings))
    if settings.rate is not None:
        checks.append(check_rate(settings.rate.limit, settings.rate.window_ms, "rate."))
    return next(filter(None, checks), None)


def _check_least(settings: NamespaceSettings) -> Refused | None:
    """Refuse numbers of waits that ask which mean nothing."""
    if settings.ask_after_ms_min is None:
        if settings.grace_ms_min is None:
            return None
        return invalid("grace_ms_min: needs ask_after_ms_min, which lets waits ask by themselves")
    return limits.check_range(
        "ask_after_ms_min", settings.ask_after_ms_min, limits.WAIT_MS_MAX
    ) or limits.check_range("grace_ms_min", settings.grace_ms_min or 0, limits.GRACE_MS_MAX)


# -- what may be asked for -----------------------------------------------------------------------------------


def names_asked(command: Acquisition) -> tuple[str, ...]:
    """Return the names for which a command asks for a hold."""
    if command.name or not isinstance(command, Acquire):
        return (command.name,)
    permits = command.permits if isinstance(command, AcquireSeveral) else ()
    return (*[lock.name for lock in command.locks], *[one.name for one in permits])


def check_allowed(state: State, command: Acquire | AcquirePermits) -> Refused | None:
    """Refuse a priority, no deadline, a wait that asks or a lease that is not allowed for a name.

    Of the former two the node that was asked has written into the command for which of its names its own
    settings do not allow it; they count where no namespace says anything.
    """
    asked, names = command.uncommon, names_asked(command)
    if asked is not None:
        refused = _check_priority(state, names, asked) if asked.priority != PRIORITY_DEFAULT else None
        if refused is None and asked.is_endless:
            refused = check_endless(state, names, asked.endless_not_for)
        if refused is None and asked.asks is not None:
            refused = _check_asking(state, names, asked.asks)
        if refused is not None:
            return refused
    return check_ttl(state, names, command.ttl_ms) if state.spaces else None


def check_ttl(state: State, names: Iterable[str], ttl_ms: int) -> Refused | None:
    """Refuse a lease of its own that a namespace of one of these names does not allow; 0 stands for none."""
    for name in names if ttl_ms else ():
        namespace = state.namespaces.innermost(name)
        if namespace is None:
            continue
        lowest = namespace.settings.ttl_ms_min or limits.TTL_MS_MIN
        highest = namespace.settings.ttl_ms_max or limits.TTL_MS_MAX
        if not lowest <= ttl_ms <= highest:
            detail = f"ttl_ms: {ttl_ms}; must be {lowest} to {highest} in the namespace {namespace.prefix!r}"
            return _refused(Reason.TTL_OUT_OF_RANGE, detail, namespace)
    return None


def if_held_of(state: State, command: Acquire | Campaign) -> IfHeld:
    """Return what an acquire or a campaign means if its session holds just that already.

    If it does not say it, the namespaces of its names do: it is refused if one of them wants that.
    """
    if command.if_held is not None:
        return command.if_held
    for name in names_asked(command) if state.spaces else ():
        namespace = state.namespaces.innermost(name)
        if namespace is not None and namespace.settings.if_held is IfHeld.REFUSE:
            return IfHeld.REFUSE
    return IfHeld.RENEW


def _check_priority(state: State, names: Iterable[str], asked: Uncommon) -> Refused | None:
    for name in names:
        namespace = state.namespaces.innermost(name)
        if namespace is None or namespace.settings.priority is None:
            refused = _refused_by_node("priority", f"{asked.priority}", name, asked.priority_not_for)
        elif namespace.settings.priority:
            refused = None
        else:
            refused = _forbidden(f"priority: {asked.priority}", name, namespace)
        if refused is not None:
            return refused
    return None


def check_endless(state: State, names: Iterable[str], not_for: Collection[str]) -> Refused | None:
    """Refuse a hold without a deadline for one of these names.

    `not_for` are those for which the node that was asked does not allow it.
    """
    for name in names:
        namespace = state.namespaces.innermost(name)
        if namespace is None or namespace.settings.no_deadline is None:
            refused = _refused_by_node("no_deadline", "true", name, not_for)
        elif namespace.settings.no_deadline:
            refused = None
        else:
            refused = _forbidden("no_deadline: true", name, namespace)
        if refused is not None:
            return refused
    return None


def _check_asking(state: State, names: Iterable[str], asks: Asking) -> Refused | None:
    """Refuse a wait that asks by itself where no namespace lets it, or that asks too early or too harshly."""
    for name in names:
        namespace = state.namespaces.innermost(name)
        if namespace is None:
            return invalid(f"ask_after_ms: {asks.ask_after_ms}: no namespace allows it for {name!r}")
        settings = namespace.settings
        if settings.ask_after_ms_min is None:
            return _forbidden(f"ask_after_ms: {asks.ask_after_ms}", name, namespace)
        for field, said_ms, lowest_ms in (
            ("ask_after_ms", asks.ask_after_ms, settings.ask_after_ms_min),
            ("grace_ms", asks.grace_ms, settings.grace_ms_min or 0),
        ):
            if said_ms < lowest_ms:
                least = f"must be at least {lowest_ms} in the namespace {namespace.prefix!r}"
                return _refused(Reason.INVALID_REQUEST, f"{field}: {said_ms}; {least}", namespace)
    return None


def _refused_by_node(field: str, value: str, name: str, not_for: Collection[str]) -> Refused | None:
    if name not in not_for:
        return None
    flag = f"setting allow_{field}, flag --allow-{field.replace('_', '-')}"
    return invalid(f"{field}: {value}: neither this node nor a namespace allows it for {name!r} ({flag})")


def _forbidden(what: str, name: str, namespace: Namespace) -> Refused:
    detail = f"{what}: the namespace {namespace.prefix!r} does not allow it for {name!r}"
    return _refused(Reason.INVALID_REQUEST, detail, namespace)


def _refused(reason: Reason, detail: str, namespace: Namespace) -> Refused:
    return RefusedInNamespace(reason, detail, namespace=namespace.prefix)


def held_ms_max_of(state: State, name: str) -> int | None:
    """Return how long one hold may have a name that it is granted now; None if that has no bound."""
    namespace = state.namespaces.innermost(name)
    return None if namespace is None else namespace.settings.held_ms_max


def delay_of(state: State, hold: Hold) -> int:
    """Return the lock-delay of a hold that begins, or has other names: its namespaces may want a longer one.

    An election has none.
    """
    delay_ms = hold.details.lock_delay_ms
    if not state.spaces or hold.kind is HoldKind.ELECTION:
        return delay_ms
    found = [state.namespaces.innermost(name) for name in names_of(hold)]
    return max([delay_ms, *[one.settings.lock_delay_ms_min or 0 for one in found if one is not None]])
