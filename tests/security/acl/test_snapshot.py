"""A snapshot says what its lists say, and does not go through them to find out."""

from random import Random

import pytest
from security.acl import drawn, model

from sparklog.security.access import Operation, Resource, ResourceType
from sparklog.security.acl.entry import ALL, AclEntry, Permission
from sparklog.security.acl.pattern import PatternType, ResourcePattern
from sparklog.security.acl.snapshot import AclSnapshot
from sparklog.security.principal import Principal

ALICE = Principal("User", "alice")
HOST = "10.0.0.1"


@pytest.mark.parametrize("seed", range(40))
def test_every_question_is_answered_as_by_going_through_all_lists(seed):
    random = Random(seed)
    bindings = drawn.bindings(random)
    snapshot = AclSnapshot(drawn.lists_of(bindings))
    for _ in range(200):
        caller, resource, operation = drawn.caller(random), drawn.resource(random), random.choice(list(Operation))
        grants = snapshot.grants(caller.principal, caller.host, resource)
        answer = grants.allow(operation) if grants.has_list else None
        assert answer == model.allows(bindings, caller, operation, resource, allow_without_acl=None)
        for unless_listed in (False, True):
            found = snapshot.allows_somewhere(
                caller.principal, caller.host, operation, resource.kind, unless_listed=unless_listed
            )
            assert found == model.allows_somewhere(
                bindings, caller, operation, resource.kind, allow_without_acl=unless_listed
            )


@pytest.mark.parametrize("seed", range(10))
def test_a_snapshot_made_by_changes_is_the_one_made_at_once(seed):
    random = Random(seed)
    snapshot, lists = AclSnapshot({}), {}
    for _ in range(60):
        pattern, entries = drawn.pattern(random), frozenset(entry for _, entry in drawn.bindings(random, 3))
        before, known = snapshot, snapshot.lists
        snapshot = snapshot.with_list(pattern, entries)
        lists = {**lists, pattern: entries}
        assert snapshot.entries(pattern) == entries
        assert before.lists == known
    lists = {pattern: entries for pattern, entries in lists.items() if entries}
    assert snapshot.lists == lists == AclSnapshot(lists).lists
    for _ in range(200):
        caller, resource = drawn.caller(random), drawn.resource(random)
        asked = (caller.principal, caller.host, resource)
        assert snapshot.grants(*asked) == AclSnapshot(lists).grants(*asked)


def test_a_change_is_not_hidden_by_what_was_remembered():
    topic, pattern = Resource(ResourceType.TOPIC, "t"), ResourcePattern(ResourceType.TOPIC, "t")
    snapshot = AclSnapshot({pattern: frozenset({AclEntry(str(ALICE))})})
    assert snapshot.grants(ALICE, HOST, topic).allow(Operation.READ)
    assert snapshot.allows_somewhere(ALICE, HOST, Operation.READ, ResourceType.TOPIC, unless_listed=False)
    after = snapshot.with_list(pattern, frozenset())
    assert not after.grants(ALICE, HOST, topic).has_list
    assert not after.allows_somewhere(ALICE, HOST, Operation.READ, ResourceType.TOPIC, unless_listed=False)


@pytest.mark.parametrize("written", ["::1", "0:0:0:0:0:0:0:1", "0000::0001"])
@pytest.mark.parametrize("permission", Permission)
def test_a_host_is_the_same_however_its_address_is_written(written, permission):
    """Kafka's brokers go by Java's way to write it, so that lists have it."""
    pattern, topic = ResourcePattern(ResourceType.TOPIC, "t"), Resource(ResourceType.TOPIC, "t")
    open_to_all = AclEntry("User:*", "*", ALL, Permission.ALLOW)
    entry = AclEntry(str(ALICE), written, Operation.READ, permission)
    snapshot = AclSnapshot({pattern: frozenset({entry} if permission is Permission.ALLOW else {entry, open_to_all})})
    is_allowed = permission is Permission.ALLOW
    for host, expected in (("::1", is_allowed), ("::2", not is_allowed)):
        assert snapshot.grants(ALICE, host, topic).allow(Operation.READ) is expected
        somewhere = snapshot.allows_somewhere(ALICE, host, Operation.READ, ResourceType.TOPIC, unless_listed=False)
        assert somewhere is expected
    assert entry in snapshot.entries(pattern)


class _Counted(str):
    """A name that counts how often it is compared and looked up."""

    __slots__ = ()
    looks = 0

    def __lt__(self, other):
        _Counted.looks += 1
        return str.__lt__(self, other)

    def __hash__(self):
        _Counted.looks += 1
        return str.__hash__(self)

    def startswith(self, *asked):
        _Counted.looks += 1
        return str.startswith(self, *asked)

    def __eq__(self, other):
        return str.__eq__(self, other)


def _ten_thousand_lists(others):
    """5,000 prefixes, 4,000 literal names, and 1,000 entries more on the wildcard."""
    grant = frozenset({AclEntry(str(ALICE), "*", Operation.READ)})
    lists = {ResourcePattern(ResourceType.TOPIC, f"t{each:05}.", PatternType.PREFIXED): grant for each in range(5000)}
    lists |= {ResourcePattern(ResourceType.TOPIC, f"t{each:05}.x"): grant for each in range(4000)}
    lists[ResourcePattern(ResourceType.TOPIC, "*")] = frozenset(AclEntry(f"User:u{each}") for each in range(others))
    return AclSnapshot(lists)


def _looks(snapshot, name):
    _Counted.looks = 0
    assert snapshot.grants(ALICE, HOST, Resource(ResourceType.TOPIC, _Counted(name))).allow(Operation.READ)
    return _Counted.looks


def test_a_decision_among_ten_thousand_entries_takes_twenty_looks_and_the_next_of_its_kind_one():
    snapshot = _ten_thousand_lists(others=1000)
    assert _looks(snapshot, "t02500.x") <= 24  # 13 to bisect 5,000 prefixes, and a few
    assert _looks(snapshot, "t02500.x") <= 1


def test_a_list_of_many_entries_is_not_gone_through():
    class Entries(frozenset[AclEntry]):
        def __iter__(self):
            raise AssertionError("a decision goes through a list")

    snapshot = _ten_thousand_lists(others=5000)
    for kind in snapshot._kinds.values():
        for lists in kind.lists.values():
            for each in lists.values():
                each.entries = Entries()
    assert snapshot.grants(ALICE, HOST, Resource(ResourceType.TOPIC, "t00007.x")).allow(Operation.DESCRIBE)


def test_what_is_remembered_has_an_end():
    snapshot = AclSnapshot({ResourcePattern(ResourceType.TOPIC, "*"): frozenset({AclEntry(str(ALICE))})})
    for each in range(45_000):
        snapshot.grants(ALICE, HOST, Resource(ResourceType.TOPIC, str(each)))
    snapshot.grants(ALICE, HOST, Resource(ResourceType.TOPIC, "x" * 30_000))
    assert 0 < len(snapshot._remembered) <= 20_000
    assert max(len(resource.name) for _, _, resource in snapshot._remembered) < 250


def test_a_denial_of_all_counts_before_every_grant():
    pattern = ResourcePattern(ResourceType.TOPIC, "secret", PatternType.PREFIXED)
    lists = {
        ResourcePattern(ResourceType.TOPIC, "*"): frozenset({AclEntry("User:*")}),
        pattern: frozenset({AclEntry(str(ALICE), HOST, ALL, Permission.DENY)}),
    }
    snapshot = AclSnapshot(lists)
    assert not snapshot.grants(ALICE, HOST, Resource(ResourceType.TOPIC, "secrets")).allow(Operation.READ)
    assert snapshot.grants(ALICE, "10.0.0.2", Resource(ResourceType.TOPIC, "secrets")).allow(Operation.READ)
    assert snapshot.grants(ALICE, HOST, Resource(ResourceType.TOPIC, "secre")).allow(Operation.READ)
