"""A file is the old one or the new one, whatever happens in between; and nothing is left lying about."""

import errno
import os
import random
import stat
import subprocess
import sys
import threading
import time

import pytest

from papers_shared import InputError, _atomic
from papers_shared.artifacts import atomic_path, write_bytes, write_text

WRITER = """
import sys
from papers_shared.artifacts import atomic_path
path, number = sys.argv[1], 0
while True:
    with atomic_path(path) as temporary:
        with open(temporary, "wb", buffering=0) as file:
            for _ in range(64):  # many small writes, so that a kill falls between two
                file.write(b"%08d" % number * 512)
    number += 1
    print(number, flush=True)
"""
SIZE = 64 * 512 * 8


def litter(folder):
    return [entry.name for entry in folder.iterdir() if entry.name.startswith(".")]


def test_kill_9_at_any_moment_leaves_a_whole_file_and_the_next_write_leaves_no_litter(tmp_path):
    """A real process is really killed, 20 times at random moments of writing one file over and over."""
    path, moments = tmp_path / "result.bin", random.Random(0)
    seen, torn_temporaries = set(), 0
    for _ in range(20):
        process = subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE)
        for _ in range(moments.randint(1, 5)):
            process.stdout.readline()
        time.sleep(moments.uniform(0, 0.004))
        process.kill()
        process.wait()
        process.stdout.close()
        data = path.read_bytes()
        assert len(data) == SIZE
        assert data == data[:8] * (SIZE // 8)  # one version from the first byte to the last
        seen.add(data[:8])
        torn_temporaries += len(litter(tmp_path))
        write_bytes(path, b"00000000" * (SIZE // 8))
        assert litter(tmp_path) == []
    assert len(seen) > 3  # the kills did come at different points of the work
    assert torn_temporaries > 0  # and some in the middle of a write


def test_a_living_writer_s_temporary_file_is_left_alone(tmp_path):
    path = tmp_path / "shared.txt"
    with atomic_path(path) as slow:
        slow.write_text("slow")
        write_text(path, "quick")
        assert slow.exists()
        assert path.read_text() == "quick"
    assert path.read_text() == "slow"
    assert litter(tmp_path) == []


def test_readers_never_see_a_part_while_writers_race(tmp_path):
    path, stop = tmp_path / "race.txt", threading.Event()

    def write(letter):
        while not stop.is_set():
            write_text(path, letter * 100_000)

    write_text(path, "a" * 100_000)
    writers = [threading.Thread(target=write, args=(letter,)) for letter in "bc"]
    for writer in writers:
        writer.start()
    for _ in range(100):
        text = path.read_text()
        assert len(text) == 100_000
        assert len(set(text)) == 1
    stop.set()
    for writer in writers:
        writer.join()
    assert litter(tmp_path) == []


def test_an_exception_keeps_the_old_file_and_removes_the_temporary_one(tmp_path):
    path = write_text(tmp_path / "a.txt", "old")

    def fail():
        with atomic_path(path) as temporary:
            temporary.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert path.read_text() == "old"
    assert litter(tmp_path) == []


def test_without_force_an_existing_file_is_refused_before_and_after_the_work(tmp_path):
    path = write_text(tmp_path / "a.txt", "old")
    with pytest.raises(InputError, match=r"a\.txt already exists; pass --force to replace it"):
        write_text(path, "new", force=False)
    fresh = tmp_path / "b.txt"

    def be_late():
        with atomic_path(fresh, force=False) as temporary:
            temporary.write_text("mine")
            fresh.write_text("someone was quicker")

    with pytest.raises(InputError, match="already exists"):
        be_late()
    assert fresh.read_text() == "someone was quicker"
    assert write_text(tmp_path / "c.txt", "new", force=False).read_text() == "new"
    assert litter(tmp_path) == []


def test_a_dangling_link_counts_as_existing(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match="already exists"):
        _atomic.refuse_existing(link, force=False)


def test_a_link_stays_a_link_and_its_target_changes(tmp_path):
    target = write_text(tmp_path / "target.txt", "old")
    link = tmp_path / "link.txt"
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_permissions_follow_the_umask_or_the_replaced_file(tmp_path):
    before = os.umask(0o027)
    try:
        path = write_text(tmp_path / "a.txt", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o600)
    write_text(path, "y")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_missing_folder_names_the_file_and_what_to_do(tmp_path):
    with pytest.raises(InputError, match=r"cannot write .*none/a\.txt: no such file.*; create the folder first"):
        write_text(tmp_path / "none" / "a.txt", "x")


def test_a_folder_in_the_file_s_place_is_refused(tmp_path):
    with pytest.raises(InputError, match="is a directory; name a file inside it"):
        write_text(tmp_path, "x")


def test_a_file_in_the_folder_s_place_is_refused(tmp_path):
    path = write_text(tmp_path / "a.txt", "x")
    with pytest.raises(InputError, match="a part of the path is a file"):
        write_text(path / "b.txt", "x")


def test_a_pipe_is_not_replaced_by_a_file(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="not a regular file"):
        write_text(pipe, "x")
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_errors_of_the_disk_name_the_file_and_keep_the_old_one(tmp_path, monkeypatch, call, code):
    path = write_text(tmp_path / "a.txt", "old")

    def fail(*_, **__):
        raise OSError(code, os.strerror(code))

    owner, name = (_atomic.Path, "replace") if call == "replace" else (_atomic.os, call)

    def write_on_a_bad_disk():
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, fail)
            with atomic_path(path) as temporary:
                patched.undo()
                temporary.write_text("new")
                patched.setattr(owner, name, fail)

    with pytest.raises(InputError, match=r"cannot write .*a\.txt"):
        write_on_a_bad_disk()
    assert path.read_text() == "old"
    assert litter(tmp_path) == []


def test_a_disk_that_fills_while_the_caller_writes_is_the_user_s_to_put_right(tmp_path):
    def fill():
        with atomic_path(tmp_path / "a") as temporary:
            temporary.write_text("x")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(InputError, match=r"no space left.*free some space"):
        fill()


def test_other_errors_of_the_caller_pass_unchanged(tmp_path):
    with pytest.raises(FileNotFoundError), atomic_path(tmp_path / "a"):
        (tmp_path / "missing").read_text()


def test_without_hard_links_and_locks_writing_still_works(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(_atomic.os, "link", fail)
    monkeypatch.setattr(_atomic, "fcntl", None)
    path = write_text(tmp_path / "a.txt", "x", force=False)
    assert path.read_text() == "x"
    with pytest.raises(InputError, match="already exists"):
        write_text(path, "y", force=False)


def test_a_name_at_the_file_system_s_limit_can_be_written(tmp_path):
    path = write_text(tmp_path / ("é" * 125 + ".json"), "x")
    assert path.read_text() == "x"
    assert litter(tmp_path) == []


def test_one_file_s_sweep_spares_another_s_temporary(tmp_path):
    other = tmp_path / ".b.txt.tmp-123456"
    other.write_text("")
    write_text(tmp_path / "a.txt", "x")
    assert other.exists()


@pytest.mark.parametrize(
    "name", [b"caf\xe9 latin.txt", "größe 1.txt".encode(), b"-dash.txt", b"a\nb.txt", b"\xff" * 200]
)
def test_any_name_that_the_file_system_takes_can_be_written(tmp_path, name):
    path = tmp_path / os.fsdecode(name)
    try:
        path.write_text("old")
    except OSError:
        pytest.skip("not a name here")
    assert write_text(path, "new").read_text() == "new"
    assert litter(tmp_path) == []


def test_a_file_larger_than_the_system_allows_leaves_the_old_one(tmp_path):
    """A real limit of the system, in a process of its own: the kernel refuses in the middle of the write."""
    path = write_text(tmp_path / "a.bin", "old")
    code = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
from papers_shared.artifacts import write_bytes
from papers_shared.errors import InputError
try:
    write_bytes(sys.argv[1], b"x" * 1_000_000)
except InputError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("a.bin: file too large; choose another disk\n")
    assert path.read_text() == "old"
    assert litter(tmp_path) == []
