"""Files that appear whole or not at all: temporary file in the same folder, fsync, rename, fsync of the folder."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Generator
from pathlib import Path

from papers_shared.errors import InputError

try:
    import fcntl
except ImportError:  # Windows: an open file cannot be deleted there, which is the protection the lock gives
    fcntl = None

DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""What the system says where there is no room."""
_HINTS = {
    errno.ENOENT: "create the folder first",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EISDIR: "name a file inside it",
    errno.EACCES: "choose a folder you may write to",
    errno.EPERM: "choose a folder you may write to",
    errno.EROFS: "choose another folder",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOSPC: "free some space or choose another disk",
    errno.EDQUOT: "free some space or choose another disk",
    errno.EFBIG: "choose another disk",
}


def cannot_write(path: str | os.PathLike[str], error: OSError) -> InputError:
    """Turn an operating system error met while writing ``path`` into an `InputError` that names it."""
    reason = (error.strerror or str(error)).lower()
    return InputError(f"cannot write {os.fspath(path)}: {reason}", hint=_HINTS.get(error.errno or 0))


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str], *, force: bool = True) -> Generator[Path, None, None]:
    """Give a temporary path to write to, which becomes ``path`` when the block ends without an exception.

    Readers see the old file or the complete new one, also after ``kill -9`` or a power cut; what a killed
    writer left behind is removed by the next write to the same path. The temporary name keeps the suffix, for
    libraries that choose the format by it. A symbolic link is followed and stays a link.

    Parameters
    ----------
    path
        The file to write. Its folder must exist.
    force
        False refuses to replace an existing file.

    Yields
    ------
    Path
        An empty file in the same folder, to be overwritten or appended to in place.

    Raises
    ------
    InputError
        The file exists and ``force`` is false; the folder is missing, not writable or full.
    """
    shown, target = os.fspath(path), Path(os.path.realpath(path))
    try:
        mode = _target_mode(target, shown, force)
        _remove_orphans(target)
        temporary, lock = _create(target, mode)
    except OSError as error:
        raise cannot_write(shown, error) from error
    try:
        try:
            yield temporary
        except OSError as error:
            if error.errno in DISK_FULL:
                raise cannot_write(shown, error) from error
            raise
        try:
            _sync(temporary)
            _publish(temporary, target, shown, force)
            _sync(target.parent)
        except OSError as error:
            raise cannot_write(shown, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        os.close(lock)


@contextlib.contextmanager
def alone(path: str | os.PathLike[str], refusal: str) -> Generator[None, None, None]:
    """Hold a lock file while the block runs; the kernel drops the lock of a killed process.

    Raises
    ------
    InputError
        Another process holds it; ``refusal`` says what that means.
    """
    if fcntl is None:
        yield
        return
    with contextlib.ExitStack() as closing:
        try:
            file = closing.enter_context(Path(path).open("a"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(refusal, hint="wait for it or choose another folder") from None
        except OSError:  # a folder that cannot be written, or a file system without locks: go on without one
            pass
        yield


def refuse_existing(path: str | os.PathLike[str], force: bool) -> None:
    """Raise `InputError` if ``path`` exists and ``force`` is false; call it before long work, not after."""
    if not force and os.path.lexists(path):
        raise InputError(f"{os.fspath(path)} already exists", hint="pass --force to replace it")


def _target_mode(target: Path, shown: str, force: bool) -> int | None:
    refuse_existing(target, force)
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise InputError(f"{shown} is not a regular file", hint="name a file; results cannot go to a device or pipe")
    return stat.S_IMODE(mode)


def temporary_prefix(target: Path) -> str:
    """Return how the names of all temporary files of ``target`` begin."""
    # A name near the limit of 255 bytes must still leave room for the temporary part; one in another encoding than
    # the system's loses the bytes that are not text.
    return f".{os.fsencode(target.name)[:180].decode(errors='ignore')}.tmp-"


def _create(target: Path, mode: int | None) -> tuple[Path, int]:
    """Make the temporary file and lock it for as long as this process lives, so that no other one sweeps it."""
    suffix = target.suffix if len(target.suffix) < 20 else ""
    while True:
        temporary = target.with_name(temporary_prefix(target) + secrets.token_hex(6) + suffix)
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        try:
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(descriptor, mode)
            if fcntl is None:
                return temporary, descriptor
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if temporary.exists():  # else another writer swept it between the two calls
                return temporary, descriptor
        except BaseException:
            temporary.unlink(missing_ok=True)
            os.close(descriptor)
            raise
        os.close(descriptor)


def _remove_orphans(target: Path) -> None:
    """Delete temporary files of ``target`` whose writer is dead: the kernel has dropped its lock."""
    prefix = temporary_prefix(target)
    with os.scandir(target.parent) as entries:
        orphans = [Path(entry.path) for entry in entries if entry.name.startswith(prefix)]
    for orphan in orphans:
        with contextlib.suppress(OSError):
            if fcntl is None:
                orphan.unlink()
                continue
            descriptor = os.open(orphan, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                orphan.unlink()
            finally:
                os.close(descriptor)


def _publish(temporary: Path, target: Path, shown: str, force: bool) -> None:
    if force:
        temporary.replace(target)
        return
    try:
        os.link(temporary, target)  # fails if the target has appeared meanwhile, unlike a rename
    except FileExistsError:
        refuse_existing(shown, force)
        raise
    except OSError:  # a file system without hard links
        refuse_existing(target, force)
        temporary.replace(target)


def _sync(path: Path) -> None:
    """Flush a file or folder to the disk where the system can."""
    if path.is_dir() and os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
