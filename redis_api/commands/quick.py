"""Commands that are one step of the log: begun as soon as they have come, without waiting for those before.

A client that pipelines gets many of them into one entry. What makes that right:

- They are begun in the order in which they came, in a lane of the connection. A node numbers its commands in
  that order, also if a load makes some wait for their turn, and the log has them in the order of the numbers,
  whoever leads and however often they are sent again: a number behind which there is another one already is
  not applied (`cluster.commands.outbox`). So their effects are those of one command after the other, also on
  the same key.
- One that is told not to be applied was in no log, and those behind it do not depend on it: a pipeline is
  not a transaction.
- If the outcome of one is unknown, the connection ends there, without an answer to it or to any behind it.
  Each attempt to take a lock is followed by itself, so what those behind it get is given back.
- Whatever else a client asks for waits until all before it are answered, and lets nothing behind it begin:
  what reads, takes more than one step, or says who calls. So do the rare forms of these commands, and all
  that is refused before it is begun, so that there is one place which says why.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from cluster.errors import ClusterError
from lockapi import needs
from lockapi.problems import ProblemError
from redis_api.commands import holds
from redis_api.lua.sandbox import Program
from redis_api.lua.scripts import Script
from redis_api.protocol.arguments import keys_and_args, set_options
from redis_api.protocol.errors import CommandRefused, failure_of
from redis_api.protocol.resp import Reply
from redis_api.shared.client import Client, Started


def begin(client: Client, words: list[bytes]) -> Started | None:
    """Begin a command; return None if it has to be carried out alone, and nothing of it has begun."""
    form = _FORMS.get(words[0]) or _FORMS.get(words[0].upper())
    if form is None or len(words) < form.words_min:
        return None
    face, place = client.face, client.place
    if client.queue is not None or client.listening.count or place.refused is not None or face.starting():
        return None
    try:
        principal = client.admit().principal.name
        face.rates.take(principal or place.origin, needs.ACQUIRE)
        client.is_counted = True
        started = form.begin(client, words)
    except (ProblemError, ClusterError, CommandRefused):
        return None
    if started is not None:
        started.name = form.name
        face.commands[form.name] += 1
        client.is_counted = False
    return started


def _set(client: Client, words: list[bytes]) -> Started | None:
    """SET key value NX PX ms."""
    options = set_options(words[3:])
    if options.gets or options.ttl_ms is None or not options.only_new:
        return None
    return holds.begin_take(client, words[1], words[2], options.ttl_ms)


def _eval(client: Client, words: list[bytes]) -> Started | None:
    """EVAL script numkeys key [key ...] arg [arg ...]."""
    scripts, source = client.face.scripts, words[1]
    script = scripts.of(source)
    if script is None and not scripts.is_new(source):
        _, script = scripts.load(source)
    return _run(client, script, words)


def _evalsha(client: Client, words: list[bytes]) -> Started | None:
    """EVALSHA sha1 numkeys key [key ...] arg [arg ...]."""
    return _run(client, client.face.scripts.get(words[1]), words)


def _run(client: Client, script: Script | Program | None, words: list[bytes]) -> Started | None:
    if not isinstance(script, Script):
        return None
    keys, args = keys_and_args(words[2:])
    if len(keys) < script.keys_count or len(args) < script.args_count:
        return None
    return holds.begin_run(client, script, keys, args)


class _Form(NamedTuple):
    """How a command is begun."""

    name: str
    words_min: int
    """Words that it has, at least."""
    begin: Callable[[Client, list[bytes]], Started | None]


_FORMS: Final = {
    b"SET": _Form("SET", 6, _set),
    b"EVAL": _Form("EVAL", 5, _eval),
    b"EVALSHA": _Form("EVALSHA", 5, _evalsha),
}
"""The commands that may be begun."""


def finish(client: Client, started: Started) -> Reply:
    """Return the answer to a command that has an outcome. Raises EndConnection if nobody knows it."""
    try:
        return started.finish()
    except (ProblemError, ClusterError, CommandRefused) as error:
        client.note(error, started.name)
        failure = failure_of(error)
        client.face.errors[failure.code] += 1
        return failure
