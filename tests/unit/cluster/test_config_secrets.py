"""Secret files: one secret, or two while it is being exchanged; and nothing that is wrong shows them."""

from pathlib import Path

import pytest

from cluster import config_secrets
from cluster.config import load
from cluster.config_secrets import FILE_BYTES_MAX, Secrets, SecretsUnreadable, parse

OLD, NEW = b"an old secret of the cluster", b"a new secret of the cluster"


@pytest.mark.parametrize(
    ("content", "secrets"),
    [
        (OLD, Secrets(OLD)),
        (OLD + b"\r\n", Secrets(OLD)),
        (OLD + b"\n\n" + NEW + b"\n", Secrets(OLD + b"\n\n" + NEW)),
        (b"next: " + NEW + b"\n", Secrets(b"next: " + NEW)),
        (b"current: " + OLD + b"\nnext: " + NEW + b"\n", Secrets(OLD, NEW, "next")),
        (b"current:" + NEW + b"\r\n\r\nprevious:\t" + OLD + b"  ", Secrets(NEW, OLD, "previous")),
        (b"current: " + NEW, Secrets(NEW)),
    ],
)
def test_what_a_secret_file_says(content: bytes, secrets: Secrets) -> None:
    """A file as earlier releases know it is one secret, whatever bytes it has; "current:" begins two."""
    assert parse(content) == secrets
    assert secrets.accepted == ((secrets.current, secrets.other) if secrets.other else (secrets.current,))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b"\n", "the file is empty"),
        (b"short", "the file has a secret of 5 bytes: must have 16 bytes or more"),
        (b"current: " + OLD + b"\nnext:", "next is empty"),
        (b"current:\nnext: " + NEW, "current is empty"),
        (b"current: " + OLD + b"\nnext: hush", "next has a secret of 4 bytes"),
        (b"current: " + OLD + b"\nnext: " + OLD, "'next' is the same secret as 'current'"),
        (b"current: " + OLD + b"\nnext: " + NEW + b"\nprevious: " + OLD, "one secret and nothing else"),
        (b"current: " + OLD + b"\ncurrent: " + NEW, "one secret and nothing else"),
        (b"current: " + OLD + b"\n" + NEW, "one secret and nothing else"),
        (b"current: " + OLD + b"\nlast: " + NEW, "one secret and nothing else"),
    ],
)
def test_what_is_wrong_is_said_without_the_secret(content: bytes, reason: str) -> None:
    """A typing error must not put a secret into a log."""
    with pytest.raises(SecretsUnreadable) as refused:
        parse(content)
    assert reason in str(refused.value)
    assert not any(secret.decode() in str(refused.value) for secret in (OLD, NEW, b"hush"))


def test_no_text_of_secrets_shows_them() -> None:
    """Neither in a traceback nor in a line of a log."""
    assert repr(Secrets(OLD, NEW, "next")) == "Secrets(step='next')"


def test_a_file_that_is_too_long_is_another_file(tmp_path: Path) -> None:
    """Somebody named the wrong one; it is not read to its end."""
    path = tmp_path / "image"
    path.write_bytes(bytes(FILE_BYTES_MAX + 1))
    with pytest.raises(SecretsUnreadable, match="too long"):
        config_secrets.read(path)


def test_a_node_may_start_in_the_middle_of_an_exchange(tmp_path: Path) -> None:
    """Its configuration has both secrets, and shows neither."""
    path = tmp_path / "secret"
    path.write_bytes(b"current: " + OLD + b"\nnext: " + NEW)
    config = load(["--secret-file", str(path)], {})
    assert (config.secret, config.secrets, config.secret_file) == (OLD, Secrets(OLD, NEW, "next"), path)
    assert not any(secret.decode() in repr(config) for secret in (OLD, NEW))
    assert load(["--secret", OLD.decode()], {}).secrets == Secrets(OLD)
