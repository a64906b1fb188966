import os
import stat
import tempfile
from pathlib import Path

import pytest

from sparklog.errors import ConfigError
from sparklog.log.directories.privacy import UMASK, complaint, require_private
from sparklog.log.files import make_directory


@pytest.fixture
def place():
    """A directory that everybody can come to, which those of pytest are not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def _made(place, mode):
    path = place / "logs"
    path.mkdir()
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o2750, 0o500])
def test_the_owner_and_the_group_may_read(place, mode):
    assert complaint(_made(place, mode)) is None


@pytest.mark.parametrize("mode", [0o755, 0o751, 0o754, 0o702])
def test_others_may_not(place, mode):
    path = _made(place, mode)
    said = complaint(path)
    assert f"chmod o= {path}" in said
    path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o007)  # as it says
    assert complaint(path) is None


@pytest.mark.parametrize("mode", [0o770, 0o775, 0o777])
def test_nobody_else_writes(place, mode):
    path = _made(place, mode)
    assert f"chmod g-w,o= {path}" in complaint(path)


def test_others_that_do_not_come_there_are_kept_out(place):
    path = _made(place, 0o755)
    place.chmod(0o700)
    assert complaint(path) is None


def test_a_link_is_as_open_as_what_it_leads_to(place, tmp_path):
    path = _made(place, 0o755)
    (tmp_path / "logs").symlink_to(path)
    assert complaint(tmp_path / "logs") is not None


def test_what_is_made_with_the_umask_is_private(place):
    before = os.umask(UMASK)
    try:
        make_directory(place / "new" / "logs")
    finally:
        os.umask(before)
    assert complaint(place / "new" / "logs") is None


def test_every_directory_that_others_reach_is_named_and_one_that_is_lost_is_none_of_them(place):
    path = _made(place, 0o755)
    require_private([place / "lost"])
    with pytest.raises(ConfigError, match=f"chmod o= {path}"):
        require_private([place / "lost", path])
