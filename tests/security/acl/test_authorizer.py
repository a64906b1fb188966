"""What is in force is what is decided; what is refused is told of."""

import logging

import pytest

from sparklog.security.access import CLUSTER, Operation, Resource, ResourceType
from sparklog.security.acl.authorizer import AclAuthorizer
from sparklog.security.acl.entry import AclEntry
from sparklog.security.acl.pattern import ResourcePattern
from sparklog.security.acl.snapshot import AclSnapshot
from sparklog.security.audit import AuditLog
from sparklog.security.caller import Caller
from sparklog.security.principal import Principal

TOPIC = Resource(ResourceType.TOPIC, "t")
ALICE = Caller("10.0.0.1", principal=Principal("User", "alice"))
ROOT = Caller("10.0.0.1", principal=Principal("User", "root"))


@pytest.fixture
def audit():
    return AuditLog(lambda: 0.0)


@pytest.fixture
def authorizer(audit):
    return AclAuthorizer([ROOT.principal], audit, allow_without_acl=False)


def test_without_lists_super_users_alone_may(authorizer):
    assert authorizer.allows(ROOT, Operation.ALTER, CLUSTER)
    assert authorizer.allows_somewhere(ROOT, Operation.WRITE, ResourceType.TOPIC)
    assert not authorizer.allows(ALICE, Operation.READ, TOPIC)
    assert not authorizer.allows_somewhere(ALICE, Operation.WRITE, ResourceType.TOPIC)


def test_the_next_snapshot_is_in_force_at_once(authorizer):
    assert not authorizer.allows(ALICE, Operation.READ, TOPIC)
    authorizer.snapshot = AclSnapshot({ResourcePattern(*TOPIC): frozenset({AclEntry("User:alice")})})
    assert authorizer.allows(ALICE, Operation.READ, TOPIC)


def test_where_no_list_concerns_a_resource_everybody_may_if_it_is_set_so(audit):
    authorizer = AclAuthorizer([], audit, allow_without_acl=True)
    assert authorizer.allows(ALICE, Operation.DELETE, TOPIC)
    authorizer.snapshot = AclSnapshot({ResourcePattern(*TOPIC): frozenset({AclEntry("User:bob")})})
    assert not authorizer.allows(ALICE, Operation.READ, TOPIC)
    assert authorizer.allows(ALICE, Operation.READ, Resource(ResourceType.GROUP, "t"))


def test_refusals_are_told_of_unless_they_are_no_attempts(authorizer, audit, caplog):
    with caplog.at_level(logging.INFO, "sparklog.audit"):
        authorizer.allows_quietly(ALICE, Operation.READ, TOPIC)
        assert not caplog.messages
        authorizer.allows(ALICE, Operation.READ, TOPIC)
        authorizer.allows_somewhere(ALICE, Operation.WRITE, ResourceType.GROUP)
        authorizer.allows(ROOT, Operation.READ, TOPIC)
    assert [each.partition(" to ")[0] for each in caplog.messages] == [
        "refused: READ of TOPIC 't'",
        "refused: WRITE of GROUP '(any)'",
    ]
    assert audit.refusals == {(ResourceType.TOPIC, Operation.READ): 1, (ResourceType.GROUP, Operation.WRITE): 1}
