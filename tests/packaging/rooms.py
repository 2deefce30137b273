"""The rooms of our packages: which may import what, and what to do instead. `test_imports.py` checks it.

This is the table to edit when a room moves.
"""

from collections.abc import Mapping
from typing import NamedTuple

PACKAGES = ("holdfast", "http_api", "redis_api", "lockapi", "cluster", "lockstate")


class Room(NamedTuple):
    """Which of our modules a room may import besides its own, and what to do instead of importing others.

    The name of a package stands for everything in it.
    """

    may_import: tuple[str, ...]
    instead: str


ROOMS = {
    "lockstate": Room((), "give it the value in a command or an entry; the state machine knows nobody"),
    "lockstate/words": Room((), "words are data: what is done with them is told in lockstate/rules"),
    "lockstate/tables": Room(("lockstate.words",), "a table keeps records; who changes them is a rule"),
    "lockstate/reads": Room(
        ("lockstate.tables", "lockstate.words"), "a read changes nothing, and needs no rule"
    ),
    "lockstate/rules": Room(
        ("lockstate.reads", "lockstate.tables", "lockstate.words"),
        "a rule knows the state; lockstate/machine.py calls it, and lockstate/stored keeps what it leaves",
    ),
    "lockstate/stored": Room(
        ("lockstate.tables", "lockstate.words"), "the state is stored as it is: what it means is in rules"
    ),
    # -- one process of the cluster -----------------------------------------------------------------------
    "cluster": Room(
        ("lockstate",),
        "put what both need into lockstate, or hand it over as a callable from http_api/__main__.py",
    ),
    "cluster/errors.py": Room((), "an error carries values, and knows nothing of where it is raised"),
    "cluster/build.py": Room(
        ("lockstate.words",), "a build is text here; what knows which it is gets it as an argument"
    ),
    "cluster/config_sources.py": Room(
        ("cluster.build", "cluster.errors"), "settings are text here; cluster/config.py gives them a meaning"
    ),
    "cluster/tracing.py": Room((), "a span is a value here; http_api/otlp.py sends it"),
    "cluster/file_watch.py": Room((), "a file is a place here; what it says is read by those that watch it"),
    "cluster/config_secrets.py": Room((), "a secret is bytes here; cluster/peers proves with it"),
    "cluster/unix_path.py": Room((), "a path is text here; http_api/unix_socket.py makes the file"),
    "cluster/config.py": Room(
        ("cluster.config_secrets", "cluster.config_sources", "cluster.unix_path"),
        "the configuration is read before anything else exists",
    ),
    "cluster/exposure.py": Room(
        ("cluster.config", "cluster.errors"),
        "an address is judged by itself here: what else counts comes as an argument",
    ),
    "cluster/tls": Room(
        ("cluster.file_watch",),
        "TLS is spoken here with whomever; what a certificate has to say is told by those that use it",
    ),
    "cluster/storage": Room(
        ("cluster.errors", "lockstate"),
        "storage keeps bytes and knows no other room: take what is needed as an argument",
    ),
    "cluster/commands": Room(
        ("cluster.errors", "cluster.tracing", "lockstate"),
        "commands are counted and timed here; cluster/outgoing.py sends them, cluster/group.py logs them",
    ),
    "cluster/consensus": Room(
        ("cluster.config", "cluster.config_sources", "cluster.errors", "cluster.storage", "lockstate"),
        "consensus sends and applies nothing: return it in a Ready, and let cluster/loop.py do it",
    ),
    "cluster/peers": Room(
        (
            "cluster.commands", "cluster.config", "cluster.config_secrets", "cluster.consensus",
            "cluster.errors", "cluster.file_watch", "cluster.storage", "cluster.tls", "lockstate",
        ),
        "links carry frames; what they mean is told by the callables that cluster/assembly.py gives them",
    ),
    "cluster/observing": Room(
        ("cluster.build", "cluster.commands", "cluster.consensus", "cluster.peers", "lockstate"),
        "observing only looks: let cluster/group.py or cluster/node.py report to it",
    ),
    # -- what faces share ---------------------------------------------------------------------------------
    "lockapi": Room(
        (
            "cluster.config", "cluster.config_sources", "cluster.consensus.member_list", "cluster.errors",
            "cluster.observing", "holdfast.token_lines", "holdfast.wire", "lockstate",
        ),
        "lockapi knows no transport, and only lockapi/node.py of a node: extend that, or go to http_api",
    ),
    # -- the HTTP face ------------------------------------------------------------------------------------
    "http_api": Room(
        ("lockapi", "cluster", "holdfast.token_lines", "holdfast.wire", "redis_api"),
        "only holdfast.wire is shared with the SDK, and token_lines: move names that both need there",
    ),
    "http_api/server": Room(
        (
            "lockapi", "cluster.build", "cluster.observing.samples", "cluster.tls", "cluster.tracing",
            "holdfast.token_lines", "holdfast.wire",
        ),
        "the server serves any calls: put what depends on these into http_api/v1",
    ),
    "http_api/ui": Room(
        (
            "cluster.build", "cluster.observing.status", "holdfast.token_lines", "http_api.server", "lockapi",
        ),
        "the page shows what version 1 tells its program; what the node renders, it gets as an argument",
    ),
    "http_api/v1": Room(
        (
            "cluster.build", "cluster.errors", "cluster.observing", "holdfast.token_lines",
            "holdfast.wire", "http_api.server", "lockapi", "lockstate.machine", "lockstate.reads.freezes",
            "lockstate.reads.listings", "lockstate.words.events", "lockstate.words.ids",
            "lockstate.words.kinds", "lockstate.words.limits", "lockstate.words.refusals",
            "lockstate.words.results", "lockstate.words.views",
        ),
        "only holdfast.wire is shared with the SDK; lockapi/requests makes commands, its gateway.py submits",
    ),
    # -- the Redis face ---------------------------------------------------------------------------------
    "redis_api": Room(
        (
            "cluster.errors", "cluster.observing.event_log", "cluster.observing.samples",
            "cluster.observing.status", "holdfast.token_lines", "lockapi", "lockstate.machine",
            "lockstate.words.cell_operations", "lockstate.words.ids", "lockstate.words.kinds",
            "lockstate.words.limits", "lockstate.words.results",
        ),
        "what the HTTP server has is handed over as redis_api/shared/doors.py says, the rest by lockapi",
    ),
    "redis_api/protocol": Room(("lockapi",), "what clients say is read here, and means nothing yet"),
    "redis_api/lua": Room(
        ("redis_api.protocol",), "a script calls what it is given: see redis_api/keys/scripting.py"
    ),
    "redis_api/shared": Room(
        (
            "cluster.errors", "cluster.observing.event_log", "holdfast.token_lines", "lockapi",
            "lockstate.words.events", "lockstate.words.ids", "redis_api.lua", "redis_api.protocol",
        ),
        "clients share state here, and no command: put those into redis_api/commands",
    ),
    "redis_api/keys": Room(
        (
            "holdfast.token_lines", "lockapi", "lockstate.machine", "lockstate.words.cell_operations",
            "lockstate.words.ids", "lockstate.words.limits", "lockstate.words.results",
            "lockstate.words.views", "redis_api.lua", "redis_api.protocol", "redis_api.shared",
        ),
        "a command on an overlay knows no other command: what calls several is in redis_api/commands",
    ),
    "redis_api/commands": Room(
        (
            "cluster.errors", "cluster.observing.status", "holdfast.token_lines", "lockapi",
            "lockstate.machine", "lockstate.words.ids", "lockstate.words.kinds", "lockstate.words.limits",
            "lockstate.words.refusals", "lockstate.words.results", "lockstate.words.views",
            "redis_api.keys", "redis_api.lua", "redis_api.protocol", "redis_api.shared",
        ),
        "commands answer; redis_api/connection.py reads and writes",
    ),
    # -- the SDK ------------------------------------------------------------------------------------------
    "holdfast": Room(
        (), "the SDK must install without the server; put shared names into holdfast/wire"
    ),
    "holdfast/values": Room(
        ("holdfast.wire",), "a value knows nothing of how it is asked for: see holdfast/operations"
    ),
    "holdfast/operations": Room(
        ("holdfast.values", "holdfast.wire"),
        "an operation says what is sent and how its answer is read; holdfast/transport sends it",
    ),
    "holdfast/stream": Room(
        ("holdfast.operations", "holdfast.values", "holdfast.wire"),
        "a stream takes what opens connections as an argument: holdfast/stream/stream_socket.py says what",
    ),
    "holdfast/transport": Room(
        (
            "holdfast._version", "holdfast.operations", "holdfast.stream", "holdfast.token_lines",
            "holdfast.values", "holdfast.wire",
        ),
        "an operation is sent here, whatever it is: what it means to a hold is told in holdfast/client",
    ),
    "holdfast/client": Room(
        (
            "holdfast.operations", "holdfast.stream", "holdfast.transport", "holdfast.values",
            "holdfast.wire",
        ),
        "this is what both clients share: put what only threads need into holdfast/threads",
    ),
    "holdfast/threads": Room(
        ("holdfast.client", "holdfast.operations", "holdfast.transport", "holdfast.values", "holdfast.wire"),
        "threads ask the client for tasks: what they need of others should be there",
    ),
    "holdfast/decorators": Room(
        ("holdfast.client", "holdfast.operations", "holdfast.threads", "holdfast.values"),
        "decorators use the clients as their users do",
    ),
    "holdfast/cli": Room(
        ("holdfast",), "the command line is a user of the client, and needs no more than its users do"
    ),
    "holdfast/testing": Room(
        (
            "lockapi", "cluster.commands", "cluster.consensus.member_list", "cluster.errors",
            "cluster.observing", "cluster.peers.channels", "holdfast", "http_api", "lockstate",
        ),
        "a cluster in memory is the state machine behind the API; real nodes are processes (_loopback.py)",
    ),
    "holdfast/token_lines.py": Room((), "the node reads what the command writes: it imports nothing"),
    "holdfast/wire": Room((), "client and node both read it: it is data, and imports nothing"),
}  # fmt: skip
"""By folder or file, the longest that fits. Parts of a package that stand here are rooms of their own."""

THIRD_PARTY = {"aiohttp": ("http_api", "holdfast"), "msgspec": PACKAGES}
"""For each dependency that several modules may import, in which packages."""

ONLY_IN = {
    "pysyncobj": (
        "cluster/consensus/library.py",
        "use cluster.consensus.engine.Engine: the library is tamed in cluster/consensus/library.py alone",
    ),
    "cryptography": (
        "holdfast/cli/certificates.py",
        "TLS needs only ssl; certificates are made in holdfast/cli/certificates.py alone, imported late",
    ),
    "jinja2": (
        "http_api/ui/overview.py",
        "answers are structs that answers.encode makes JSON of; HTML is rendered in one place",
    ),
    "opentelemetry": (
        "http_api/otlp.py",
        "record with cluster/tracing.py: the library is an extra, loaded where there is a collector",
    ),
    "lupa": (
        "redis_api/lua/sandbox.py",
        "scripts run in sandbox.run: the library is an extra, and not safe without its rules",
    ),
    "uvloop": ("http_api/__main__.py", "use asyncio; the program alone chooses the event loop"),
}

ONLY_BESIDE = {
    "lab": "it measures and attacks the product, and is not installed",
    "scripts": "it runs the product, and is not installed",
    "tests": "the product needs no test",
}
"""What lies beside the packages and imports them, and what it is for."""

IN_LOCKSTATE = {
    "time": "cluster time comes in the entry, as Entry.now_ms",
    "datetime": "cluster time comes in the entry, as Entry.now_ms; dates are for those that show them",
    "random": "the node makes random values and puts them into the command",
    "secrets": "the node makes random values and puts them into the command",
    "uuid": "ids are made by the node and come in the command",
    "os": "the state machine does no I/O; the node reads and writes",
    "pathlib": "the state machine does no I/O; the node reads and writes",
    "socket": "the state machine does no I/O; results and events say what others should hear",
    "threading": "apply is called from one thread; return what has to happen next as an event",
    "asyncio": "apply returns its outcome; cluster/ completes futures from it",
    "logging": "return an event; the node logs it",
}
IN_API = {
    "aiohttp": "lockapi knows no transport; http_api speaks HTTP",
    "http": "lockapi knows no transport; http_api speaks HTTP",
    "socket": "lockapi knows no transport; http_api speaks HTTP",
}
WITHOUT_IO = {
    "aiohttp": "return what is to be sent; holdfast/transport/transport.py sends it",
    "asyncio": "return how long to wait; holdfast/transport/transport.py waits",
    "time": "take the time as an argument; holdfast/values/clock.py reads the clock",
    "random": "take the random number as an argument, so that tests can choose it",
    "socket": "return what is to be sent; holdfast/transport/transport.py sends it",
    "threading": "these rules are called from one task or thread at a time",
}
FORBIDDEN: Mapping[str, Mapping[str, str]] = {
    "lockstate": IN_LOCKSTATE,
    "lockapi": IN_API,
    "holdfast/operations/operation.py": WITHOUT_IO,
    "holdfast/operations/hold_operations.py": WITHOUT_IO,
    "holdfast/operations/primitive_operations.py": WITHOUT_IO,
    "holdfast/operations/cluster_operations.py": WITHOUT_IO,
    "holdfast/values/durations.py": WITHOUT_IO,
    "holdfast/values/names.py": WITHOUT_IO,
    "holdfast/client/sse.py": WITHOUT_IO,
    "holdfast/operations/exchange.py": WITHOUT_IO,
    "holdfast/values/errors.py": WITHOUT_IO,
    "holdfast/values/answers.py": WITHOUT_IO,
    "holdfast/token_lines.py": WITHOUT_IO,
    "holdfast/wire": WITHOUT_IO,
}
"""By folder or file: modules of others that it must not import, and what to do instead."""

NO_PICKLE = (
    "decode with lockstate/words/codec.py or msgspec: unpickling bytes from a peer or a disk runs their code"
)
