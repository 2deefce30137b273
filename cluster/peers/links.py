"""The links of a node to its peers: dials, accepts, replaces, watches over silence. One link per peer.

The node with the smaller id dials. The other one does too when it has had no link for a while: one of the two
may not know yet that the other has joined or was removed. A link that takes the place of another ends it
first, so that frames of one peer are always handled in the order of one connection.
"""

import asyncio
import contextlib
import errno
import itertools
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from cluster.config import Address
from cluster.config_secrets import Secrets
from cluster.consensus.messages import Message
from cluster.errors import AddressInUse, StartupError
from cluster.peers import objections
from cluster.peers.absences import Absences
from cluster.peers.certificate_names import Shown
from cluster.peers.channels import Published
from cluster.peers.cuts import Cut, Cuts
from cluster.peers.handshake import HandshakeState, Objection, Particulars, PeerProgress
from cluster.peers.handshake_budget import HandshakeBudget
from cluster.peers.link import FrameKind, Link
from cluster.peers.peer_tls import PeerTls
from cluster.peers.peering import Peering
from cluster.peers.resolving import Resolver
from cluster.peers.secret_use import SecretsSaid, SecretUse
from cluster.peers.strangers import Strangers, origin_of
from cluster.peers.tls_gate import PeerGate
from lockstate.words.versions import GROUP

PING_S: Final = 1.0
"""Seconds between two pings: how often peers hear from us at least."""
ALIVE_S: Final = 2.5 * PING_S
"""Seconds: a peer heard of within so long is alive for sure."""
SILENCE_S_MAX: Final = 4.0
"""Seconds: a peer not heard of for so long is gone, whatever TCP believes."""
STALLED_S: Final = 1.6 * PING_S
"""Seconds without a byte after which a link counts as stalled, and a new one is tried in its place.

After a bad spell of the network TCP may wait for seconds before it sends again what was lost. The node with
the larger id waits for a bit longer, so that the two do not replace each other's connections."""
LOOKS_PER_PING: Final = 2
"""How often the links are looked at."""
PUBLISHED_BACKLOG_BYTES_MAX: Final = 256 * 1024
"""Bytes that may wait for a peer before messages of clients are not passed on to it: consensus waits behind
them."""
DIAL_S_MAX: Final = 2.0
"""Seconds that one attempt to connect may take."""
RETRY_S_MIN: Final = 0.05
RETRY_S_MAX: Final = 0.25
"""Seconds between two attempts to connect, the first and the last: a restarted node has all its links soon
after it is ready; a dead one costs a few packets per second."""
RETRY_REJECTED_S: Final = 2.0
"""Seconds before a peer is dialed again that answered and did not let this node in."""
REPLACED_S: Final = 0.5
"""Seconds after which a connection ends that was replaced. Nothing is taken from it any more."""
MISSED_COUNT_MAX: Final = 3
"""How many looks (one per PING_S) find no link before the node with the larger id dials too."""

logger = logging.getLogger(__name__)


class PeerLinks:
    """All links of one node. `peers` maps the others' ids to their addresses."""

    def __init__(
        self,
        node_id: str,
        secrets: Secrets,
        peers: Mapping[str, Address],
        *,
        configured: Mapping[str, Address] | None = None,
        tls: PeerTls | None = None,
    ) -> None:
        """Link nobody yet; `configured` is where the configuration says that peers are: another way there.

        Without `tls` no link has TLS.
        """
        self.node_id = node_id
        self.tls = tls
        self.secrets = SecretUse(secrets)
        self._peers = dict(peers)
        self._configured = dict(configured or {})
        self._tries: Counter[str] = Counter()
        self._resolver = Resolver()
        self.host: Peering
        """Decides who is let in, and takes what peers send. Set before anything else happens."""
        self.absences = Absences(asyncio.get_running_loop().time)
        self.cuts = Cuts(asyncio.get_running_loop().time, self.absences.failed)
        self._open: dict[str, Link] = {}
        self._all: set[Link] = set()
        self._strangers: Strangers[Link] = Strangers()
        self._handshakes = HandshakeBudget(asyncio.get_running_loop().time)
        self._proven: dict[str, str] = {}
        self._server: asyncio.Server | None = None
        self._dialers: dict[str, asyncio.Task[None]] = {}
        self._missed: dict[str, int] = {}
        self._renewals: dict[str, asyncio.Task[None]] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._is_closing = False

    async def start(self, listen: Address, allow: Callable[[Sequence[Address]], None]) -> None:
        """Listen and dial. Raises StartupError when the address cannot be had, and whatever `allow` raises.

        `allow` is called with all addresses that `listen` stands for, before anybody is let in on them.
        """
        loop = asyncio.get_running_loop()
        async with bound(listen, allow, self._accept) as server:
            await server.start_serving()
            self._server = server
        if self._is_closing:
            server.close()
            raise StartupError("peer: stopped while it started")
        self._watcher = loop.create_task(self._watch(), name="watch-links")
        self._watcher.add_done_callback(self._task_ended)
        self._dial()

    def set_peers(self, peers: Mapping[str, Address]) -> None:
        """Keep links to `peers` from now on, and to nobody else.

        A peer that is elsewhere from now on keeps its connection; the next one is made there.
        """
        gone = self._peers.keys() - peers.keys()
        self._peers = dict(peers)
        for peer_id in gone:
            dialer = self._dialers.pop(peer_id, None)
            if dialer is not None:
                dialer.cancel()
            link = self._open.get(peer_id)
            if link is not None:
                link.finish()
        self.absences.expect(self._peers.keys() - self._open.keys())
        if self._watcher is not None:
            self._dial()

    def use_secrets(self, secrets: Secrets) -> None:
        """Use these secrets from now on. No link ends before there is another one, if both sides keep up.

        A link that was proven with the secret of before goes on until the node that dialed it has made a new
        one; a link that was proven with a secret that is no longer accepted ends here.
        """
        self.secrets.change(secrets)
        logger.info("event=secret-changed step=%s", secrets.step or "-")
        for peer_id, link in list(self._open.items()):
            if link.secret not in secrets.accepted:
                link.close("its secret is no longer accepted")
                continue
            link.tell_secrets()
            self._renew_if_behind(peer_id, link)

    def secrets_said(self, link: Link, exchange: HandshakeState, said: SecretsSaid) -> None:
        """Take what a peer says of the secrets that it accepts: perhaps the link can be renewed now."""
        if self._open.get(link.peer_id) is link:
            self.secrets.heard(link.peer_id, exchange, said)
            self._renew_if_behind(link.peer_id, link)

    def _renew_if_behind(self, peer_id: str, link: Link) -> None:
        """Make a new link with the current secret in the place of one that was proven with another.

        The side that dialed does it, as soon as the other side accepts that secret.
        """
        is_behind = link.is_dialer and link.secret != self.secrets.secrets.current
        if is_behind and self.secrets.is_current_accepted(peer_id):
            self._renew(peer_id)

    def _renew_if_stalled(self, peer_id: str, link: Link, now_s: float) -> None:
        """Make a new link in the place of one on which nothing comes any more, though pings are due."""
        patience_s = STALLED_S if self.node_id < peer_id else STALLED_S + PING_S / LOOKS_PER_PING
        if now_s - link.bytes_s > patience_s and peer_id not in self._renewals:
            logger.info("event=link-stalled peer=%s for_s=%.1f", peer_id, now_s - link.bytes_s)
            self._renew(peer_id)

    def _renew(self, peer_id: str) -> None:
        """Make another link with a peer, which takes the place of the present one when it is proven."""
        if peer_id in self._peers and peer_id not in self._renewals and not self._is_closing:
            dial = self._dial_anew(peer_id, self._address(peer_id))
            task = asyncio.get_running_loop().create_task(dial, name=f"renew-{peer_id}")
            self._renewals[peer_id] = task
            task.add_done_callback(partial(self._renewed, peer_id))

    def _renewed(self, peer_id: str, task: "asyncio.Task[None]") -> None:
        """Forget a renewal that has ended, however it did."""
        del self._renewals[peer_id]
        self._task_ended(task)

    def plain_count(self) -> int:
        """Return how many links in use have no TLS."""
        return sum(link.shown is None for link in self._open.values())

    def end_revoked(self) -> None:
        """End all links, proven or not, whose other side has shown a certificate that counts no longer."""
        for link in tuple(self._all):
            fault = self.certificate_fault(link.shown, link.peer_id) if link.shown is not None else None
            if fault is not None and fault[0] is Cut.CERTIFICATE_REVOKED:
                link.give_up(*fault)

    def links_behind(self) -> int:
        """Return how many links in use are not proven with the current secret."""
        return self.secrets.behind(link.secret for link in self._open.values())

    def _dial(self) -> None:
        """Begin to dial the peers that this node is to dial."""
        loop = asyncio.get_running_loop()
        for peer_id in sorted(self._peers):
            if self.node_id < peer_id and peer_id not in self._dialers:
                dialer = loop.create_task(self._keep_dialing(peer_id), name=f"dial-{peer_id}")
                dialer.add_done_callback(self._task_ended)
                self._dialers[peer_id] = dialer

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        """Stop the node if one of these tasks broke: a node that does not dial or ping any more is lost."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._is_closing:
            self.host.broke(error)

    async def stop(self) -> None:
        """Send what waits, close everything."""
        self._is_closing = True
        tasks = [*self._dialers.values(), *self._renewals.values()]
        if self._watcher is not None:
            tasks.append(self._watcher)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        for link in list(self._all):
            link.finish()

    def send(self, peer_id: str, kind: FrameKind, body: Any) -> bool:
        """Send a frame if the peer is connected; tell whether it was."""
        link = self._open.get(peer_id)
        if link is None:
            return False
        link.send(kind, body)
        return True

    def ping(self) -> None:
        """Tell all connected peers how this node is."""
        ping = self.host.ping()
        for link in self._open.values():
            link.send(FrameKind.PING, ping)

    def publish(self, published: Published) -> None:
        """Pass a message of clients on to all peers that keep up: the others miss it."""
        for link in self._open.values():
            if link.backlog_bytes <= PUBLISHED_BACKLOG_BYTES_MAX:
                link.send(FrameKind.PUBLISHED, published)

    def send_now(self, messages: Iterable[tuple[str, Message]]) -> None:
        """Send Raft messages to those who are connected, and hand the network whatever waits for anybody.

        What this node does next may take a while: it syncs, or applies entries.
        """
        for peer_id, message in messages:
            link = self._open.get(peer_id)
            if link is not None:
                link.send(FrameKind.RAFT, message, is_flush_next=True)
        for link in self._open.values():
            link.flush()

    def room_bytes(self, peer_id: str) -> int:
        """Return how much bulk data may be sent to the peer now; not more than 0 if none may."""
        link = self._open.get(peer_id)
        return link.room_bytes if link is not None else 0

    def is_up(self, peer_id: str) -> bool:
        """Whether the peer is connected."""
        return peer_id in self._open

    def is_alive(self, peer_id: str) -> bool:
        """Whether the peer is connected and has been heard of since about its last ping."""
        link = self._open.get(peer_id)
        return link is not None and asyncio.get_running_loop().time() - link.heard_s < ALIVE_S

    def dialed(self, peer_id: str) -> str:
        """Return where this node has dialed a connected peer; empty if the peer dialed."""
        link = self._open.get(peer_id)
        return link.address if link is not None else ""

    def peer_ids(self) -> list[str]:
        """Return the peers that are to be connected."""
        return sorted(self._peers)

    def up(self) -> frozenset[str]:
        """Return the connected peers."""
        return frozenset(self._open)

    # -- link.LinkRegistry -----------------------------------------------------------------------------------

    def particulars(self, peer_id: str) -> Particulars:
        """Return what this node tells a peer about itself."""
        return self.host.particulars(peer_id)

    def certificate_fault(self, shown: Shown | None, peer_id: str) -> tuple[Cut, str] | None:
        """Return why what was shown is not the certificate of a peer, None if it may be; None: no TLS."""
        return self.tls.fault(shown, peer_id) if self.tls is not None else None

    def is_peer(self, node_id: str) -> bool:
        """Whether `node_id` may prove itself. It may be a member that this node does not know of yet.

        Whether it is let in is decided when it has: see `objection`.
        """
        return node_id != self.node_id

    def progress(self, peer_id: str) -> PeerProgress:
        """Return how far a peer is known to have come."""
        return self.host.progress(peer_id)

    def objection(self, peer_id: str, theirs: Particulars, progress: PeerProgress) -> Objection | None:
        """Return why a peer that knows the secret is not let in, None if it is."""
        if theirs.group != GROUP:
            return objections.other_group(peer_id, theirs=theirs.group, ours=GROUP)
        return self.host.objection(peer_id, theirs, is_known=peer_id in self._peers, progress=progress)

    def refused(self, peer_id: str, objection: Objection, *, dialed: str) -> None:
        """Pass a refusal on."""
        if not self._is_closing:
            self.host.refused(peer_id, objection, dialed=dialed)

    def begun(self, link: Link) -> None:
        """Remember a connection until its end. One that a stranger made may cost another stranger's place."""
        self._all.add(link)
        if not link.is_dialer:
            goes = self._strangers.come(link, link.host, self._member_origins())
            if goes is not None:
                goes.make_room()

    def _member_origins(self) -> frozenset[str]:
        """Return where members connect from: where their addresses say or lead to, or where they did before.

        By its name alone a member that never was linked with this node would count as a stranger.
        """
        listed = self._peers.values()
        told = (each.host for address in listed for each in (address, *self._resolver.found(address)))
        proven = (self._proven[peer_id] for peer_id in self._peers.keys() & self._proven.keys())
        return frozenset(map(origin_of, (*told, *proven)))

    def opened(self, link: Link) -> None:
        """Make `link` the link of its peer."""
        self._strangers.gone(link)
        self._proven[link.peer_id] = link.host
        old = self._open.pop(link.peer_id, None)
        if old is not None:
            self.host.peer_down(link.peer_id, is_replaced=True)
            # Who dialed ends the old one when it has the new one, too; sooner, it would be without either.
            reason = "replaced by a new connection"
            if link.is_dialer:
                old.close(reason)
            else:
                asyncio.get_running_loop().call_later(REPLACED_S, old.close, reason)
        self._open[link.peer_id] = link
        link.settled.set()
        self.absences.came(link.peer_id)
        link.is_used = True
        self.secrets.succeeded(link.peer_id)
        if self.tls is not None:
            self.tls.count(is_secured=link.shown is not None)
        link.tell_secrets()
        link.send(FrameKind.PING, self.host.ping())
        logger.info("event=link-opened peer=%s", link.peer_id)
        self.host.peer_up(link.peer_id)

    def closed(self, link: Link) -> None:
        """Forget `link`; report its peer down if it was the one in use."""
        self._all.discard(link)
        self._strangers.gone(link)
        if self._open.get(link.peer_id) is link:
            del self._open[link.peer_id]
            self.secrets.forget(link.peer_id)
            logger.info("event=link-lost peer=%s", link.peer_id)
            if link.peer_id in self._peers:
                self.absences.left(link.peer_id)
            if not self._is_closing:
                self.host.peer_down(link.peer_id, is_replaced=False)

    def received(self, link: Link, kind: int, body: msgspec.Raw) -> None:
        """Hand on a frame of the link in use; drop those of one that was replaced."""
        if not self._is_closing and self._open.get(link.peer_id) is link:
            self.host.frame(link.peer_id, kind, body)

    # -- dialing and watching -------------------------------------------------------------------------------

    def _accept(self) -> asyncio.Protocol:
        return Link(self) if self.tls is None else PeerGate(Link(self), self.tls, self._may_shake)

    def _may_shake(self, host: str) -> bool:
        """Whether this node makes a TLS handshake with one more that dials it, from this address."""
        return self._handshakes.take(origin_of(host), self._member_origins())

    async def _keep_dialing(self, peer_id: str) -> None:
        """Connect to a peer, again whenever the connection is lost."""
        retry_s, failures = RETRY_S_MIN, 0
        while True:
            if peer_id in self._open:
                # It dialed this node, which did not know of it.
                await self._open[peer_id].ended.wait()
            address = self._address(peer_id)
            try:
                link = await self._connect(peer_id, address)
            except OSError as error:
                self._tries[peer_id] += 1
                self.absences.failed(peer_id, f"{address}: {_why(error)}")
                if failures % 60 == 0:
                    logger.info(
                        "event=peer-unreachable peer=%s address=%s error=%r", peer_id, address, str(error)
                    )
                failures += 1
            else:
                # The end of this very connection: others only claim to be this peer, or have been replaced.
                await link.ended.wait()
                if link.is_used:
                    retry_s, failures = RETRY_S_MIN, 0
                elif self.secrets.failed(peer_id):
                    retry_s = RETRY_S_MIN
                else:
                    # It answers, and one of the two does not let the other in: a person has to act, and the
                    # log shall stay readable.
                    retry_s = RETRY_REJECTED_S
                    self._tries[peer_id] += 1
            await asyncio.sleep(retry_s * (0.5 + random.random()))  # noqa: S311 - spreads load, no secret
            retry_s = min(2 * retry_s, RETRY_S_MAX)

    def _address(self, peer_id: str) -> Address:
        """Return where to dial a peer: where the list says or, if that failed, where the configuration does.

        Whoever answers has to prove itself. So a wrong address in either place costs time, and nothing else.
        """
        listed = self._peers[peer_id]
        return self._configured.get(peer_id, listed) if self._tries[peer_id] % 2 else listed

    async def _connect(self, peer_id: str, address: Address) -> Link:
        """Return a new connection, which has yet to prove itself. Raises OSError.

        That is also what an address becomes that no resolver takes: in the member list it may stay for ever.
        """
        try:
            async with asyncio.timeout(DIAL_S_MAX):
                return await self._connect_to_any(peer_id, await self._resolver.resolve(address))
        except ValueError as error:
            raise OSError(f"no host has such a name: {error}") from error

    async def _connect_to_any(self, peer_id: str, addresses: Sequence[Address]) -> Link:
        """Return a connection with the first of these that takes one. Raises OSError."""
        failure = OSError("the name has no address")
        loop = asyncio.get_running_loop()
        for address in addresses:
            link = Link(self, dials=peer_id, address=str(address))
            try:
                await loop.create_connection(partial(self._beneath, link), address.host, address.port)
            except OSError as error:
                failure = error
            else:
                return link
        raise failure

    def _beneath(self, link: Link) -> asyncio.Protocol:
        """Return what owns the socket of a link that this node dials."""
        return PeerGate(link, self.tls) if self.tls is not None and self.tls.dials else link

    async def _watch(self) -> None:
        """Ping everybody; replace links that stall; drop the peers that have been silent for too long."""
        loop = asyncio.get_running_loop()
        last_s = loop.time()
        for look in itertools.count(1):
            await asyncio.sleep(PING_S / LOOKS_PER_PING)
            now_s = loop.time()
            # A stall of our own loop is not their silence: what they sent waits to be read.
            if now_s - last_s < 2 * PING_S:
                self._look(now_s)
            last_s = now_s
            if look % LOOKS_PER_PING:
                continue
            self._dial_missed()
            for peer_id, link in list(self._open.items()):
                self._renew_if_behind(peer_id, link)
            self.ping()

    def _look(self, now_s: float) -> None:
        """Replace the links that stall, and close those that were silent for too long."""
        for peer_id, link in list(self._open.items()):
            if now_s - link.heard_s > SILENCE_S_MAX:
                link.close(f"silent for {now_s - link.heard_s:.1f} s")
            else:
                self._renew_if_stalled(peer_id, link, now_s)

    def _dial_missed(self) -> None:
        """Dial peers with smaller ids that have not dialed this node for a while; once, then wait again."""
        for peer_id in self._peers:
            dialer = self._dialers.get(peer_id)
            if peer_id > self.node_id or peer_id in self._open or (dialer is not None and not dialer.done()):
                self._missed.pop(peer_id, None)
                continue
            self._missed[peer_id] = self._missed.get(peer_id, 0) + 1
            if self._missed[peer_id] >= MISSED_COUNT_MAX:
                dial = self._dial_once(peer_id, self._address(peer_id))
                self._dialers[peer_id] = asyncio.get_running_loop().create_task(dial, name=f"dial-{peer_id}")
                self._dialers[peer_id].add_done_callback(self._task_ended)

    async def _dial_once(self, peer_id: str, address: Address) -> None:
        """Connect to a peer besides the usual times, and wait for the end of the connection."""
        self._tries[peer_id] += 1
        try:
            link = await self._connect(peer_id, address)
        except OSError as error:
            self.absences.failed(peer_id, f"{address}: {_why(error)}")
            return
        await link.ended.wait()
        self._tries[peer_id] -= link.is_used

    async def _dial_anew(self, peer_id: str, address: Address) -> None:
        """Connect to a peer although there is a link, and wait until the new one is in use, or has failed."""
        try:
            link = await self._connect(peer_id, address)
        except OSError:
            self._tries[peer_id] += 1
            return
        await link.settled.wait()
        self._tries[peer_id] += not link.is_used


@contextlib.asynccontextmanager
async def bound(
    listen: Address,
    allow: Callable[[Sequence[Address]], None],
    accept: Callable[[], asyncio.Protocol] = asyncio.Protocol,
) -> AsyncIterator[asyncio.Server]:
    """Bind the address for peers, at which nobody is served yet; let go of it if what follows fails.

    Raises StartupError when the address cannot be had, and whatever `allow` raises.
    """
    server: asyncio.Server | None = None
    try:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(accept, listen.host, listen.port, start_serving=False)
        allow([Address(*each.getsockname()[:2]) for each in server.sockets])
        yield server
    except BaseException as error:
        if server is not None:
            server.close()
        if isinstance(error, OSError):
            kind = AddressInUse if error.errno == errno.EADDRINUSE else StartupError
            # Not from the error: what is advised about disks does not belong to this.
            raise kind(f"peer: cannot listen on {listen}: {error.strerror or error}") from None
        raise


async def bound_at(listen: Address) -> list[Address]:
    """Bind the address for peers, let go of it, and return all that it stands for. Raises StartupError."""
    reached: list[Address] = []
    async with bound(listen, reached.extend) as server:
        server.close()
    return reached


def _why(error: OSError) -> str:
    """Return why a connection could not be made, in a few words."""
    return error.strerror or str(error) or ("no answer" if isinstance(error, TimeoutError) else repr(error))
