"""Every API asks for its right before it does anything, and tells a stranger nothing."""

import asyncio
import inspect
import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from broker.requests_of_strangers import BETWEEN_BROKERS, CASES, KNOWN_ID, body_of
from broker.security.token_store import NOW_MS, OF_ALICE
from broker.test_metadata_cache import tell, update

from sparklog.broker.client_quotas import ClientQuotas
from sparklog.broker.context import ApiRequest
from sparklog.broker.fetch_sessions import FetchSessions
from sparklog.broker.handling.authorization import (
    Rights,
    authorized_on_cluster,
    authorized_operations,
    check,
    creation_rights,
    is_open,
    refusal,
)
from sparklog.broker.handling.permissions import ON_CLUSTER, ON_TOPIC
from sparklog.broker.metadata_cache import MetadataCache
from sparklog.broker.protocol_page import promise_of
from sparklog.broker.registry import HANDLERS
from sparklog.config.broker import BrokerConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.group.removal import OffsetDeletion
from sparklog.net.answer import Ordered
from sparklog.net.turns import Turns
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import Encoded, decode_response
from sparklog.replica.traffic import Traffic
from sparklog.security.access import AllowEverything, Operation, Resource, ResourceType
from sparklog.security.caller import Caller
from sparklog.security.delegation.token import TokenRules
from sparklog.structs import TopicPartition
from sparklog.testing.authorizer import ListedRights
from sparklog.testing.clock import ManualClock
from sparklog.testing.steps import finish
from sparklog.txn.state import Transaction

PAGE = Path(__file__).parents[3] / "docs" / "security.md"
T = Resource(ResourceType.TOPIC, "t")
TP = TopicPartition("t", 0)
TRANSACTION = Transaction("x", 5, 0, 1000, partitions=frozenset({TP}))


class Broker:
    """Of which a handler may touch the authorizer, the quotas, the turns and what it is given; nothing else before it
    asks. Made in a running loop.
    """

    def __init__(self, authorizer, **parts):
        self.authorizer = authorizer
        self.quotas = ClientQuotas(BrokerConfig(), ManualClock())
        self.turns = Turns(asyncio.get_running_loop())
        vars(self).update(parts)

    def __getattr__(self, name):
        raise AssertionError(f"{name} was touched for a stranger")


def parts_of_broker():
    metadata = MetadataCache()
    tell(metadata, update(topics=[("t", KNOWN_ID, {0: 1, 1: 2})]))
    clock = ManualClock()
    return {
        "metadata": metadata,
        "cluster_id": "id",
        "clock": clock,
        "turns": Turns(asyncio.get_running_loop(), clock),
        "config": BrokerConfig(),
        "fetch_sessions": FetchSessions(10, 1000, random.Random(1).randrange),
        "replicas": SimpleNamespace(flushing=False, served=[SimpleNamespace(tp=TP)], traffic=Traffic()),
        "preparation": SimpleNamespace(is_needed=lambda records, after: False),
        "txn_entry": SimpleNamespace(must_ask=lambda transactional_id, version: False),
        "groups": Groups(),
        "transactions": SimpleNamespace(
            describe=lambda transactional_id: (ErrorCode.NONE, TRANSACTION),
            list_transactions=lambda: (ErrorCode.NONE, [TRANSACTION]),
        ),
        "controller": SimpleNamespace(is_active=True, context=None),
        "settings": None,
        "acls": None,
        "leases": SimpleNamespace(end=lambda ended, holder: None),
        "cleaning_grants": SimpleNamespace(topic_of=lambda token: "t", renew=lambda tokens, duration_s: []),
        "cleaner": Cleaner(),
        "tokens": Tokens(),
        "loop": asyncio.get_running_loop(),
    }


class Tokens:
    """One, of which somebody else shows the HMAC."""

    all = (OF_ALICE,)
    rules = TokenRules(7000, 1000)

    async def change(self, shown, by, rule, period_ms):
        return OF_ALICE, rule(OF_ALICE, by, period_ms, NOW_MS)


class Groups:
    """One group, and an offset of two topics in it."""

    deletion_epoch = 0

    def fetch_offsets(self, group_id, partitions, member_id=None, epoch=-1):
        named = [TP, TopicPartition("u", 0)] if partitions is None else partitions
        return ErrorCode.NONE, dict.fromkeys(named)

    def list_groups(self):
        yield
        return ErrorCode.NONE, [SimpleNamespace(group_id="g")]

    async def delete_offsets(self, group_id, partitions):
        assert not partitions
        return OffsetDeletion(ErrorCode.NONE, {})


class Cleaner:
    """Of one log that it cannot clean."""

    threads = 1
    uncleanable = (TP,)

    def candidates(self):
        return []

    def last_of_threads(self):
        return []


async def answered(handler, broker, version, message, protocol):
    caller = Caller("h", protocol=protocol)
    given: Any = handler.handle(broker, ApiRequest(handler.api, version, "c", caller, message))
    given = finish(given) if inspect.isgenerator(given) else given
    given = given.answer if isinstance(given, Ordered) else given
    given = await given if inspect.isawaitable(given) else given
    if isinstance(given, Encoded):
        return decode_response(handler.api, version, memoryview(given.body))
    chunks: Any = handler.encode(given, version)
    chunks = finish(chunks) if inspect.isgenerator(chunks) else chunks
    return decode_response(handler.api, version, memoryview(b"".join(bytes(each) for each in chunks)))


def codes_in(told):
    if isinstance(told, dict):
        own = {ErrorCode(value) for name, value in told.items() if name.endswith("error_code")}
        return own.union(*(codes_in(each) for each in told.values()))
    return set().union(*(codes_in(each) for each in told)) if isinstance(told, list) else set()


def ask(case):
    """The questions, and the answer as a client reads it."""

    async def scenario():
        handler, authorizer = HANDLERS[case.api], ListedRights(*case.allowed)
        known = parts_of_broker()
        broker = Broker(authorizer, **{name: known[name] for name in case.parts})
        message = handler.decode(body_of(case.api, case.version, case.fields), case.version)
        answer = await answered(handler, broker, case.version, message, case.protocol)
        return authorizer.questions, answer.to_dict()

    return asyncio.run(scenario())


_COMPILED = (ApiKey.PRODUCE, ApiKey.FETCH)
TRIED = [pytest.param(case, marks=pytest.mark.source) if case.api in _COMPILED else case for case in CASES]


@pytest.mark.parametrize("case", TRIED, ids=lambda case: case.name)
def test_a_stranger_is_refused_before_anything_is_touched(case):
    questions, answer = ask(case)
    assert questions == case.asks
    assert codes_in(answer) - {ErrorCode.NONE} == case.codes


@pytest.mark.parametrize("api", [ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.DESCRIBE_CLIENT_QUOTAS], ids=lambda api: api.name)
def test_who_may_not_with_quotas_is_told_which_right_is_needed(api):
    (case,) = [each for each in CASES if each.api is api]
    _, answer = ask(case)
    told = answer if "error_message" in answer else answer["entries"][0]
    assert told["error_message"] == f"User:ANONYMOUS needs {case.asks[0].split()[0]} on cluster 'kafka-cluster'"


@pytest.mark.parametrize("case", BETWEEN_BROKERS, ids=lambda case: case.name)
def test_brokers_alone_ask_brokers(case):
    _, answer = ask(case)
    assert codes_in(answer) - {ErrorCode.NONE} == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


def rows():
    """The table of the page: what is said of each request."""
    section = PAGE.read_text().split("## What each request needs")[1].split("\n## ")[0]
    lines = re.findall(r"^\| (\w+) \| (.*) \|$", section, re.MULTILINE)
    return {name: text for name, text in lines if name != "request"}


def name_of(api):
    return promise_of(HANDLERS[api]).partition(":")[0]


def test_every_api_has_a_row_and_a_request():
    names = {name_of(api) for api in HANDLERS}
    assert rows().keys() == names
    without = names - {name_of(case.api) for case in CASES}
    assert without == {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}, "they come before there is a caller"


@pytest.mark.parametrize("operation", Operation, ids=lambda operation: operation.name)
def test_every_operation_is_asked_for_by_some_request(operation):
    assert [case.name for case in CASES for asked in case.asks if asked.strip("()").startswith(f"{operation.name} ")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_page_says_what_is_asked(case):
    row = rows()[name_of(case.api)]
    for question in case.asks:
        operation, kind, *_ = question.strip("()").replace("transactional id", "transactional_id").split(" ")
        assert re.search(rf"`{operation}` {kind.replace('_', ' ')}", row), f"{question} is not in: {row}"
    for code in case.codes:
        is_told = code.name.startswith(("UNKNOWN", "INVALID")) or code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert is_told or code.name.removesuffix("AUTHORIZATION_FAILED") in row


def request():
    return ApiRequest(0, 0, "c", Caller("h"), None)


def broker_with(*allowed):
    return SimpleNamespace(authorizer=ListedRights(*allowed))


def test_who_may_everything_is_asked_nothing():
    assert is_open(SimpleNamespace(authorizer=AllowEverything()))
    assert not is_open(broker_with())


def test_a_refusal_names_the_kind_and_says_what_is_needed():
    broker = broker_with("READ topic t")
    assert refusal(broker, request(), Operation.READ, T) is ErrorCode.NONE
    check(broker, request(), Operation.READ, T)
    assert refusal(broker, request(), Operation.ALTER) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    group = Resource(ResourceType.GROUP, "g")
    with pytest.raises(ApiError, match="User:ANONYMOUS needs READ on group 'g'") as refused:
        check(broker, request(), Operation.READ, group)
    assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_a_thing_is_asked_for_once():
    broker = broker_with("READ topic t")
    rights = Rights(broker, request(), Operation.READ)
    assert [rights.allows(name) for name in ("t", "u", "t", "u")] == [True, False, True, False]
    with pytest.raises(ApiError, match="needs READ on topic 'u'"):
        rights.check("u")
    assert broker.authorizer.questions == ["READ topic t", "READ topic u"]


def test_what_is_left_out_is_asked_for_quietly():
    broker = broker_with()
    assert not Rights(broker, request(), Operation.DESCRIBE, ResourceType.GROUP, quietly=True).allows("g")
    assert broker.authorizer.questions == ["(DESCRIBE group g)"]


def test_a_right_to_create_on_the_cluster_is_one_for_all_topics():
    broker = broker_with("CREATE cluster kafka-cluster")
    assert creation_rights(broker, request())("t")
    assert broker.authorizer.questions == ["(CREATE cluster kafka-cluster)"]
    some = broker_with("CREATE topic t")
    may_create = creation_rights(some, request())
    assert (may_create("t"), may_create("u")) == (True, False)


def test_the_operations_that_are_told_are_those_that_the_caller_has():
    everything, some = SimpleNamespace(authorizer=AllowEverything()), broker_with("READ topic t", "DESCRIBE topic t")
    assert authorized_operations(everything, request(), T) == ON_TOPIC
    assert authorized_operations(some, request(), T) == {Operation.READ, Operation.DESCRIBE}
    assert authorized_operations(some, request(), T, asked=False) is None
    assert all(each.startswith("(") for each in some.authorizer.questions)


def test_the_operations_on_the_cluster_are_told_to_those_that_may_describe_it():
    everything, stranger = SimpleNamespace(authorizer=AllowEverything()), broker_with("ALTER cluster kafka-cluster")
    assert authorized_on_cluster(everything, request(), asked=True) == ON_CLUSTER
    assert authorized_on_cluster(stranger, request(), asked=True) == frozenset()
    assert authorized_on_cluster(stranger, request(), asked=False) is None
    some = broker_with("ALTER cluster kafka-cluster", "DESCRIBE cluster kafka-cluster")
    assert authorized_on_cluster(some, request(), asked=True) == {Operation.ALTER, Operation.DESCRIBE}
