"""``sparklog backup``: made, listed, read again."""

import json

import pytest

pytestmark = pytest.mark.integration


@pytest.fixture
def filled(here, topic):
    assert here("topic", "create", topic, "--partitions", 2).status == 0
    assert here("produce", topic, stdin=b"".join(b"line %d\n" % number for number in range(20))).status == 0
    return topic


@pytest.fixture
def dest(tmp_path):
    return tmp_path / "dest"


def test_a_backup_is_made_listed_and_read_again(here, filled, dest):
    first = here("backup", filled, "--dest", dest)
    assert first.status == 0, first.err
    assert first.out.splitlines()[0].split("\t")[:3] == ["backup", "made", "topics"]
    assert " bytes were copied; " in first.err
    second = json.loads(here("backup", "run", filled, "--dest", dest, "--output", "json").out)
    assert (second["backup"], second["copied_bytes"], list(second["topics"])) == (1, 0, [filled])
    listed = json.loads(here("backup", "list", dest, "--output", "json").out)
    assert [each["backup"] for each in listed] == [0, 1]
    assert sum(each["end"] - each["start"] for each in listed[1]["topics"][filled]["partitions"]) == 20
    assert here("backup", "list", dest).out.count(filled) == 2
    assert here("backup", "verify", dest).out == "1 backup whole: 1\n"
    assert here("backup", "verify", dest, "--all").out == "2 backups whole: 0, 1\n"
    assert here("backup", filled, "--dest", dest).err.startswith("nothing was copied; ")


def test_damage_is_an_error_that_names_the_file(here, filled, dest):
    here("backup", filled, "--dest", dest)
    damaged = next(dest.rglob("*.log"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    found = here("backup", "verify", dest, "--at", 0)
    assert found.status == 1
    assert str(damaged) in found.out
    assert "1 file damaged or missing" in found.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["list"], "there is no backup in"),
        (["verify"], "there is no backup in"),
    ],
)
def test_where_there_is_none_is_said(run, dest, arguments, said):
    found = run("backup", *arguments, dest)
    assert found.status == 1
    assert said in found.err


def test_a_number_that_there_is_not_is_said(here, filled, dest):
    here("backup", filled, "--dest", dest)
    assert "there is no backup 3 in" in here("backup", "verify", dest, "--at", 3).err


def test_a_topic_that_there_is_not_is_said_and_nothing_is_made(here, dest):
    found = here("backup", "no-such-topic", "--dest", dest)
    assert found.status == 1
    assert 'see "sparklog topic list"' in found.err
    assert not dest.exists()
