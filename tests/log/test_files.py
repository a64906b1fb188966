"""Names of files and of what is none, how a file is replaced, and what is said of a disk that refuses."""

import errno
import os
import re

import pytest

from sparklog.errors import ApiError, DiskFull, ErrorCode, LogDirFailed, LogError
from sparklog.log.files import (
    base_offset_of,
    check_partition,
    check_topic_name,
    disk_refused,
    find_base_offset,
    future_path,
    is_topic_name,
    make_directory,
    parse_future_dir,
    parse_partition_dir,
    path_aside,
    remove_files,
    remove_temporaries,
    remove_tree,
    rename_deleted,
    segment_path,
    segment_paths,
    sync_descriptor,
    write_atomically,
)
from sparklog.structs import TopicPartition


@pytest.mark.parametrize("offset", [0, 1, 2**63 - 1])
def test_a_segment_is_named_by_its_first_offset(tmp_path, offset):
    path = segment_path(tmp_path, offset, ".log")
    assert len(path.name) == 24
    assert base_offset_of(path) == offset


@pytest.mark.parametrize("name", ["0.log", "00000000000000000000x.log", "-0000000000000000001.log", ".log", "²" * 20])
def test_other_names_are_refused(tmp_path, name):
    with pytest.raises(LogError, match="20 digits"):
        base_offset_of(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "tp"),
    [
        ("t-0", ("t", 0)),
        ("a-b-12", ("a-b", 12)),
        ("__consumer_offsets-49", ("__consumer_offsets", 49)),
        ("t-2147483647", ("t", 2**31 - 1)),
        ("t-2147483648", None),
        ("t-00", None),
        ("t", None),
        ("t-", None),
        ("-0", None),
        ("t-x", None),
        ("t-0.0123-delete", None),
        ("..-0", None),
        ("t ö-0", None),
        ("t-²", None),
    ],
)
def test_a_directory_is_a_partition_or_is_not(name, tp):
    assert parse_partition_dir(name) == (TopicPartition(*tp) if tp else None)


def test_topic_names():
    for name in ("a", "A.b_c-9", "x" * 249, "...", "-"):
        assert is_topic_name(name), name
    for name in ("", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\0", "a\n", "١"):
        assert not is_topic_name(name), name


def test_a_topic_that_can_be_none_is_told_what_it_may_be():
    with pytest.raises(ApiError) as caught:
        check_topic_name("a/b")
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert str(caught.value).endswith(
        "'a/b' cannot be a topic's name: 1 to 249 ASCII letters, digits, '.', '_' or '-', not '.' or '..'"
    )


@pytest.mark.parametrize(
    ("tp", "is_possible"),
    [
        (TopicPartition("t", 0), True),
        (TopicPartition("t", 2**31 - 1), True),
        (TopicPartition("x" * 249, 99_999), True),
        (TopicPartition("x" * 249, 100_000), False),
        (TopicPartition("t", -1), False),
        (TopicPartition("t", 2**31), False),
    ],
)
def test_a_partition_that_can_be_none_is_told_what_it_may_be(tp, is_possible):
    if is_possible:
        check_partition(tp)
        return
    with pytest.raises(ApiError) as caught:
        check_partition(tp)
    assert caught.value.code is ErrorCode.INVALID_PARTITIONS
    assert str(caught.value).endswith(
        f"{tp.partition} cannot be a partition's number: 0 to 2147483647, and with the topic's name no longer than 255"
        " characters"
    )


@pytest.mark.parametrize("topic", ["t", "x" * 249])
def test_a_directory_is_put_aside_under_a_name_that_nobody_has_had(tmp_path, topic):
    tp = TopicPartition(topic, 7)
    names = {path_aside(tmp_path / str(tp), tp, "-delete").name for _ in range(3)}
    assert len(names) == 3
    for name in names:
        assert re.fullmatch(r"[tx]+-7\.[0-9a-f]{32}-delete", name)
        assert len(name) == min(len(topic) + 42, 255)


def test_the_files_of_a_segment_are_those_that_are_there(tmp_path):
    for name in ("00000000000000000007.timeindex", "00000000000000000007.log", "00000000000000000008.index"):
        (tmp_path / name).touch()
        (tmp_path / f"{name}.swap").touch()
    assert [path.name for path in segment_paths(tmp_path, 7)] == [
        "00000000000000000007.log",
        "00000000000000000007.timeindex",
    ]
    assert [path.name for path in segment_paths(tmp_path, 8, ".swap")] == ["00000000000000000008.index.swap"]


def test_of_files_to_be_removed_some_may_be_gone(tmp_path):
    paths = [tmp_path / name for name in "abc"]
    paths[0].touch()
    paths[2].touch()
    remove_files(paths)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "kind", "more"),
    [
        (errno.EIO, LogDirFailed, ""),
        (errno.ENOSPC, DiskFull, ""),
        (errno.EDQUOT, DiskFull, ""),
        (errno.ENFILE, DiskFull, ""),
        (errno.EMFILE, DiskFull, "; raise the limit of the process (ulimit -n)"),
    ],
)
def test_what_the_disk_refused_is_said_with_the_file_and_a_way_out(number, kind, more):
    text = os.strerror(number)
    for error, where in ((OSError(number, text), ""), (OSError(number, text, "/data/x.log"), " (/data/x.log)")):
        refused = disk_refused("cannot roll t-0", error)
        assert (type(refused), refused.errno, str(refused)) == (kind, number, f"cannot roll t-0: {text}{where}{more}")


def test_an_error_without_a_number_is_said_too():
    refused = disk_refused("cannot roll t-0", OSError("odd"))
    assert (type(refused), refused.errno, str(refused)) == (LogDirFailed, None, "cannot roll t-0: odd")


def test_a_descriptor_that_its_owner_has_closed_needs_no_sync(tmp_path):
    fd = os.open(tmp_path / "x", os.O_RDWR | os.O_CREAT)
    sync_descriptor(fd)
    os.close(fd)
    for closed in (fd, -1):
        sync_descriptor(closed)
    read, write = os.pipe()
    with pytest.raises(OSError, match="Invalid argument"):
        sync_descriptor(write)
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch, durable):
    path = tmp_path / "x"
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    write_atomically(path, b"old", durable=durable)
    if durable:
        temporary, directory = synced
        assert (os.path.dirname(temporary), directory) == (str(tmp_path), str(tmp_path))
        assert re.fullmatch(r"x\.\d+\.tmp", os.path.basename(temporary))
    else:
        assert synced == []

    def refuse(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="Input/output"):
        write_atomically(path, b"new", durable=durable)
    assert os.listdir(tmp_path) == ["x"]
    assert path.read_bytes() == b"old"


def test_of_two_who_replace_a_file_at_once_both_do(tmp_path, monkeypatch):
    path, replace = tmp_path / "x", os.replace

    def overtaken(source, target):
        monkeypatch.setattr(os, "replace", replace)
        write_atomically(path, b"the other's")
        assert path.read_bytes() == b"the other's"
        replace(source, target)

    monkeypatch.setattr(os, "replace", overtaken)
    write_atomically(path, b"mine")
    assert path.read_bytes() == b"mine"
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize(
    ("name", "tp"),
    [
        (f"a-b-12.{'0f' * 16}-future", ("a-b", 12)),
        (f"a.b-0.{'0f' * 16}-future", ("a.b", 0)),
        (f"t-0.{'0f' * 16}-delete", None),
        (f"t-0.{'0f' * 16}", None),
        (f"t-0.{'0f' * 15}0-future", None),
        (f"t-0.{'0f' * 16}0-future", None),
        (f"t-0.{'0f' * 15}0--future", None),
        (f"{'0f' * 16}-future", None),
        (f"t.{'0f' * 16}-future", None),
        ("t-0-future", None),
    ],
)
def test_a_directory_is_a_copy_of_a_partition_or_is_not(name, tp):
    assert parse_future_dir(name) == (TopicPartition(*tp) if tp else None)


def test_a_copy_has_a_name_of_its_own_of_which_the_partition_can_be_told(tmp_path):
    tp = TopicPartition("a-b", 7)
    paths = {future_path(tmp_path, tp) for _ in range(3)}
    assert len(paths) == 3
    for path in paths:
        assert path.parent == tmp_path
        assert parse_future_dir(path.name) == tp
        assert parse_partition_dir(path.name) is None


def test_what_has_too_long_a_name_for_a_copy_is_not_moved(tmp_path):
    longest = TopicPartition("x" * (255 - len("-7.") - 32 - len("-future")), 7)
    assert len(future_path(tmp_path, longest).name) == 255
    longer = TopicPartition(longest.topic + "x", 7)
    with pytest.raises(ApiError, match=f"{longer} cannot be moved: its topic's name is too long") as refused:
        future_path(tmp_path, longer)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    with pytest.raises(ApiError) as refused:
        future_path(tmp_path, TopicPartition("../x", 0))
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_file_is_named_by_an_offset_or_is_not(tmp_path):
    assert find_base_offset(tmp_path / f"{7:020d}.log.x.y") == 7
    assert find_base_offset(tmp_path / f"{7:020d}") == 7
    for name in (f"{7:019d}.log", f"{7:021d}.log", "x" * 20 + ".log", "\u0665" * 20, "-" + "0" * 19):
        assert find_base_offset(tmp_path / name) is None


def test_a_doomed_file_goes_at_once_where_there_is_no_room_for_its_new_name(tmp_path, monkeypatch):
    path = tmp_path / "x"
    path.touch()
    assert rename_deleted(path) == tmp_path / "x.deleted"
    assert os.listdir(tmp_path) == ["x.deleted"]
    assert rename_deleted(path) == tmp_path / "x.deleted", "somebody has removed it"

    def refuse(number):
        def rename(*_):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "rename", rename)

    path.touch()
    refuse(errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        rename_deleted(path)
    assert path.exists()
    refuse(errno.ENOSPC)
    assert rename_deleted(path) == tmp_path / "x.deleted"
    assert not path.exists()


def test_what_the_disk_lists_and_does_not_have_is_said(tmp_path, monkeypatch):
    """It could be tried again for ever."""
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "x").touch()

    def unlink(path, **_):
        raise FileNotFoundError(errno.ENOENT, "no such file", path)

    monkeypatch.setattr(os, "unlink", unlink)
    with pytest.raises(FileNotFoundError):
        remove_tree(tmp_path / "t-0")


def test_a_directory_is_made_with_all_above_it_and_synced_into_each(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    for _ in range(2):
        make_directory(tmp_path / "a" / "b")
    assert sorted(synced) == [str(tmp_path), str(tmp_path / "a")]
    assert (tmp_path / "a" / "b").is_dir()


def test_what_a_crash_left_of_a_replacement_is_removed_and_nothing_else(tmp_path):
    for name in ("x", "x.7.tmp", "y.tmp", "tmp"):
        (tmp_path / name).touch()
    remove_temporaries(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["tmp", "x"]


@pytest.mark.parametrize(
    ("name", "text"), [(b"\xff.log", r"\udcff.log"), (b"a\n.log", r"a\n.log"), ("é.log".encode(), "é.log")]
)
def test_a_name_that_no_broker_gave_can_be_sent_in_an_error(tmp_path, name, text):
    with pytest.raises(LogError) as caught:
        base_offset_of(tmp_path / os.fsdecode(name))
    assert str(caught.value).startswith(f"{tmp_path}/{text} is not named by an offset")
    assert str(caught.value).encode().decode() == str(caught.value)
