"""The rights that docs/security.md names for erasures, backups and restores: they suffice, and each one is named."""

import pytest

from sparklog.client.admin.admin import AclFilter, Admin, NewTopic
from sparklog.security.access import Operation, ResourceType
from sparklog.security.acl.binding import AclBinding
from sparklog.security.acl.entry import AclEntry
from sparklog.security.acl.pattern import PatternType, ResourcePattern
from sparklog.structs import TopicPartition
from sparklog.testing.secured import ADMIN

pytestmark = pytest.mark.integration
ALL, CLUSTER = "*", "kafka-cluster"


@pytest.fixture
def admin(secured):
    with Admin(secured.client(ADMIN)) as found:
        yield found


@pytest.fixture
def allow(admin, operator):
    """``allow(*rights)``: it has these and no others; a right is an operation, a type and a name."""

    def allowed(*rights):
        admin.delete_acls([AclFilter(principal=f"User:{operator}")])
        admin.create_acls(
            [
                AclBinding(ResourcePattern(kind, name, PatternType.LITERAL), AclEntry(f"User:{operator}", "*", each))
                for each, kind, name in rights
            ]
        )

    return allowed


@pytest.fixture
def as_user(run, secured):
    """``as_user(user, *arguments)``: the command as this user gives it."""

    def given(user, *arguments, **more):
        return run(*arguments, "--command-config", secured.client_file(user), **more)

    return given


@pytest.fixture
def filled(admin, as_user, topic):
    """A topic with ten records, and a group that has read some."""
    admin.create_topics([NewTopic(topic, 1, 1, {"cleanup.policy": "compact"})])
    lines = ("produce", topic, "--key-separator", ":")
    assert as_user(ADMIN, *lines, stdin=b"".join(b"k%d:v\n" % number for number in range(10))).status == 0
    admin.alter_group_offsets(f"{topic}-group", {TopicPartition(topic, 0): 3})
    return topic


def refused(found, *words):
    assert found.status == 1
    assert "AUTHORIZATION_FAILED" in found.err
    assert "docs/security.md: What Spark needs" in found.err
    assert not [word for word in words if word not in found.err], found.err


def topic_rights(name, *operations):
    return [(each, ResourceType.TOPIC, name) for each in operations]


def test_an_erasure(allow, as_user, operator, filled, tmp_path):
    (tmp_path / "keys").write_text("k1\n")
    erase = ("erase", filled, "--keys", tmp_path / "keys", "--yes", "--report", tmp_path / "report.json")
    for given in ([], [Operation.READ, Operation.WRITE, Operation.ALTER]):
        allow(*topic_rights(filled, *given))
        refused(as_user(operator, *erase), "DELETE on each topic")
    allow(*topic_rights(filled, Operation.DELETE))
    found = as_user(operator, *erase)
    assert found.status == 0, found.err


def test_a_backup(allow, as_user, operator, filled, tmp_path):
    backup = ("backup", filled, "--dest", tmp_path / "dest")
    for given in (Operation.READ, Operation.DESCRIBE_CONFIGS):
        allow(*topic_rights(filled, given))
        refused(as_user(operator, *backup), "READ and DESCRIBE_CONFIGS on each topic")
    allow(*topic_rights(filled, Operation.READ, Operation.DESCRIBE_CONFIGS))
    assert as_user(operator, *backup).status == 0


def test_a_restore(allow, as_user, admin, operator, filled, tmp_path):
    """Whatever right is missing, the same command goes on when it is given."""
    assert as_user(ADMIN, "backup", filled, "--dest", tmp_path / "dest").status == 0
    name = f"{filled}-back"
    restore = ("restore", tmp_path / "dest", "--topic", filled, "--to", name)
    needed = [
        *topic_rights(name, Operation.CREATE, Operation.DESCRIBE_CONFIGS, Operation.WRITE, Operation.ALTER),
        (Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER),
    ]
    for right in needed:
        allow(*(each for each in needed if each != right))
        refused(as_user(operator, *restore), right[0].name)
    for right in (*topic_rights(name, Operation.READ), (Operation.READ, ResourceType.GROUP, ALL)):
        allow(*needed, right)
        refused(as_user(operator, *restore), "the topics are restored, but not the offsets of all groups", "READ")
    allow(*needed, *topic_rights(name, Operation.READ), (Operation.READ, ResourceType.GROUP, ALL))
    found = as_user(operator, *restore)
    assert found.status == 0, found.err
    assert "1 group" in found.out
    assert admin.group_offsets(f"{filled}-group")[TopicPartition(name, 0)].offset == 3
