"""Syncs in the two parts that the kernel's way has, without the kernel: written first, made durable later."""

from cluster.storage.files import Files
from cluster.storage.journal import Journal, Sync


def finish(sync: Sync, fd: int | None, files: Files) -> None:
    """Do what is left of a sync after `begin` has returned `fd`. Does not raise: see `Sync.error`."""
    if fd is None:
        sync.run()
        return
    try:
        files.fdatasync(fd)
    except OSError as error:
        sync.end(error)
    except BaseException as error:  # noqa: BLE001 - the process ends here: the kernel's part was not done
        sync.error = error
    else:
        sync.end(None)


def sync_in_two_parts(journal: Journal) -> bool:
    """Do what `Journal.sync` does, as the kernel's way does it; return whether that way was taken."""
    sync = journal.begin_sync()
    if sync is None:
        return False
    fd = sync.begin()
    finish(sync, fd, journal._disk._files)
    journal.end_sync(sync)
    return fd is not None
