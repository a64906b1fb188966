import os
import stat

import pytest

from sparklog.errors import ConfigError
from sparklog.local.private_files import PUBLIC, make_private_directory, read_private, write_file


def _mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o000, 0o077])
def umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_permissions_do_not_depend_on_the_umask(tmp_path):
    write_file(tmp_path / "key", b"secret")
    write_file(tmp_path / "certificate", b"public", mode=PUBLIC)
    make_private_directory(tmp_path / "secure")
    assert (_mode(tmp_path / "key"), _mode(tmp_path / "certificate")) == (0o600, 0o644)
    assert _mode(tmp_path / "secure") == 0o700
    assert read_private(tmp_path / "key") == b"secret"


def test_what_is_there_is_written_over_only_when_asked(tmp_path):
    path = tmp_path / "key"
    write_file(path, b"first")
    with pytest.raises(ConfigError, match="is not written over"):
        write_file(path, b"second")
    assert path.read_bytes() == b"first"
    write_file(path, b"second", force=True)
    assert path.read_bytes() == b"second"
    assert os.listdir(tmp_path) == ["key"]


def test_a_symbolic_link_is_not_followed(tmp_path):
    (tmp_path / "key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="is not written over"):
        write_file(tmp_path / "key", b"secret")
    write_file(tmp_path / "key", b"secret", force=True)
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_without_a_directory_is_told_of(tmp_path):
    with pytest.raises(ConfigError, match="cannot write"):
        write_file(tmp_path / "none" / "key", b"secret")


def test_what_others_may_read_is_not_taken(tmp_path):
    path = tmp_path / "key"
    write_file(path, b"secret")
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_private(path)
    with pytest.raises(ConfigError, match="cannot read"):
        read_private(tmp_path / "none")


def test_a_directory_that_lets_others_in_is_refused(tmp_path):
    (tmp_path / "secure").mkdir()
    (tmp_path / "secure").chmod(0o750)
    with pytest.raises(ConfigError, match="chmod 700"):
        make_private_directory(tmp_path / "secure")
