import asyncio
import gc
import logging
import threading
from types import SimpleNamespace
from urllib.parse import quote

import pytest

from sparklog.broker import client_quotas
from sparklog.broker.client_quotas import BETWEEN_BROKERS, ClientQuotas, entity_at, metered
from sparklog.broker.registry import OFFERED
from sparklog.config.broker import parse_broker_config
from sparklog.errors import ApiError, ConfigError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import HeartbeatResponse
from sparklog.quota.entity import DEFAULT, Entity, IpEntity
from sparklog.security.acl.authorizer import AclAuthorizer
from sparklog.security.audit import AuditLog
from sparklog.security.caller import Caller
from sparklog.security.principal import ANONYMOUS, Principal
from sparklog.testing.clock import ManualClock

SIZE = 1_000_000


class Connection:
    """One that was muted so."""

    def __init__(self):
        self.muted = []

    def mute(self, seconds):
        self.muted.append(seconds)


@pytest.fixture
def clock():
    return ManualClock()


def quotas_of(clock, entities, **settings):
    quotas = ClientQuotas(parse_broker_config({"log.dirs": "/x", **settings}), clock)
    for path, properties in entities.items():
        quotas.take_over(path, properties)
    return quotas


def caller_of(user="ANONYMOUS"):
    return Caller("10.0.0.1", principal=Principal("User", user), connection=Connection())


def charge(quotas, caller, api=ApiKey.PRODUCE, *, client_id="c", size=SIZE, answer=None, version=9):
    return quotas.charge(api, version, caller, client_id, size, {} if answer is None else answer)


def test_without_quotas_it_is_off(clock):
    quotas = quotas_of(clock, {})
    assert not quotas.is_on
    quotas.take_over("clients/c", {"producer_byte_rate": "1000"})
    assert quotas.is_on
    quotas.take_over("clients/c", {})
    assert not quotas.is_on


@pytest.mark.parametrize(
    ("path", "entity"),
    [
        ("users/a%20b", Entity("a b")),
        ("users/<default>", Entity(DEFAULT)),
        ("users/u/clients/<default>", Entity("u", DEFAULT)),
        ("clients/%3Cdefault%3E", Entity(client_id="<default>")),
        ("ips/10.0.0.1", IpEntity("10.0.0.1")),
        ("ips/<default>", IpEntity(DEFAULT)),
    ],
)
def test_whose_settings_they_are(path, entity):
    assert entity_at(path) == entity


def test_a_produce_counts_with_its_size_and_its_connection_is_muted(clock):
    quotas, caller = quotas_of(clock, {"clients/c": {"producer_byte_rate": "50000"}}), caller_of()
    assert charge(quotas, caller) == 10_000
    assert caller.connection.muted == [10.0]
    assert charge(quotas, caller, client_id="d") == 0
    assert charge(quotas, caller, client_id=None) == 0
    assert caller.connection.muted == [10.0]


def test_what_is_adopted_counts_as_produced(clock):
    quotas, caller = quotas_of(clock, {"clients/c": {"producer_byte_rate": "50000"}}), caller_of()
    assert quotas.count_produced(caller, "c", SIZE) == 10_000
    assert caller.connection.muted == [], "its answer does that"
    assert charge(quotas, caller, size=0) == 10_000
    assert quotas.count_produced(caller, "d", SIZE) == 0
    quotas.take_over("clients/c", {"consumer_byte_rate": "50000"})
    assert quotas.count_produced(caller, "c", SIZE) == 0


def test_a_produce_without_an_answer_is_muted_by_its_bytes_alone(clock):
    entities = {"clients/c": {"producer_byte_rate": "50000", "request_percentage": "0.001"}}
    quotas, caller = quotas_of(clock, entities), caller_of()
    caller.busy_s = 5.0
    assert quotas.charge(ApiKey.PRODUCE, 9, caller, "c", SIZE, None) == 10_000
    caller.busy_s = 9.0
    assert quotas.charge(ApiKey.PRODUCE, 9, caller, "d", SIZE, None) == 0


def test_the_quota_is_that_of_the_user_who_has_authenticated(clock):
    quotas = quotas_of(clock, {"users/alice": {"producer_byte_rate": "50000"}})
    assert charge(quotas, caller_of("alice")) == 10_000
    assert charge(quotas, caller_of("bob")) == 0


@pytest.mark.parametrize("principal", [ANONYMOUS, Principal("Team", "blue, 7")])
def test_the_quota_is_found_by_a_principals_name_whatever_it_is(clock, principal):
    path = f"users/{quote(principal.name)}"
    quotas, caller = quotas_of(clock, {path: {"producer_byte_rate": "50000"}}), caller_of("another")
    assert charge(quotas, caller) == 0
    caller.principal = principal
    assert charge(quotas, caller) == 10_000


def test_time_counts_as_a_part_of_the_loop(clock):
    quotas, caller = quotas_of(clock, {"clients/c": {"request_percentage": "10"}}), caller_of()
    caller.busy_s = 7.0
    assert charge(quotas, caller, ApiKey.HEARTBEAT) == 0, "what was before the quota"
    caller.busy_s += 1.0  # of the ten seconds that are looked at: 10 %
    assert charge(quotas, caller, ApiKey.HEARTBEAT) == 0
    caller.busy_s += 0.05
    assert charge(quotas, caller, ApiKey.HEARTBEAT) == 500
    assert charge(quotas, caller, ApiKey.HEARTBEAT) == 500, "nothing counts twice"
    caller.busy_s += 9.0
    assert charge(quotas, caller, ApiKey.HEARTBEAT) == 1000, "no longer than a window"


def test_time_that_was_spent_while_no_quota_of_time_was_set_does_not_count(clock):
    quotas, caller = quotas_of(clock, {"clients/c": {"request_percentage": "10"}}), caller_of()
    charge(quotas, caller, ApiKey.HEARTBEAT)
    quotas.take_over("clients/c", {"producer_byte_rate": "50000"})
    caller.busy_s += 100.0
    charge(quotas, caller, ApiKey.HEARTBEAT)
    quotas.take_over("clients/c", {"request_percentage": "10"})
    assert charge(quotas, caller, ApiKey.HEARTBEAT) == 0


def test_the_longest_wait_is_told(clock):
    entities = {"clients/c": {"producer_byte_rate": "50000", "request_percentage": "10"}}
    quotas, caller = quotas_of(clock, entities), caller_of()
    charge(quotas, caller, ApiKey.HEARTBEAT)
    caller.busy_s = 2.0
    assert charge(quotas, caller, size=505_000) == 1000, "of the time, and 100 ms of the bytes"
    assert charge(quotas, caller, ApiKey.HEARTBEAT, answer=HeartbeatResponse(throttle_time_ms=7000)) == 7000
    assert caller.connection.muted == [1.0, 7.0]


@pytest.mark.parametrize("api", sorted(BETWEEN_BROKERS & OFFERED.keys()))
def test_what_brokers_ask_each_other_does_not_count(clock, api):
    quotas, caller = quotas_of(clock, {"clients/<default>": {"request_percentage": "0"}}), caller_of()
    charge(quotas, caller, ApiKey.HEARTBEAT)
    caller.busy_s = 5.0
    assert charge(quotas, caller, api) == 0
    assert charge(quotas, caller, ApiKey.ADD_PARTITIONS_TO_TXN, version=4) == 0
    assert charge(quotas, caller, ApiKey.HEARTBEAT) == 0
    caller.busy_s = 6.0
    assert charge(quotas, caller, ApiKey.ADD_PARTITIONS_TO_TXN, version=3) > 0


@pytest.mark.parametrize("api", [ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.FETCH, ApiKey.PRODUCE], ids=str)
def test_what_is_refused_or_not_answered_makes_nothing_forgotten(clock, api):
    quotas, caller = quotas_of(clock, {"clients/c": {"request_percentage": "1"}}), caller_of()
    quotas.authorizer = AclAuthorizer([], AuditLog(clock.monotonic), allow_without_acl=False)
    charge(quotas, caller, ApiKey.HEARTBEAT)
    caller.busy_s += 5.0
    if api is ApiKey.FETCH:
        assert not quotas.follow(caller)
    else:
        quotas.charge(api, 9, caller, "c", 10, None if api is ApiKey.PRODUCE else HeartbeatResponse(throttle_time_ms=0))
    assert charge(quotas, caller, ApiKey.HEARTBEAT) == 1000


def test_a_fetch_that_is_too_much_is_not_given_and_does_not_count(clock):
    quotas, caller = quotas_of(clock, {"clients/c": {"consumer_byte_rate": "1000"}}), caller_of()
    assert quotas.charge_fetch(caller, "c", 10_000) == 0
    for _ in range(3):
        assert quotas.charge_fetch(caller, "c", 5_000) == 5_000
    clock.advance(11)
    assert quotas.charge_fetch(caller, "c", 10_000) == 0
    assert quotas.charge(ApiKey.FETCH, 12, caller, "c", 10, SimpleNamespace(throttle_ms=5)) == 5
    assert caller.connection.muted == [5.0] * 3


def test_who_was_given_nothing_is_given_a_batch_of_any_size(clock):
    quotas, caller = quotas_of(clock, {"clients/c": {"consumer_byte_rate": "1000"}}), caller_of()
    assert quotas.most_to_fetch(caller, "c") == 10_000
    assert quotas.most_to_fetch(caller, "d") == 2**31 - 1
    assert quotas.charge_fetch(caller, "c", 1 << 20) == 0
    assert quotas.charge_fetch(caller, "c", 20) > 1_000_000


def test_a_lease_counts_and_the_next_is_refused_until_the_wait_is_over(clock):
    quotas, caller = quotas_of(clock, {"clients/c": {"consumer_byte_rate": "1000"}}), caller_of()
    assert quotas.room_for_lease(caller, "c") == (10_000, 0)
    assert quotas.charge_lease(caller, "c", 12_000) == 2_000
    assert quotas.room_for_lease(caller, "c") == (10_000, 2_000)
    assert quotas.charge_fetch(caller, "c", 1) > 2_000
    clock.advance(11)
    assert quotas.room_for_lease(caller, "c") == (10_000, 0)
    assert quotas.charge_lease(caller, "d", 1 << 40) == 0


def test_changes_are_refused_where_the_client_knows_that(clock):
    quotas, caller = quotas_of(clock, {"clients/c": {"controller_mutation_rate": "1"}}), caller_of()
    quotas.changes(caller, "c", is_strict=True).take(20)
    changes = quotas.changes(caller, "c", is_strict=True)
    with pytest.raises(ApiError) as refusal:
        changes.take(1)
    assert refusal.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert changes.throttle_ms == 9_000
    clock.advance(4)
    assert changes.throttle_ms == 5_000
    permissive = quotas.changes(caller, "c", is_strict=False)
    permissive.take(1)
    assert permissive.throttle_ms == 6_000


def test_changes_are_free_without_a_quota(clock):
    for entities in ({}, {"clients/c": {"controller_mutation_rate": "1"}}):
        changes = quotas_of(clock, entities).changes(caller_of(), "d", is_strict=True)
        changes.take(1 << 20)
        assert changes.throttle_ms == 0


def test_the_old_settings_are_the_default_of_client_ids_until_zookeeper_has_one(clock):
    quotas = quotas_of(clock, {}, **{"quota.producer.default": "50000", "quota.consumer.default": "1000"})
    caller = caller_of()
    assert charge(quotas, caller) == 10_000
    assert quotas.most_to_fetch(caller, "c") == 10_000
    quotas.take_over("clients/<default>", {"producer_byte_rate": "100000"})
    assert charge(quotas, caller, size=0) == 0
    assert quotas.most_to_fetch(caller, "c") == 10_000
    quotas.take_over("clients/<default>", {})
    assert charge(quotas, caller, size=0) == 10_000


def test_windows_are_those_of_the_settings(clock):
    entities = {"clients/c": {"producer_byte_rate": "1000", "controller_mutation_rate": "1"}}
    names = ("quota.window.num", "quota.window.size.seconds")
    settings = dict(zip((*names, *(f"controller.{each}" for each in names)), ("3", "2", "5", "4"), strict=True))
    quotas, caller = quotas_of(clock, entities, **settings), caller_of()
    assert charge(quotas, caller, size=4_000) == 0
    assert charge(quotas, caller, size=1) == 1
    changes = quotas.changes(caller, "c", is_strict=False)
    changes.take(20)
    assert changes.throttle_ms == 0


@pytest.mark.parametrize(
    ("path", "properties"), [("clients/c", {"producer_byte_rate": "much"}), ("teams/x", {"producer_byte_rate": "5"})]
)
def test_what_cannot_be_read_leaves_all_as_it_was(clock, caplog, path, properties):
    quotas = quotas_of(clock, {"clients/c": {"producer_byte_rate": "50000"}})
    with caplog.at_level(logging.ERROR):
        quotas.take_over(path, properties)
    assert path in caplog.text
    assert charge(quotas, caller_of()) == 10_000


def test_an_address_is_held_by_its_rate_however_it_is_written(clock):
    quotas = quotas_of(clock, {"ips/::0001": {"connection_creation_rate": "1"}})
    rates = quotas.quotas.connections
    assert [rates.record("::1", 0) for _ in range(11)] == [0] * 10 + [1000]
    assert not quotas.is_on


def test_a_host_is_looked_up(clock):
    async def scenario():
        quotas = quotas_of(clock, {"ips/localhost": {"connection_creation_rate": "0"}})
        rates = quotas.quotas.connections
        async with asyncio.timeout(60):
            while not rates.is_set:
                await asyncio.sleep(0)
        assert rates.record("127.0.0.1", 0) == 1000
        quotas.take_over("ips/localhost", {})
        assert not rates.is_set

    asyncio.run(scenario())


@pytest.mark.parametrize("then", [{}, {"connection_creation_rate": "1"}], ids=["none", "another"])
def test_a_look_for_a_host_that_ends_late_brings_no_former_rate_back(clock, monkeypatch, then):
    """A resolver takes seconds; what is set meanwhile holds, or that none is."""
    begun, go_on = threading.Event(), threading.Event()

    def by_address(hosts, _setting):
        if not begun.is_set():
            begun.set()
            assert go_on.wait(60)
        return {"10.0.0.1": 0}

    monkeypatch.setattr(client_quotas, "by_address", by_address)

    async def scenario():
        quotas = quotas_of(clock, {"ips/far": {"connection_creation_rate": "0"}})
        assert await asyncio.to_thread(begun.wait, 60)
        quotas.take_over("ips/far", then)
        if then:
            async with asyncio.timeout(60):
                while not quotas.quotas.connections.is_set:
                    await asyncio.sleep(0)
        go_on.set()
        await asyncio.get_running_loop().shutdown_default_executor()
        await asyncio.sleep(0)
        return quotas.quotas.connections

    rates = asyncio.run(scenario())
    assert rates.is_set == bool(then)
    assert rates.record("10.0.0.1", 0) == 0, "the former rate lets nobody in"


def test_a_look_that_does_not_count_any_more_fails_in_silence(clock, monkeypatch):
    """Else asyncio reports an exception that nobody has looked at."""
    begun, go_on, reported = threading.Event(), threading.Event(), []

    def by_address(_hosts, _setting):
        begun.set()
        assert go_on.wait(60)
        raise ConfigError("no such host")

    monkeypatch.setattr(client_quotas, "by_address", by_address)

    async def scenario():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))
        quotas = quotas_of(clock, {"ips/far": {"connection_creation_rate": "0"}})
        assert await asyncio.to_thread(begun.wait, 60)
        quotas.take_over("ips/far", {})
        go_on.set()
        await asyncio.get_running_loop().shutdown_default_executor()
        await asyncio.sleep(0)
        gc.collect()

    asyncio.run(scenario())
    assert reported == []


def test_what_a_request_does_after_it_has_waited_is_its_callers_time():
    clock, caller = ManualClock(), Caller("h")

    async def work(failing):
        clock.advance(1)  # in the turn
        await asyncio.sleep(0)
        clock.advance(2)
        with pytest.raises(ZeroDivisionError):
            await failing
        clock.advance(3)
        return "done"

    async def scenario():
        failing = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(failing.set_exception, ZeroDivisionError())
        return await metered(work(failing), caller, clock.monotonic)

    assert asyncio.run(scenario()) == "done"
    assert caller.busy_s == 5.0


def test_the_time_of_a_connection_that_ends_counts_for_the_next_one(clock):
    """Else a client that connects anew for each request would use what it likes."""
    quotas = quotas_of(clock, {"clients/c": {"request_percentage": "10"}})
    ended, other, next_ = caller_of(), caller_of(), caller_of()
    for each in (ended, other, next_):
        quotas.begin(each)
        each.client_id = "c"
    assert charge(quotas, ended, ApiKey.METADATA) == 0
    ended.busy_s = 2.0
    quotas.settle(ended)
    quotas.settle(ended)
    assert charge(quotas, next_, ApiKey.METADATA) == 1000
    other.client_id, other.busy_s = "another", 9.0
    quotas.settle(other)
    assert charge(quotas, next_, ApiKey.METADATA) == 1000


def test_the_first_answer_of_a_connection_counts_all_that_was_spent_on_it(clock):
    quotas, caller = quotas_of(clock, {"clients/c": {"request_percentage": "10"}}), caller_of()
    quotas.begin(caller)
    caller.busy_s = 2.0
    assert charge(quotas, caller, ApiKey.METADATA) == 1000


def test_what_was_spent_on_a_broker_or_a_stranger_does_not_count_when_it_hangs_up(clock):
    quotas, broker, follower, stranger = (
        quotas_of(clock, {"clients/<default>": {"request_percentage": "10"}}),
        *(caller_of() for _ in range(3)),
    )
    for each in (broker, follower, stranger):
        quotas.begin(each)
    broker.client_id = follower.client_id = "c"
    charge(quotas, broker, ApiKey.LEADER_AND_ISR)
    assert quotas.follow(follower)
    for each in (broker, follower, stranger):
        each.busy_s = 5.0
        quotas.settle(each)
    assert charge(quotas, caller_of(), ApiKey.METADATA) == 0
