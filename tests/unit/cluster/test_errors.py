"""Which failures are explained to an operator, and what they are told to do."""

import errno

import pytest

from cluster.errors import ConfigError, NodeFailed, StateDamaged, advice_on, is_explained


def _failed(cause: BaseException) -> NodeFailed:
    failure = NodeFailed(f"the journal cannot be written: {cause!r}")
    failure.__cause__ = cause
    return failure


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (_failed(OSError(errno.ENOSPC, "No space left on device")), "make room"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "make room"),
        (_failed(OSError(errno.EMFILE, "Too many open files")), "LimitNOFILE"),
        (OSError(errno.ENFILE, "Too many open files in system"), "fs.file-max"),
        (_failed(OSError(errno.EIO, "Input/output error")), "kernel's log"),
        (_failed(PermissionError(errno.EACCES, "Permission denied")), "chown -R"),
        (MemoryError(), "--state-bytes-max"),
        (StateDamaged(), ""),
        (ConfigError("http: 'x': must be HOST:PORT"), ""),
    ],
)
def test_what_the_world_did_is_explained(error: BaseException, words: str) -> None:
    """No traceback is needed for it; what to do is told unless the message says that itself."""
    assert is_explained(error)
    assert words in advice_on(error)
    assert bool(words) == bool(advice_on(error))


def test_a_bug_is_not_explained() -> None:
    """Its traceback is what a report needs."""
    assert not is_explained(KeyError("x"))
    assert advice_on(KeyError("x")) == ""
