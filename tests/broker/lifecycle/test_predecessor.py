"""What proves that the process which was this broker before is dead."""

import json
import os
import shutil
import stat
import subprocess
import sys

import pytest

from sparklog.broker.lifecycle.predecessor import SessionFiles
from sparklog.log.files import SESSION_FILE
from sparklog.testing.eventually import wait_for_death
from sparklog.zk.znode_client import Session

SESSION = Session(0x1234567890ABCDEF, b"\x00secret\xff")


@pytest.fixture
def dirs(tmp_path):
    made = [tmp_path / "a", tmp_path / "b"]
    for each in made:
        each.mkdir()
    return made


@pytest.fixture
def opened():
    """Opens session files, and closes them in the end."""
    files = []

    def open_files(dirs):
        files.append(SessionFiles(dirs))
        return files[-1]

    yield open_files
    for each in files:
        each.close()


def test_the_session_of_a_process_that_has_ended_is_found(dirs, opened):
    first = opened(dirs)
    assert first.session_of_dead(SESSION.id) is None
    first.write(Session(5, b"longer" * 9))
    first.write(SESSION)
    first.close()
    second = opened(dirs[1:])
    assert second.session_of_dead(SESSION.id) == SESSION
    assert second.session_of_dead(5) is None
    assert stat.S_IMODE((dirs[0] / SESSION_FILE).stat().st_mode) == 0o600


def test_a_process_that_lives_is_not_dead_even_when_its_directories_are_given_up(dirs, opened):
    first = opened(dirs)
    first.write(SESSION)
    second = opened(dirs)
    assert second.session_of_dead(SESSION.id) is None
    second.write(Session(7, b""))
    first.close()
    assert opened(dirs).session_of_dead(SESSION.id) == SESSION, "nobody else wrote where it stands"


def test_a_killed_process_is_dead(dirs, opened):
    program = (
        "import sys; from pathlib import Path; from sparklog.broker.lifecycle.predecessor import *; "
        f"files = SessionFiles([Path(sys.argv[1])]); files.write({SESSION!r}); print('written', flush=True); "
        "sys.stdin.read()"
    )
    command = [sys.executable, "-c", "from sparklog.zk.znode_client import Session; " + program, str(dirs[0])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"written\n"
        living = opened(dirs[:1])
        assert living.session_of_dead(SESSION.id) is None
        living.close()
        child.kill()
        wait_for_death(child.pid)
    assert opened(dirs[:1]).session_of_dead(SESSION.id) == SESSION


def written(dirs, opened):
    first = opened(dirs)
    first.write(SESSION)
    first.close()
    return [each / SESSION_FILE for each in dirs]


def test_a_copy_of_the_directory_proves_nothing(dirs, opened, tmp_path):
    written(dirs[:1], opened)
    shutil.copytree(dirs[0], tmp_path / "copy")
    assert opened([tmp_path / "copy"]).session_of_dead(SESSION.id) is None
    (tmp_path / "moved").mkdir()
    os.rename(dirs[0] / SESSION_FILE, tmp_path / "moved" / SESSION_FILE)
    assert opened([tmp_path / "moved"]).session_of_dead(SESSION.id) == SESSION, "the same file elsewhere"


def test_what_was_written_before_a_boot_or_on_another_machine_proves_nothing(dirs, opened):
    [path] = written(dirs[:1], opened)
    value = json.loads(path.read_text())
    value["file"][0] = "another boot"
    path.write_text(json.dumps(value))
    assert opened(dirs[:1]).session_of_dead(SESSION.id) is None


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff\xfe", b'{"session": "x", "password": 5}', b"{}" * 4000, b"[" * 4000]
)
def test_what_is_no_session_proves_nothing(dirs, opened, content):
    [path] = written(dirs[:1], opened)
    path.write_bytes(content)
    files = opened(dirs[:1])
    assert files.session_of_dead(SESSION.id) is None
    files.write(SESSION)
    files.close()
    assert opened(dirs[:1]).session_of_dead(SESSION.id) == SESSION


def test_a_directory_that_cannot_be_used_is_passed_over(dirs, opened, tmp_path, caplog):
    (dirs[0] / SESSION_FILE).mkdir()
    files = opened([tmp_path / "none", *dirs])
    files.write(SESSION)
    files.close()
    assert opened(dirs).session_of_dead(SESSION.id) == SESSION
    assert "cannot keep the ZooKeeper session in" in caplog.text
