"""``sparklog backup``: made, listed, read again."""

import json

import pytest

from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.security.access import Operation, ResourceType
from sparklog.security.acl.binding import AclBinding
from sparklog.security.acl.entry import AclEntry
from sparklog.security.acl.pattern import PatternType, ResourcePattern
from sparklog.structs import TopicPartition
from sparklog.testing.secured import ADMIN

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
    assert [(each["backup"], each["records"]) for each in listed] == [(0, 20), (1, 20)]
    assert sum(each["end"] - each["start"] for each in listed[1]["topics"][filled]["partitions"]) == 20
    assert here("backup", "list", dest).out.count(filled) == 2
    assert here("backup", "verify", dest).out == "1 backup whole: 1\n"
    assert here("backup", "verify", dest, "--all").out == "2 backups whole: 0, 1\n"
    assert here("backup", filled, "--dest", dest).err.startswith("nothing was copied; ")


def test_a_backup_is_read_again_though_the_manifest_of_another_is_damaged(here, filled, dest):
    for _ in range(2):
        here("backup", filled, "--dest", dest)
    (dest / "backups" / f"{0:020}.json").write_text("{}")
    assert here("backup", "verify", dest).out == "1 backup whole: 1\n"
    for arguments in (("--at", 0), ("--all",)):
        found = here("backup", "verify", dest, *arguments)
        assert (found.status, found.out) == (1, "")
        assert "is damaged" in found.err


def test_what_a_user_may_not_describe_is_told(run, secured, operator, topic, dest):
    """``operator`` may read the topic. Of the groups with offsets in it, it is given the right to one, then to all."""
    hidden, named = f"{topic}-hidden", f"{topic}-named"

    def allow(operation, kind, name):
        pattern = ResourcePattern(kind, name, PatternType.LITERAL)
        admin.create_acls([AclBinding(pattern, AclEntry(f"User:{operator}", "*", operation))])

    def backed_up():
        found = run("backup", topic, "--dest", dest, "--command-config", secured.client_file(operator))
        assert found.status == 0, found.err
        listed = json.loads(run("backup", "list", dest, "--output", "json").out)[-1]
        return found, listed

    with Admin(secured.client(ADMIN)) as admin:
        admin.create_topics([NewTopic(topic, 1)])
        for group in (hidden, named):
            admin.alter_group_offsets(group, {TopicPartition(topic, 0): 0})
        allow(Operation.READ, ResourceType.TOPIC, topic)
        allow(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic)
        found, listed = backed_up()
        assert "warning: groups that this user may not DESCRIBE are not in the backup" in found.err
        assert "warning: transactions that this user may not DESCRIBE may have ended meanwhile" in found.err
        assert "--operation Describe --group '*'" in found.err
        assert "0, not all\tperhaps not" in found.out
        assert (listed["groups"], listed["unseen"]) == ([], {"groups": True, "transactions": True, "refused": []})
        allow(Operation.DESCRIBE, ResourceType.GROUP, named)
        assert backed_up()[1]["groups"] == [named]
        allow(Operation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster")  # it lists all groups, and gives no offsets
        found, listed = backed_up()
        assert "warning: not in the backup: groups " in found.err
        assert hidden in found.err
        assert hidden in listed["unseen"]["refused"]
        allow(Operation.DESCRIBE, ResourceType.GROUP, "*")
        allow(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "*")
        found, listed = backed_up()
        assert "warning" not in found.err
        assert (listed["groups"], listed["is_consistent"]) == ([hidden, named], True)
        assert listed["unseen"] == {"groups": False, "transactions": False, "refused": []}


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
