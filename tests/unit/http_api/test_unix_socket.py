"""The file of a Unix socket: made, kept from others, removed."""

import socket
import stat
from pathlib import Path

import pytest

from cluster.errors import ConfigError
from http_api import unix_socket


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the socket is to be."""
    return tmp_path / "s"


def test_a_socket_that_does_not_listen_yet_is_not_taken(path: Path) -> None:
    """It refuses connections like one of the dead; its node is about to serve."""
    with unix_socket.bound(path) as first:
        with pytest.raises(ConfigError, match="another process listens"), unix_socket.bound(path):
            """Not reached."""
        first.listen()
        assert stat.S_IMODE(path.stat().st_mode) == unix_socket.MODE
    assert not [*path.parent.iterdir()]


def test_files_that_were_left_behind_do_not_matter(path: Path) -> None:
    """Neither the socket nor the file of the lock."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    (path.parent / "s.lock").touch()
    with unix_socket.bound(path) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.listen()
        client.connect(str(path))
    assert not [*path.parent.iterdir()]


def test_a_process_without_room_for_connections_is_alive(path: Path) -> None:
    """A node does not wait for it, and does not take its socket."""
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as client:
        busy.bind(str(path))
        busy.listen(0)
        client.connect(str(path))
        with pytest.raises(ConfigError, match="another process listens"), unix_socket.bound(path):
            """Not reached."""
        assert path.is_socket()


def test_a_socket_of_another_kind_is_left_alone(path: Path) -> None:
    """Nobody can tell whether somebody listens there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as foreign:
        foreign.bind(str(path))
        with (
            pytest.raises(ConfigError, match="nobody knows whether a process listens at it: Protocol wrong"),
            unix_socket.bound(path),
        ):
            """Not reached."""
        assert path.is_socket()


def test_what_somebody_put_in_its_place_is_not_removed(path: Path) -> None:
    """It is not this node's any more."""
    with unix_socket.bound(path):
        path.unlink()
        path.write_text("mine")
    assert path.read_text() == "mine"


def test_a_link_in_the_place_of_the_lock_is_not_followed(path: Path, tmp_path: Path) -> None:
    """Whoever can write in the folder must not have a node make files elsewhere."""
    (tmp_path / "s.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=r"s\.lock cannot be opened"), unix_socket.bound(path):
        """Not reached."""
    assert not (tmp_path / "elsewhere").exists()
