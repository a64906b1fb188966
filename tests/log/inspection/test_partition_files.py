"""What the names in a partition directory tell."""

import pytest

from sparklog.log.inspection.partition_files import is_partition, list_partition

BASE = f"{5:020d}"


def listed(home, *names, in_use=False):
    for name in names:
        (home / name).touch()
    return list_partition(home, in_use=in_use)


def said(files):
    return [(str(each.severity), each.path.name, each.what) for each in files.findings]


def test_each_file_of_a_log_is_known_by_its_name(tmp_path):
    later = f"{12:020d}"
    names = [f"{base}{suffix}" for base in (BASE, later) for suffix in (".log", ".index", ".timeindex", ".txnindex")]
    files = listed(tmp_path, *names, f"{later}.snapshot", "leader-epoch-checkpoint", "partition.metadata")
    assert files.bases == [5, 12]
    assert files.snapshots == {12: tmp_path / f"{later}.snapshot"}
    assert files.transaction_indexes == {base: tmp_path / f"{base:020d}.txnindex" for base in (5, 12)}
    assert said(files) == []


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_an_index_without_its_log_is_left_over_unless_a_broker_is_at_work(tmp_path, suffix):
    name = f"{6:020d}{suffix}"
    assert said(listed(tmp_path, f"{BASE}.log", name)) == [("note", name, "there is no .log file of that name")]
    assert said(listed(tmp_path, in_use=True)) == []


def test_a_snapshot_stands_without_a_segment(tmp_path):
    assert said(listed(tmp_path, f"{BASE}.log", f"{9:020d}.snapshot")) == []


@pytest.mark.parametrize("name", ["5.log", "x.log", f"{BASE}.old.log"])
def test_a_log_that_is_not_named_by_its_offset_keeps_its_partition_from_being_opened(tmp_path, name):
    what = "not named by an offset of 20 digits: a broker refuses to open the partition"
    assert ("error", name, what) in said(listed(tmp_path, f"{BASE}.log", name))


@pytest.mark.parametrize("name", [".sparklog-copy", ".sparklog-moved", "adoption-checkpoint", "partition.metadata"])
def test_of_the_brokers_own_files_nobody_is_told_to_remove_one(tmp_path, name):
    assert said(listed(tmp_path, f"{BASE}.log", name)) == []


@pytest.mark.parametrize("name", ["notes.txt", f"{BASE}.txt", "5.index", "x.snapshot", "log"])
def test_what_is_no_file_of_a_log_is_noted(tmp_path, name):
    assert said(listed(tmp_path, f"{BASE}.log", name)) == [("note", name, "not a file of a log")]


@pytest.mark.parametrize(
    ("suffix", "what"),
    [
        (".log.cleaned", "of an unfinished rewrite"),
        (".log.swap", "rewritten, to replace others"),
        (".log.deleted", "to be removed"),
        (".log.9.corrupt", "cut out of the log for damage before it"),
        (".tmp", "small, not finished"),
    ],
)
def test_leftovers_of_a_kind_are_noted_once(tmp_path, suffix, what):
    one = f"{6:020d}{suffix}"
    assert said(listed(tmp_path, f"{BASE}.log", one)) == [("note", one, f"a file {what}")]
    kind = suffix[suffix.rindex(".") :]
    found = said(listed(tmp_path, f"{7:020d}{suffix}"))
    assert found == [("note", tmp_path.name, f"2 {kind} files {what}")]


def test_what_a_broker_at_work_is_just_writing_is_not_left_over(tmp_path):
    assert said(listed(tmp_path, f"{BASE}.log", "a.tmp", in_use=True)) == []
    assert len(said(listed(tmp_path, f"{BASE}.log.swap", in_use=True))) == 1


def test_a_directory_without_a_segment_is_noted(tmp_path):
    assert said(listed(tmp_path, "partition.metadata")) == [("note", tmp_path.name, "there is no segment")]


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("leader-epoch-checkpoint", True),
        ("partition.metadata", True),
        (f"{BASE}.log", True),
        ("server.log", False),
        (f"{BASE}.index", False),
        ("meta.properties", False),
    ],
)
def test_a_partition_is_known_by_what_lies_in_it(tmp_path, name, is_one):
    (tmp_path / "another").touch()
    (tmp_path / name).touch()
    assert is_partition(tmp_path) == is_one
