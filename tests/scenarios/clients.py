"""The clients of a scenario, and how a line that they speak becomes a command.

    C open ttl=3 [owner=, label:KEY=VALUE, request=]          C keepalive / C close [request=]
    C acquire NAME [shared | update, subtree, ttl=, wait=, delay=, note=, owner=, request=, held=, priority=]
        with [ask_after=, grace=] a wait asks by itself who is in its way
    C acquire a, b shared, c subtree [...]                    several locks, all or none
    C acquire ... [value=, secret=yes]                        a hold that carries a value
    C acquire ... deadline=none                               a hold that ends when somebody ends it
    C release KIND NAME value= [request=] / C renew KIND NAME value= [ttl=, request=]
    C acquire together a, 2 permits of q, 1 in 60 of rate [limit=, ...]    several kinds, all or none
    C acquire 2 permits of NAME limit=3 [...]                 of a semaphore
    C acquire 2 permits of NAME [limit=3, strict=yes | no]    of one that may have another limit
    C convert NAME MODE [wait=, request=]                     C renew NAME [ttl=, exact=, request=]
    C add a, b shared to NAME [wait=, request=]               more locks for the hold that has NAME
    C release NAME [request=] / C release only a, b           the hold that has NAME, or a part of it
    C cancel NAME [attempt=] / C cancel conversion of NAME    as a node does when the client went away
    C campaign NAME value= [wait=, owner=, held=, request=]   C proclaim NAME value= / C resign NAME
    C take 2 from NAME limit= window= [algorithm=, wait=, request=]
    C advance NAME token= [request=]                          C resize NAME to LIMIT [reason=]
    C put KEY VALUE [if version N | if holding NAME] [ttl=, request=]         a cell, else it is read
    C delete KEY / C delete below PREFIX [request=]
    C force-release NAME reason= [delay=, request=]
    C force KIND NAME reason= [token=, delay=, request=]      of any kind, all holders or one
    C end session NAME reason= [request=]                     by its public name: s-1 is the first
    C end waits KIND NAME reason= [ticket=, request=]         all waits for it, or the one of this number
    C freeze PREFIX reason= [for=, request=]                  grant nothing new there
    C thaw PREFIX reason= [request=]
    C lift KIND NAME reason= [request=]                       the delays of a lock or a semaphore
    C revoke KIND NAME reason= grace= [token=, ticket=, request=]  ask holders to give up
    C put off NAME as KIND [request=]                         say "not yet"
    C withdraw revocation KIND NAME reason= [token=, ticket=, request=]  ask no more
    C forget fence NAME reason= [request=]                    C keepalive ttl=
    C quota PRINCIPAL [sessions=, cells=, ..., reason=, request=]  bound what a principal may have, or not
    C namespace PREFIX [holds=, ttl_ms_max=, no_deadline=yes, ..., reason=, request=]   set one, or remove it
    C resume / C number N [epoch=] LINE                       a stream, and a line that is numbered
    C hand over NAME ticket=N | to=s-N [request=]             to a wait, or to the session of this public name
    C release NAME as KIND / C renew NAME as KIND [ttl=]      by the call for holds of this kind

A client that has opened a session acquires for it unless it gives a ttl. An underscore in a note, a reason or
a value is a space. NAME@2 is the hold of the second time that a client asked for NAME; without @, it is the
last one.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from lockstate.words.cell_operations import (
    CellCompare,
    CellField,
    Compare,
    GetOperation,
    HoldCompare,
    PutOperation,
)
from lockstate.words.commands.admin import HoldRules, PreferLeader, RecordAct, SetNamespace, SetQuota
from lockstate.words.commands.cells import DeleteCells, PutCell, TransactCells
from lockstate.words.commands.entries import Cancel, Command
from lockstate.words.commands.holds import (
    Acquire,
    AcquirePermits,
    AcquireSeveral,
    AddLocks,
    Campaign,
    Convert,
    HandOver,
    Proclaim,
    PutOff,
    Release,
    ReleaseByValue,
    Renew,
    RenewByValue,
)
from lockstate.words.commands.overrides import (
    ForceCloseSession,
    ForceRelease,
    ForceWaits,
    ForgetFence,
    ForgetRates,
    Freeze,
    LiftDelay,
    Revoke,
    Thaw,
    WithdrawRevocation,
)
from lockstate.words.commands.primitives import AdvanceFence, ResizeSemaphore, TakeRate
from lockstate.words.commands.sessions import CloseSession, KeepAlive, OpenSession
from lockstate.words.commands.streams import Numbered, NumberedCommand, ResumeStream
from lockstate.words.ids import NO_SESSION, AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.kinds import Algorithm, ClusterAct, HoldKind, IfHeld
from lockstate.words.modes import Mode, Scope
from lockstate.words.settings import NamespaceSettings, Quota
from lockstate.words.wanted import PRIORITY_DEFAULT, Asking, Uncommon, Wanted, WantedPermits, WantedRate

_OPTION = re.compile(r"([a-z:_-]+)=(.*)")
_LABEL = "label:"


def milliseconds(text: str) -> int:
    """Return what `text` says in seconds."""
    return round(float(text) * 1000)


@dataclass
class Client:
    """What a client remembers between its calls."""

    name: str
    has_session: bool = False
    epoch: int = 0
    last: int = 0
    """How many connections its stream has had, and the highest number that it gave."""
    holds: dict[str, HoldId] = field(default_factory=dict)
    """By lock: the hold id of the last acquire. Each of several locks has that of all."""
    conversions: dict[str, HoldId] = field(default_factory=dict)
    """By lock: the id under which the last conversion waits."""
    tokens: dict[str, int] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    """By lock: how often it was tried."""

    @property
    def session_id(self) -> SessionId:
        """The session that it opens."""
        return SessionId(f"{self.name}-session")


@dataclass(frozen=True)
class PendingRequest:
    """A request that may wait: the names of its locks, and the holds that the client had of them before."""

    client: Client
    names: tuple[str, ...]
    before: dict[str, HoldId]


@dataclass
class Line:
    """A command as it is written: words, and options with a value."""

    words: list[str]
    options: dict[str, str]

    @classmethod
    def of(cls, arguments: list[str]) -> "Line":
        """Return the line behind its verb."""
        found = [(word, _OPTION.fullmatch(word)) for word in arguments]
        options = {match[1]: match[2] for _, match in found if match}
        return cls([word for word, match in found if not match], options)

    def ms(self, name: str) -> int:
        """Return an option that is a time; 0 if it is not given."""
        return milliseconds(self.options.get(name, "0"))

    def text(self, name: str) -> str:
        """Return an option that is a text for people."""
        return self.options.get(name, "").replace("_", " ")

    @property
    def request_id(self) -> str:
        """The option that most commands have."""
        return self.options.get("request", "")


def _settings_of(options: dict[str, str]) -> NamespaceSettings | None:
    """Return what a namespace is to say, None if that is nothing."""
    said: dict[str, Any] = {
        key: {"yes": True, "no": False}.get(options[key], options[key])
        for key in NamespaceSettings.__struct_fields__
        if key in options
    }
    numbers: dict[str, Any] = {
        key: int(value) if isinstance(value, str) else value for key, value in said.items()
    }
    return NamespaceSettings(**numbers) if numbers else None


class CommandParser:
    """Turns lines of clients into commands. The ids in them show whose they are."""

    def __init__(self) -> None:
        self.attempts: dict[str, PendingRequest] = {}
        """By hold id, or ticket id of a conversion."""

    def command(self, client: Client, verb: str, arguments: list[str]) -> Command:  # noqa: C901, PLR0912 - a table
        """Return the command that a line stands for."""
        line = Line.of(arguments)
        match verb, line.words:
            case "quota", [principal]:
                numbers = {
                    key: int(line.options[key]) for key in Quota.__struct_fields__ if key in line.options
                }
                quota = Quota(**numbers) if numbers else None
                return SetQuota(principal, quota, line.options.get("request", ""), line.text("reason"))
            case "namespace", [prefix]:
                request_id = line.options.get("request", "")
                return SetNamespace(prefix, _settings_of(line.options), request_id, line.text("reason"))
            case "record", [act, *node_and_peer]:
                node_id, peer = [*node_and_peer, "", ""][:2]
                request_id = line.options.get("request", "")
                return RecordAct(ClusterAct(act), node_id, peer, line.text("reason"), request_id)
            case "rules", ["hold" | "release" as how]:
                return HoldRules(how == "hold", line.text("reason"), line.options.get("request", ""))
            case "prefer", [node_id]:
                preferred = "" if node_id == "nobody" else node_id
                return PreferLeader(preferred, line.text("reason"), line.options.get("request", ""))
            case "resume", []:
                client.epoch += 1
                return ResumeStream(client.session_id)
            case "number", [first, *words] if words:
                return self._frame(client, int(first), arguments[1:])
            case "open", []:
                return _open(client, line)
            case "keepalive", []:
                ttl_ms = line.ms("ttl")
                return KeepAlive(client.session_id, ttl_ms)
            case "close", []:
                return CloseSession(client.session_id, line.request_id)
            case "acquire", [permits, "permit" | "permits", "of", name]:
                fields = self._ids(client, (name,)) | _terms(client, line)
                fields |= {"name": name, "limit": int(line.options.get("limit", 0)), "permits": int(permits)}
                return _permits(fields, line)
            case "acquire", ["together", *words]:
                return self._several(client, words, line)
            case "acquire", words:
                return self._acquire(client, words, line)
            case "put", ["off", name, "as", kind]:
                return PutOff(client.holds[name], HoldKind(kind), line.request_id)
            case "put" | "delete", _:
                return _of_cells(client, verb, line)
            case "campaign", [name]:
                fields = self._ids(client, (name,))
                wait_ms, owner = line.ms("wait"), OwnerName(line.options.get("owner", ""))
                return Campaign(
                    name,
                    client.session_id,
                    line.text("value"),
                    owner=owner,
                    wait_ms=wait_ms,
                    request_id=line.request_id,
                    if_held=_if_held(line),
                    **fields,
                )
            case "add", [*words, "to", name]:
                return self._add(client, words, name, line)
            case "convert", [name, mode]:
                return self._convert(client, name, Mode(mode), line)
        return self._with_hold(client, verb, line) or _without_hold(verb, line)

    def _with_hold(self, client: Client, verb: str, line: Line) -> Command | None:
        """Return the command about a hold that `client` has, or thinks that it has."""
        match verb, line.words:
            case "renew", [name]:
                return Renew(
                    client.holds[name], line.ms("ttl"), line.request_id, exact="exact" in line.options
                )
            case "release", ["only", *words]:
                names = tuple(" ".join(words).replace(",", " ").split())
                return Release(client.holds[names[0]], line.request_id, names)
            case "renew", [name, "as", kind]:
                return Renew(client.holds[name], line.ms("ttl"), line.request_id, HoldKind(kind))
            case "release", [name, "as", kind]:
                return Release(client.holds[name], line.request_id, (), HoldKind(kind))
            case "hand", ["over", name]:
                to = line.options.get("to", "")
                new_id = HoldId(f"{name}-given-to-{to}" if to else "")
                ticket = int(line.options.get("ticket", 0))
                return HandOver(client.holds[name], ticket, to, new_id, line.request_id)
            case "release" | "resign", [name]:
                return Release(client.holds[name], line.request_id)
            case "cancel", ["conversion", "of", name]:
                return Cancel(client.conversions[name], AttemptId(f"attempt-{client.attempts[name]}"))
            case "cancel", [name]:
                attempt = line.options.get("attempt", client.attempts[name])
                return Cancel(client.holds[name], AttemptId(f"attempt-{attempt}"))
            case "proclaim", [name]:
                return Proclaim(client.holds[name], line.text("value"), line.request_id)
        return None

    def _frame(self, client: Client, first: int, arguments: list[str]) -> Numbered:
        """Return a frame of one command, on the client's newest connection or on that of `epoch`."""
        epoch = int(Line.of(arguments).options.get("epoch", client.epoch))
        rest = [word for word in arguments if not word.startswith("epoch=")]
        holds = dict(client.holds)
        command = self.command(client, rest[0], rest[1:])
        if first <= client.last:
            client.holds = holds  # the first attempt counts
        client.last = max(client.last, first)
        assert isinstance(command, NumberedCommand)
        return Numbered(1, client.session_id, epoch, first, (), (command,))

    def _acquire(self, client: Client, words: list[str], line: Line) -> Acquire:
        wanted = [_wanted(part.split()) for part in " ".join(words).split(",")]
        fields = self._ids(client, tuple(lock.name for lock in wanted)) | _terms(client, line)
        fields["if_held"] = _if_held(line)
        if len(wanted) > 1:
            return Acquire(name="", mode=Mode.EXCLUSIVE, locks=tuple(wanted), **fields)
        return Acquire(name=wanted[0].name, mode=wanted[0].mode, scope=wanted[0].scope, **fields)

    def _several(self, client: Client, words: list[str], line: Line) -> AcquireSeveral:
        """Return an acquire of several kinds: of locks, "2 permits of NAME", and "1 in SECONDS of NAME"."""
        locks: list[Wanted] = []
        permits: list[WantedPermits] = []
        rates: list[WantedRate] = []
        for part in " ".join(words).split(","):
            match part.split():
                case [count, "permit" | "permits", "of", name]:
                    permits.append(WantedPermits(name, int(line.options.get("limit", 0)), int(count)))
                case [limit, "in", window, "of", name]:
                    rates.append(WantedRate(name, int(limit), milliseconds(window)))
                case wanted:
                    locks.append(_wanted(wanted))
        names = tuple([one.name for one in locks] + [one.name for one in permits])
        fields = self._ids(client, names) | _terms(client, line)
        fields |= {"locks": tuple(locks), "permits": tuple(permits), "rates": tuple(rates)}
        return AcquireSeveral(name="", mode=Mode.EXCLUSIVE, **fields)

    def _convert(self, client: Client, name: str, mode: Mode, line: Line) -> Convert:
        hold_id = client.holds[name]
        attempt = client.attempts[name] = client.attempts[name] + 1
        ticket_id = client.conversions[name] = HoldId(f"{client.name}-{name}-converts-{attempt}")
        self.attempts[ticket_id] = PendingRequest(client, self.attempts[hold_id].names, {})
        return Convert(
            hold_id, mode, ticket_id, AttemptId(f"attempt-{attempt}"), line.ms("wait"), line.request_id
        )

    def _add(self, client: Client, words: list[str], name: str, line: Line) -> AddLocks:
        hold_id = client.holds[name]
        attempt = client.attempts[name] = client.attempts[name] + 1
        wanted = tuple([_wanted(part.split()) for part in " ".join(words).split(",")])
        ticket_id = HoldId(f"{client.name}-{name}-adds-{attempt}")
        names = tuple([lock.name for lock in wanted])
        self.attempts[ticket_id] = PendingRequest(client, (*self.attempts[hold_id].names, *names), {})
        client.holds.update(dict.fromkeys(names, hold_id))
        return AddLocks(
            hold_id, wanted, ticket_id, AttemptId(f"attempt-{attempt}"), line.ms("wait"), line.request_id
        )

    def _ids(self, client: Client, names: tuple[str, ...]) -> dict[str, Any]:
        """Return new ids for a hold and the attempt to get it."""
        whole = "+".join(names)
        attempt = client.attempts.get(whole, 0) + 1
        hold_id = HoldId(f"{client.name}-{whole}-{attempt}")
        self.attempts[hold_id] = PendingRequest(
            client, names, {name: client.holds[name] for name in names if name in client.holds}
        )
        for name in {*names, whole, f"{whole}@{attempt}"}:
            client.attempts[name], client.holds[name] = attempt, hold_id
        return {"hold_id": hold_id, "attempt_id": AttemptId(f"attempt-{attempt}")}


def _of_cells(client: Client, verb: str, line: Line) -> Command:
    match verb, line.words:
        case "delete", ["below", prefix]:
            return DeleteCells(prefix.encode(), is_prefix=True, request_id=line.request_id)
        case "delete", [key]:
            return DeleteCells(key.encode(), request_id=line.request_id)
    key, value, *condition = line.words
    for_session = client.has_session and "ttl" not in line.options
    session_id = client.session_id if for_session else NO_SESSION
    put = PutOperation(key.encode(), value.encode(), session_id, line.ms("ttl"))
    match condition:
        case []:
            return PutCell(put.key, put.value, put.session_id, put.ttl_ms, line.request_id)
        case ["if", "version", number]:
            compare: Compare = CellCompare(put.key, CellField.VERSION, number=int(number))
        case ["if", "holding", name]:
            compare = HoldCompare(client.holds[name])
        case _:
            raise ValueError(f"no such condition: {condition}")
    return TransactCells((compare,), (put,), (GetOperation(put.key),), line.request_id)


def _open(client: Client, line: Line) -> OpenSession:
    client.has_session = True
    labels = {"owner": line.options.get("owner", client.name)}
    labels |= {
        key.removeprefix(_LABEL): value for key, value in line.options.items() if key.startswith(_LABEL)
    }
    return OpenSession(client.session_id, line.ms("ttl"), labels, line.request_id)


def _if_held(line: Line) -> IfHeld | None:
    return IfHeld(line.options["held"]) if "held" in line.options else None


def _terms(client: Client, line: Line) -> dict[str, Any]:
    """Return the fields that every kind of hold has."""
    for_session = client.has_session and not {"ttl", "deadline"} & line.options.keys()
    return {
        "session_id": client.session_id if for_session else "",
        "ttl_ms": line.ms("ttl"),
        "owner": line.options.get("owner", "" if for_session else client.name),
        "wait_ms": line.ms("wait"),
        "request_id": line.request_id,
        "uncommon": _uncommon(line),
    }


def _permits(fields: dict[str, Any], line: Line) -> AcquirePermits:
    is_strict = line.options.get("strict", "yes" if "limit" in line.options else "no") == "yes"
    return AcquirePermits(**fields, is_strict=is_strict)


def _uncommon(line: Line) -> Uncommon | None:
    """Return what only few holds have, None if nothing of it is asked."""
    if not {"delay", "note", "value", "secret", "deadline", "priority", "ask_after"} & line.options.keys():
        return None
    return Uncommon(
        line.ms("delay"),
        line.text("note"),
        line.text("value"),
        line.options.get("secret") == "yes",
        int(line.options.get("priority", PRIORITY_DEFAULT)),
        "deadline" in line.options,
        asks=Asking(line.ms("ask_after"), line.ms("grace")) if "ask_after" in line.options else None,
    )


def _wanted(words: list[str]) -> Wanted:
    name, *others = words
    wanted = Wanted(name)
    for word in others:
        if word in set(Mode):
            wanted = Wanted(name, Mode(word), wanted.scope)
        else:
            wanted = Wanted(name, wanted.mode, Scope(word))
    return wanted


def _without_hold(verb: str, line: Line) -> Command:  # noqa: C901, PLR0912 - a table
    options, request_id = line.options, line.request_id
    match verb, line.words:
        case "force-release", [name]:
            return ForceRelease(name, line.text("reason"), line.ms("delay"), request_id)
        case "force", [kind, name]:
            token = int(options.get("token", "0"))
            reason, delay_ms = line.text("reason"), line.ms("delay")
            return ForceRelease(name, reason, delay_ms, request_id, HoldKind(kind), token)
        case "end", ["session", name]:
            return ForceCloseSession(name, line.text("reason"), request_id)
        case "end", ["waits", kind, name]:
            ticket = int(options.get("ticket", "0"))
            return ForceWaits(name, line.text("reason"), HoldKind(kind), ticket, request_id)
        case "freeze", [prefix]:
            return Freeze(prefix, line.text("reason"), line.ms("for"), request_id)
        case "thaw", [prefix]:
            return Thaw(prefix, line.text("reason"), request_id)
        case "lift", [kind, name]:
            return LiftDelay(name, line.text("reason"), HoldKind(kind), request_id)
        case "revoke", [kind, name]:
            grace_ms, reason = line.ms("grace"), line.text("reason")
            numbers = int(options.get("token", 0)), int(options.get("ticket", 0))
            return Revoke(name, reason, grace_ms, HoldKind(kind), *numbers, request_id)
        case "withdraw", ["revocation", kind, name]:
            numbers = int(options.get("token", 0)), int(options.get("ticket", 0))
            return WithdrawRevocation(name, line.text("reason"), HoldKind(kind), *numbers, request_id)
        case "renew", [kind, name] if "value" in line.options:
            return RenewByValue(name, line.text("value"), line.ms("ttl"), HoldKind(kind), line.request_id)
        case "release", [kind, name] if "value" in line.options:
            return ReleaseByValue(name, line.text("value"), HoldKind(kind), line.request_id)
        case "forget", ["fence", resource]:
            return ForgetFence(resource, line.text("reason"), request_id)
        case "forget", ["rates", *below, name]:
            return ForgetRates(name, line.text("reason"), below == ["below"], request_id)
        case "resize", [name, "to", limit]:
            return ResizeSemaphore(name, int(limit), request_id, line.text("reason"))
        case "take", [cost, "from", name]:
            algorithm = Algorithm(options.get("algorithm", Algorithm.FIXED_WINDOW))
            limit_and_window = int(options["limit"]), line.ms("window")
            return TakeRate(name, *limit_and_window, algorithm, int(cost), line.ms("wait"), request_id)
        case "advance", [resource]:
            return AdvanceFence(resource, int(options["token"]), request_id)
    raise ValueError(f"no such command: {verb}")
