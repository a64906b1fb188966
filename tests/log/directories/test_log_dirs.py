"""The log directories of a broker, in service and out of it."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from sparklog.errors import ApiError, ErrorCode, LogDirFailed
from sparklog.log.directories.log_dirs import LogDirs
from sparklog.log.directories.usage import room_of


@pytest.fixture
def paths(tmp_path):
    return [tmp_path / "a", tmp_path / "b"]


@pytest.fixture
def dirs(paths):
    made = LogDirs(paths)
    yield made
    for each in made.in_service:
        each.close()


def burn(dirs, path):
    dirs.note_failed(path, "it has burnt")
    burnt = dirs.of(path / "t-0")
    dirs.in_service.remove(burnt)
    burnt.close()


def test_a_directory_is_found_by_its_absolute_path(dirs, paths):
    a, b = paths
    assert dirs.find(str(b.absolute())).path == b
    with pytest.raises(ApiError, match=f"{a}x is none of this broker's log.dirs") as refused:
        dirs.find(f"{a}x")
    assert refused.value.code is ErrorCode.LOG_DIR_NOT_FOUND
    burn(dirs, b)
    with pytest.raises(ApiError, match=f"log directory {b} is out of service") as refused:
        dirs.find(str(b.absolute()))
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert dirs.find(str(a.absolute())).path == a


def test_a_partition_is_found_by_its_directory(dirs, paths):
    assert dirs.of(paths[1] / "t-0").path == paths[1]
    burn(dirs, paths[1])
    with pytest.raises(LogDirFailed, match=f"{paths[1]} is out of service"):
        dirs.of(paths[1] / "t-0")


def test_nothing_is_moved_while_a_directory_is_out_of_service(dirs, paths):
    dirs.check_all()
    burn(dirs, paths[1])
    with pytest.raises(ApiError, match=f"nothing is moved while {paths[1]} is out of service") as refused:
        dirs.check_all()
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_the_first_failure_of_a_directory_is_the_one_that_is_told(dirs, paths, caplog):
    dirs.note_failed(paths[0], "it has burnt", served=3)
    dirs.note_failed(paths[0], "it is gone")
    assert dirs.failed == {paths[0]: "it has burnt"}
    (told,) = caplog.messages
    assert told.endswith(
        f"{paths[0]} is out of service until the broker is started again: it has burnt; 3 partition(s) go with it"
    )


def test_where_work_fails_the_failure_is_told_and_the_others_go_on(dirs, paths):
    told = []

    def work(log_dir):
        if log_dir.path == paths[0]:
            raise OSError(28, "No space left on device")
        return "done"

    with ThreadPoolExecutor() as pool:
        done = dirs.in_each(pool, work, lambda *failure: told.append(failure))
        assert {each.path: outcome for each, outcome in done.items()} == {paths[1]: "done"}
        ((path, why),) = told
        assert path == paths[0]
        assert why.startswith(f"cannot use log directory {paths[0]}")
        burn(dirs, paths[0])

        def give_up(path, _why):
            burn(dirs, path)

        with pytest.raises(LogDirFailed, match="no log directory can be used: it has burnt; it has burnt"):
            dirs.in_each(pool, fail, give_up)


def fail(log_dir):
    raise LogDirFailed(f"{log_dir.path} is away")


def test_the_room_of_each_disk_that_can_be_looked_at(dirs, paths, tmp_path):
    rooms = dirs.rooms()
    assert [room.path for room in rooms] == paths
    assert all(0 < room.free <= room.total for room in rooms)
    paths[1].rename(tmp_path / "gone")
    assert [room.path for room in dirs.rooms()] == paths[:1]
    assert room_of(paths[1]) is None
    (tmp_path / "gone").rename(paths[1])
