"""What answers where a peer should listen: one hello, which asks for no more than a challenge.

Who was challenged has proven nothing, and goes away: the peer takes it for one of many strangers, and neither
lets anybody in nor logs anything. Whether both know the same secret only a start can tell.
"""

import asyncio
import contextlib
import errno
import os
import ssl
import struct
from typing import Final, NamedTuple

import msgspec

from cluster.config import Address
from cluster.peers import handshake
from cluster.peers.certificate_names import Shown, digest_of, names_in
from cluster.peers.handshake import Challenge, Hello
from cluster.peers.link import HANDSHAKE_FRAME_BYTES_MAX
from cluster.peers.peer_tls import PeerTls, cut_for
from cluster.peers.resolving import Resolver
from cluster.tls import revoked

PROBE_S: Final = 2.0
"""Seconds that one peer has for everything, its name included."""

_LENGTH: Final = struct.Struct(">I")
_HTTP: Final = b"HTTP"


class Probed(NamedTuple):
    """What was found of a peer; not `is_well` if a link to it would not come about as it is."""

    peer_id: str
    is_well: bool
    text: str


class _Unwell(Exception):
    """Why a link would not come about."""


async def probe(node_id: str, peer_id: str, address: Address, tls: PeerTls | None) -> Probed:
    """Dial a peer as this node would."""
    with_tls = tls if tls is not None and tls.dials else None
    try:
        async with asyncio.timeout(PROBE_S):
            found = await Resolver().resolve(address)
            where = await _greeted(node_id, peer_id, found, with_tls)
    except _Unwell as error:
        return Probed(peer_id, False, f"{address}: {error}")
    except TimeoutError:
        return Probed(peer_id, False, f"{address}: no answer within {PROBE_S:g} s: is a firewall in between?")
    except (OSError, ValueError) as error:
        code = getattr(error, "errno", None) or 0
        # Where it is an error of the system: asyncio has words of its own, with the address once more.
        why = os.strerror(code) if code in errno.errorcode else getattr(error, "strerror", None) or str(error)
        advice = "is the node running, and is this where it listens?"
        if not isinstance(error, ConnectionError):
            advice = "correct the address, or what resolves it"
        return Probed(peer_id, False, f"{address}: {why}: {advice}")
    spoken = "with TLS" if with_tls else "without TLS"
    return Probed(peer_id, True, f"{address}: a Holdfast node answers as {peer_id} at {where}, {spoken}")


async def _greeted(node_id: str, peer_id: str, found: list[Address], tls: PeerTls | None) -> Address:
    """Return the first of these addresses at which the peer answers. Raises _Unwell, OSError."""
    failure: Exception = OSError("the name has no address")
    for address in found:
        try:
            await _greet(node_id, peer_id, address, tls)
        except ConnectionRefusedError as error:
            failure = error
        else:
            return address
    raise failure


async def _greet(node_id: str, peer_id: str, address: Address, tls: PeerTls | None) -> None:
    """Say hello, and take a challenge. Raises _Unwell, OSError."""
    is_shaken = False
    try:
        reader, writer = await asyncio.open_connection(
            address.host,
            address.port,
            ssl=tls.ready.client if tls is not None else None,
            server_hostname="" if tls is not None else None,
        )
        is_shaken = True
        with contextlib.closing(writer):
            if tls is not None:
                _check_certificate(writer.get_extra_info("ssl_object"), peer_id, tls)
            hello = Hello(handshake.PROTOCOL, node_id, peer_id, handshake.new_nonce())
            frame = handshake.encode(hello)
            writer.write(_LENGTH.pack(len(frame)) + frame)
            await writer.drain()
            await _read_challenge(reader)
            writer.transport.abort()
    except ssl.SSLError as error:
        _, why = cut_for(error, is_shaken=False)
        raise _Unwell(
            f"{why}: compare its certificate and authorities with --peer-cert and --peer-ca"
        ) from None
    except (ConnectionResetError, BrokenPipeError, asyncio.IncompleteReadError):
        if not is_shaken:
            raise _Unwell(
                "it hung up during the TLS handshake: it speaks no TLS with peers (--peer-tls), or is"
                " not a Holdfast node"
            ) from None
        raise _Unwell(
            "it hung up at the hello: its log says why, most often another --peer-tls, another node id or"
            " cluster in a certificate, or another release"
        ) from None


def _check_certificate(shaken: ssl.SSLObject, peer_id: str, tls: PeerTls) -> None:
    """Refuse a certificate that does not name the peer. Raises _Unwell."""
    der, told = shaken.getpeercert(binary_form=True) or b"", shaken.getpeercert() or {}
    shown = Shown(names_in(told), digest_of(der), tls.ready.digest, revoked.serial_of(told))
    fault = tls.fault(shown, peer_id)
    if fault is not None:
        raise _Unwell(fault[1])


async def _read_challenge(reader: asyncio.StreamReader) -> None:
    """Take what a Holdfast node says to a hello. Raises _Unwell, IncompleteReadError."""
    head = await reader.readexactly(_LENGTH.size)
    (length,) = _LENGTH.unpack(head)
    if length > HANDSHAKE_FRAME_BYTES_MAX:
        what = "HTTP answers: is that its port for clients?" if head == _HTTP else "no Holdfast peer answers:"
        raise _Unwell(f"{what} give the address that it has in --peer")
    try:
        answer = handshake.decode(await reader.readexactly(length))
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _Unwell("what answers is not a Holdfast node of this release") from None
    if not isinstance(answer, Challenge):
        raise _Unwell(f"it answers a hello with {type(answer).__name__.lower()}, and not with a challenge")
