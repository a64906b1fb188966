"""A broker follows the lists in ZooKeeper: it misses no change, and what cannot be read allows nothing new."""

import asyncio

import pytest
from broker.security.acl_lists import ALICE, ROOT, FakeStore, following, until

from sparklog.broker.security.acls import configured
from sparklog.config.broker import ACL_AUTHORIZER, BrokerConfig, parse_broker_config
from sparklog.errors import ConfigError, CoordinationError, MalformedZnode
from sparklog.security.access import Operation, Resource, ResourceType
from sparklog.security.acl.entry import DENY_EVERYBODY, AclEntry
from sparklog.security.acl.pattern import PatternType, ResourcePattern
from sparklog.testing.clock import ManualClock

TOPIC = Resource(ResourceType.TOPIC, "t-1")
LITERAL = ResourcePattern(*TOPIC)
PREFIXED = ResourcePattern(ResourceType.TOPIC, "t-", PatternType.PREFIXED)
GRANT = AclEntry("User:alice", "*", Operation.READ)


@pytest.fixture
def store():
    return FakeStore()


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch):
    monkeypatch.setattr("sparklog.broker.following._LOOK_AT_LEAST_EVERY_S", 0.01)


def run(test, store):
    async def main():
        async with following(store) as acls:
            await test(acls)

    asyncio.run(main())


def may(acls):
    return acls.authorizer.allows(ALICE, Operation.READ, TOPIC)


@pytest.mark.parametrize("pattern", [LITERAL, PREFIXED], ids=str)
@pytest.mark.parametrize("lost", [False, True])
def test_what_others_change_is_in_force_here(store, pattern, lost):
    async def test(acls):
        assert not may(acls)
        store.tell(pattern, GRANT, lost=lost)
        await until(lambda: may(acls))
        store.tell(pattern, lost=lost)
        await until(lambda: not may(acls))
        assert store.readings == 1
        await until(lambda: store.told[pattern.type].kept_ms == 900_000)

    run(test, store)


def test_what_is_changed_here_is_in_force_when_that_is_said(store):
    async def test(acls):
        assert await acls.change(LITERAL, frozenset({GRANT}).union) == frozenset()
        assert may(acls)
        assert await acls.change(LITERAL, lambda _: frozenset()) == {GRANT}
        assert not may(acls)

    run(test, store)


def test_lists_that_were_there_before_the_start_are_in_force(store):
    store.tell(LITERAL, GRANT)

    async def test(acls):
        assert may(acls)

    run(test, store)


def test_all_is_read_again_where_a_number_is_missing(store):
    async def test(acls):
        store.lists[LITERAL] = frozenset({GRANT})
        store.told[PatternType.LITERAL].next_number += 1  # told of and forgotten while this broker was away
        store.tell(PREFIXED._replace(type=PatternType.LITERAL), GRANT)
        await until(lambda: may(acls))
        assert store.readings == 2

    run(test, store)


def test_all_is_read_again_where_numbers_begin_anew(store):
    for _ in range(3):
        store.told[PatternType.LITERAL].tell(LITERAL)

    async def test(acls):
        store.told[PatternType.LITERAL].told.clear()
        store.told[PatternType.LITERAL].next_number = 0
        store.tell(LITERAL, GRANT)
        await until(lambda: may(acls))
        store.tell(LITERAL)
        await until(lambda: not may(acls))
        assert store.readings == 2

    run(test, store)


def test_a_number_that_a_stranger_chose_hides_no_change(store):
    store.told[PatternType.LITERAL].told[(1 << 31) - 1] = LITERAL

    async def test(acls):
        store.tell(LITERAL, GRANT)
        await until(lambda: may(acls))
        store.tell(LITERAL)
        await until(lambda: not may(acls))

    run(test, store)


def test_notifications_that_were_all_purged_are_no_reason_to_read_again(store):
    store.told[PatternType.LITERAL].tell(LITERAL)

    async def test(acls):
        store.told[PatternType.LITERAL].told.clear()
        last = store.changes[-1]
        for _ in range(5):
            last.watch = None
            await until(lambda: last.watch)
        assert store.readings == 1

    run(test, store)


def test_all_is_read_again_in_another_session_and_until_then_what_was_known_holds(store):
    store.tell(LITERAL, GRANT)

    async def test(acls):
        store.failures = 3
        store.lists[LITERAL] = frozenset()
        store.changes[0].session_id = 2
        assert may(acls)
        await until(lambda: not may(acls))
        assert store.failures == 0
        assert store.readings == 2

    run(test, store)


def test_a_notification_that_cannot_be_read_means_that_any_list_may_be_another(store):
    async def test(acls):
        store.lists[LITERAL] = frozenset({GRANT})
        store.told[PatternType.LITERAL].tell("malformed")
        await until(lambda: may(acls))

    run(test, store)


def test_a_list_that_cannot_be_read_any_more_stays_as_it_was(store, caplog):
    async def test(acls):
        store.tell(LITERAL, GRANT)
        await until(lambda: may(acls))
        store.malformed.add(LITERAL)
        store.told[PatternType.LITERAL].tell(LITERAL)
        await until(lambda: "what it said before stays in force" in caplog.text)
        store.changes[0].session_id = 2
        await until(lambda: store.readings == 2)
        assert may(acls)
        with pytest.raises(MalformedZnode):
            await acls.change(LITERAL, lambda _: frozenset())
        store.malformed.clear()
        store.tell(LITERAL)
        await until(lambda: not may(acls))

    run(test, store)


def test_a_list_that_could_never_be_read_denies_everything(store, caplog):
    store.tell(PREFIXED, GRANT)
    store.malformed.add(LITERAL)

    async def test(acls):
        assert "it denies everything" in caplog.text
        assert not may(acls)
        assert acls.snapshot.entries(LITERAL) == {DENY_EVERYBODY}
        assert acls.authorizer.allows(ROOT, Operation.READ, TOPIC)
        store.malformed.clear()
        store.tell(LITERAL)
        await until(lambda: may(acls))

    run(test, store)


def test_a_broker_does_not_start_without_having_read_the_lists(store):
    store.failures = 1
    with pytest.raises(CoordinationError):
        run(None, store)


def test_a_broker_has_an_authorizer_where_it_is_set():
    async def of(settings):
        return configured(settings, None, None, ManualClock())

    assert asyncio.run(of(BrokerConfig())) is None
    asked = {"authorizer.class.name": ACL_AUTHORIZER, "super.users": "User:CN=a,O=b; User:root;"}
    found = asyncio.run(of(parse_broker_config(asked)))
    assert found.authorizer.allows_quietly(ROOT, Operation.ALTER, TOPIC)
    assert not found.authorizer.allows_quietly(ALICE, Operation.ALTER, TOPIC)
    everybody = parse_broker_config({**asked, "allow.everyone.if.no.acl.found": "true"})
    assert asyncio.run(of(everybody)).authorizer.allows_quietly(ALICE, Operation.ALTER, TOPIC)
    with pytest.raises(ConfigError, match=r"super\.users: 'root' is no principal"):
        asyncio.run(of(parse_broker_config({**asked, "super.users": "User:a;root"})))
