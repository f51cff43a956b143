"""A home is found, private, and short enough in its socket's name."""

from __future__ import annotations

import logging
import os
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from p2pqueue.errors import ConfigError, DamagedHome, DiskFull, ReadOnlyHome
from p2pqueue.home import Home, socket_path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_home_named_by_a_flag_comes_first_then_the_variable_then_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P2PQUEUE_HOME", str(tmp_path / "from-variable"))
    assert Home.find(tmp_path / "named").path == tmp_path / "named"
    assert Home.find(None).path == tmp_path / "from-variable"
    monkeypatch.setenv("P2PQUEUE_HOME", "")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert Home.find().path == tmp_path / "data" / "p2pqueue"


def test_a_home_may_be_named_from_here_or_from_the_users_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert Home.find("here").path == tmp_path / "here"
    assert Home.find("~/queue").path == tmp_path / "me" / "queue"


def test_finding_a_home_makes_nothing(tmp_path: Path) -> None:
    Home.find(tmp_path / "home")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o377, 0o777], ids=oct)
def test_a_new_home_is_private_under_any_umask(umask: int, tmp_path: Path) -> None:
    made = Home(tmp_path / "deep" / "home")
    (tmp_path / "deep").mkdir()
    before = os.umask(umask)
    try:
        made.ensure()
    finally:
        os.umask(before)
    for path in (made.path, made.shards_dir, made.work_dir, made.logs_dir):
        assert mode(path) == 0o700


def test_an_empty_folder_that_others_can_enter_is_made_private(tmp_path: Path) -> None:
    made = Home(tmp_path / "home")
    made.path.mkdir(mode=0o755)
    made.ensure()
    assert mode(made.path) == 0o700


def test_a_folder_with_somebodys_own_things_keeps_its_mode_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    tmp_path.chmod(0o755)
    with caplog.at_level(logging.WARNING):
        Home(tmp_path).ensure()
    assert mode(tmp_path) == 0o755
    assert "chmod 700" in caplog.text


def test_a_home_that_was_loosened_is_made_private_again_with_a_warning(
    home: Home, identity: object, caplog: pytest.LogCaptureFixture
) -> None:
    home.path.chmod(0o755)
    with caplog.at_level(logging.WARNING):
        home.ensure()
    assert mode(home.path) == 0o700
    assert str(home.path) in caplog.text


def test_a_file_in_the_way_of_a_home_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("not a folder")
    with pytest.raises(DamagedHome, match="in the way"):
        Home(tmp_path / "home").ensure()
    with pytest.raises(DamagedHome, match="in the way"):
        Home(tmp_path / "home" / "below").ensure()


def test_a_full_disk_is_told_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "mkdir", full)
    with pytest.raises(DiskFull, match="free some"):
        Home(tmp_path / "home").ensure()


PERMISSIONS = """
import sys
from pathlib import Path
from p2pqueue.home import Home
try:
    Home(Path(sys.argv[1])).ensure()
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("below", [False, True], ids=["the home itself", "its parent"])
def test_a_home_that_this_user_cant_write_is_told_in_words(below: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        home = Path(folder) / "home"
        home.mkdir(mode=0o555)
        ran = as_nobody(PERMISSIONS, str(home / "below" if below else home))
        home.chmod(0o755)
    assert ran.startswith(ReadOnlyHome.__name__), ran
    assert str(home) in ran


LOAD = """
import sys
from p2pqueue.home import Home
from p2pqueue.identity.keys import create, load
for attempt in (load, create):
    try:
        attempt(Home.find(sys.argv[1]))
    except Exception as error:
        print(type(error).__name__, error)
"""


@pytest.mark.root
def test_the_keys_of_another_user_cant_be_read_nor_replaced(home: Home, identity: object) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root to become another user")
    before = home.identity_file.read_bytes()
    read, made = as_nobody(LOAD, str(home.path)).splitlines()
    assert read.startswith("DamagedHome")
    assert "Permission denied" in read
    assert made.startswith("ReadOnlyHome")
    assert home.identity_file.read_bytes() == before


def as_nobody(program: str, *arguments: str) -> str:
    """Runs a program without root's power to write everywhere, which it gives up once all is imported."""
    drop = "import os, p2pqueue.home, p2pqueue.identity.keys\nif os.getuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
    command = [sys.executable, "-c", drop + program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout


def test_the_log_of_an_attempt_lies_in_a_folder_of_its_job(home: Home) -> None:
    job = "01990000-0000-7000-8000-000000000000"
    assert home.log_file(job, 65_536, 2) == home.logs_dir / job / "65536-2.log"


@pytest.mark.parametrize("job", ["../../x", "/etc/x", "a/../../x", "..", ".", "", "x\x00", "\x1b[2K", "x" * 300, "..\\x", "ä", "\ud800"])
def test_an_odd_job_id_from_a_peer_cant_lead_out_of_the_logs(job: str, home: Home) -> None:
    path = home.log_file(job, 1, 1)
    assert path.parent.parent == home.logs_dir
    assert path.parent.name.isalnum()
    assert path != home.log_file(job + "x", 1, 1)


def test_a_socket_path_is_short_private_and_one_per_home(tmp_path: Path, runtime_dir: Path) -> None:
    deep = Home(tmp_path / ("long" * 50) / "home")
    path = deep.socket_path
    assert path == socket_path(deep)
    assert path.parent == runtime_dir / "p2pqueue"
    assert mode(path.parent) == 0o700
    assert len(os.fsencode(path)) < 100
    assert path != Home(tmp_path / "other").socket_path
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    path.unlink()


def test_two_names_of_one_home_have_one_socket(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "home")
    assert Home(tmp_path / "home").socket_path == Home(tmp_path / "link").socket_path == Home(tmp_path / "x" / ".." / "home").socket_path


def test_a_loosened_folder_of_sockets_is_made_private(home: Home) -> None:
    folder = home.socket_path.parent
    folder.chmod(0o777)
    assert mode(home.socket_path.parent) == 0o700
    assert folder.is_dir()


def test_a_session_without_a_runtime_folder_uses_a_private_one_in_the_temporary_folder(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.path.isdir
    monkeypatch.setattr(os.path, "isdir", lambda path: real(path) and not str(path).startswith("/run/user/"))
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert home.socket_path.parent == tmp_path / f"p2pqueue-{os.getuid()}"
    assert mode(home.socket_path.parent) == 0o700


@pytest.mark.root
def test_a_folder_of_sockets_that_another_user_made_first_is_refused(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = home.socket_path.parent
    mine = os.getuid()
    monkeypatch.setattr(os, "lstat", lambda path: _owned_by(os.stat(path), mine + 1))
    with pytest.raises(ConfigError, match="another user"):
        _ = home.socket_path
    assert folder.is_dir()


def _owned_by(found: os.stat_result, uid: int) -> os.stat_result:
    parts = list(found)
    parts[stat.ST_UID] = uid
    return os.stat_result(parts)


def test_a_link_in_place_of_the_folder_of_sockets_is_refused(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "p2pqueue").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="no folder"):
        _ = home.socket_path
