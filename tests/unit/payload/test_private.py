"""What the shelf writes belongs to its owner alone from the first moment; what it may not read it names."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from p2pqueue.home import Home
from p2pqueue.payload.shelf import Shelf
from tests.unit.payload.conftest import MIB, SPACE_KEY, MakeFile

WATCHED = """
import os, sys
from pathlib import Path
from p2pqueue.home import Home
from p2pqueue.payload.shelf import Shelf

home, seen = Path(sys.argv[1]), []

def watch(event, arguments):
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT and str(arguments[0]).startswith(str(home)):
        seen.append(arguments[0])

sys.addaudithook(watch)
real = os.open
def opened(path, flags, mode=0o777, **rest):
    if flags & os.O_CREAT and str(path).startswith(str(home)):
        assert mode == 0o600, (path, oct(mode))
    return real(path, flags, mode, **rest)
os.open = opened
os.umask(int(sys.argv[3], 8))
shelf = Shelf(Home(home), bytes(32), quota=10**9, reserve=0)
work = home / "work"
work.mkdir(mode=0o700, parents=True, exist_ok=True)
output = work / "out.bin"
output.write_bytes(bytes(65 * 1024**2))
os.chmod(output, 0o644)
shelf.adopt(output)
shelf.ingest(sys.argv[2])
shelf.sweep([])
assert seen
for folder, folders, files in os.walk(home):
    for name in folders + files:
        mode = os.stat(os.path.join(folder, name)).st_mode & 0o777
        assert mode == (0o700 if name in folders else 0o600), (folder, name, oct(mode))
print("private")
"""


@pytest.mark.parametrize("umask", ["000", "022", "077"])
def test_everything_in_the_home_is_private_under_any_umask(tmp_path: Path, make_file: MakeFile, umask: str) -> None:
    command = [sys.executable, "-c", WATCHED, str(tmp_path / "home"), str(make_file(2 * MIB)), umask]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("private\n", 0), done.stderr


def test_the_folder_of_shards_is_private(shelf: Shelf, home: Home, make_file: MakeFile) -> None:
    shelf.ingest(make_file(2 * MIB))
    assert stat.S_IMODE(home.shards_dir.stat().st_mode) == 0o700
    assert {stat.S_IMODE(entry.stat().st_mode) for entry in home.shards_dir.iterdir()} == {0o600}


def test_an_unpacked_file_is_private(shelf: Shelf, make_file: MakeFile, tmp_path: Path) -> None:
    stored = shelf.ingest(make_file(10))
    assert stat.S_IMODE(shelf.fetch_to(stored.capability, tmp_path / "out", private=True).stat().st_mode) == 0o600


AS_NOBODY = """
import os, sys
from pathlib import Path
sys.path[:0] = sys.argv[2].split(":")
from p2pqueue.errors import InputUnreadable
from p2pqueue.home import Home
from p2pqueue.payload.file import File
from p2pqueue.payload.shelf import Shelf, check_readable
os.setgroups([]); os.setgid(65534); os.setuid(65534)
folder = Path(sys.argv[1])
shelf = Shelf(Home(folder / "home"), bytes(32), quota=10**9, reserve=0)
for attempt in (lambda: check_readable(folder / "secret"), lambda: shelf.ingest(folder / "secret"), lambda: File(folder / "secret").bytes(),
                lambda: shelf.ingest(folder / "closed" / "inside")):
    try:
        attempt()
    except InputUnreadable as error:
        assert "Permission denied" in str(error) and str(folder) in str(error), error
    else:
        raise SystemExit("it was read")
assert not (folder / "home" / "shards").exists()
print("refused")
"""


@pytest.mark.root
def test_a_file_of_somebody_else_is_refused_by_name(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    folder = Path("/var/tmp") / f"p2pqueue-test-{os.getpid()}"  # where another user may enter
    folder.mkdir()
    try:
        os.chmod(folder, 0o777)
        (folder / "secret").write_bytes(b"secret")
        os.chmod(folder / "secret", 0o600)
        (folder / "closed").mkdir(mode=0o700)
        (folder / "closed" / "inside").write_bytes(b"x")
        command = [sys.executable, "-B", "-c", AS_NOBODY, str(folder), ":".join(path for path in sys.path if path)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert (done.stdout, done.returncode) == ("refused\n", 0), done.stderr
    finally:
        shutil.rmtree(folder)


def test_nothing_that_is_shown_contains_a_key(shelf: Shelf, make_file: MakeFile, caplog: pytest.LogCaptureFixture) -> None:
    stored = shelf.ingest(make_file(2 * MIB))
    manifest = shelf.describe(stored.capability)
    for key in (SPACE_KEY, manifest.chunk(0).key):
        shown = repr(manifest) + repr(manifest.chunk(0)) + repr(shelf) + caplog.text
        assert key.hex() not in shown
        assert repr(key)[2:-1] not in shown
