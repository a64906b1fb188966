"""What the system lets a broker have."""

import resource
import subprocess
import sys

import pytest

from sparklog.local.limits import (
    ENOUGH_FILES,
    ENOUGH_WAITING,
    shortage_of_files,
    shortages_of_host,
)
from sparklog.net.server import BACKLOG

MOUNTS = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /dev/shm rw - tmpfs tmpfs rw
24 22 0:22 / /data/my\040disk rw - xfs /dev/sdb1 rw
25 24 0:23 / /data/my\040disk/far rw - nfs4 host:/x rw
""".lstrip()


@pytest.fixture
def proc(tmp_path):
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mountinfo").write_text(MOUNTS)
    (tmp_path / "sys" / "net" / "core").mkdir(parents=True)
    (tmp_path / "sys" / "net" / "core" / "somaxconn").write_text("4096\n")
    return tmp_path


@pytest.mark.parametrize(
    ("place", "kind"),
    [("/nowhere/a", ""), ("/dev/shm/a", "tmpfs"), ("/data/my disk/a", ""), ("/data/my disk/far/a", "nfs4")],
)
def test_file_systems_that_keep_nothing_or_are_far_are_told(proc, tmp_path, place, kind):
    found = [each.what for each in shortages_of_host([tmp_path.__class__(place)], proc)]
    assert [f", {kind}, " in each for each in found] == ([True] if kind else [])


def test_a_short_queue_of_connections_is_told(proc):
    (proc / "sys" / "net" / "core" / "somaxconn").write_text("128\n")
    (found,) = shortages_of_host([], proc)
    assert found.what.startswith("net.core.somaxconn=128")


def test_the_queue_is_what_the_server_asks_for():
    assert ENOUGH_WAITING == BACKLOG


@pytest.mark.parametrize(("most", "too_few"), [(None, False), (ENOUGH_FILES, False), (ENOUGH_FILES - 1, True)])
def test_how_many_open_files_are_too_few(most, too_few):
    assert (shortage_of_files(most) is not None) is too_few


@pytest.mark.parametrize("most", [4096, ENOUGH_FILES])
def test_a_broker_warns_at_its_start_of_too_few_open_files(most):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < most:
        pytest.skip(f"only {hard} files may be open here")
    # It ends for a setting that it does not know, when it has said what it has to say.
    command = [sys.executable, "-m", "sparklog.cli.main", "broker", "--id", "0", "--set", "no.such.setting=1"]
    done = subprocess.run(
        ["sh", "-c", f'ulimit -n {most}; exec "$@"', "sh", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode
    assert (f"only {most:,} files may be open" in done.stderr) is (most < ENOUGH_FILES)
