import pytest

from sparklog.errors import ApiError, ErrorCode
from sparklog.quota.entity import DEFAULT, Entity, IpEntity
from sparklog.quota.requests import Component, Filter, Match, changes_of, entity_of, parts_of

ENTITIES = [
    Entity("u"),
    Entity(DEFAULT),
    Entity("u", "c"),
    Entity("u", DEFAULT),
    Entity(DEFAULT, "c"),
    Entity(client_id="c"),
    Entity(client_id=DEFAULT),
    IpEntity("10.0.0.1"),
    IpEntity(DEFAULT),
]


def exact(kind, name):
    return Component(kind, Match.EXACT, name)


def default(kind):
    return Component(kind, Match.DEFAULT, None)


def any_of(kind):
    return Component(kind, Match.ANY, None)


def found(*components, is_strict=False):
    filter_ = Filter(components, is_strict=is_strict)
    return [entity for entity in ENTITIES if filter_.fits(entity)]


def test_without_components_all_are_found_unless_it_is_strict():
    assert found() == ENTITIES
    assert found(is_strict=True) == []


def test_a_component_finds_all_that_have_it_and_strictly_those_that_have_no_other():
    assert found(exact("user", "u")) == [Entity("u"), Entity("u", "c"), Entity("u", DEFAULT)]
    assert found(exact("user", "u"), is_strict=True) == [Entity("u")]
    assert found(default("client-id")) == [Entity("u", DEFAULT), Entity(client_id=DEFAULT)]
    assert found(default("client-id"), is_strict=True) == [Entity(client_id=DEFAULT)]
    assert found(any_of("user"), is_strict=True) == [Entity("u"), Entity(DEFAULT)]
    assert found(any_of("ip")) == [IpEntity("10.0.0.1"), IpEntity(DEFAULT)]
    assert found(default("ip"), is_strict=True) == [IpEntity(DEFAULT)]


def test_all_components_must_fit():
    assert found(any_of("user"), exact("client-id", "c")) == [Entity("u", "c"), Entity(DEFAULT, "c")]
    assert found(default("user"), any_of("client-id"), is_strict=True) == [Entity(DEFAULT, "c")]
    assert found(exact("user", "nobody")) == []


def test_it_is_known_where_to_look():
    def asked(*components):
        filter_ = Filter(components, is_strict=False)
        return [kind for kind in ("user", "client-id", "ip") if filter_.asks_for(kind)]

    assert asked() == ["user", "client-id", "ip"]
    assert asked(any_of("ip")) == ["ip"]
    assert asked(any_of("user")) == asked(exact("client-id", "c")) == ["user", "client-id"]


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([any_of("user"), exact("user", "u")], ErrorCode.INVALID_REQUEST),
        ([any_of("user"), any_of("ip")], ErrorCode.INVALID_REQUEST),
        ([any_of("ip"), any_of("client-id")], ErrorCode.INVALID_REQUEST),
        ([any_of("")], ErrorCode.INVALID_REQUEST),
        ([any_of("team")], ErrorCode.UNSUPPORTED_VERSION),
        ([Component("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([Component("user", Match.EXACT, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(components, code):
    with pytest.raises(ApiError) as refusal:
        Filter(components, is_strict=False)
    assert refusal.value.code is code


@pytest.mark.parametrize("entity", ENTITIES)
def test_an_entity_is_named_by_its_parts(entity):
    assert entity_of([(kind, None if name is DEFAULT else name) for kind, name in parts_of(entity)]) == entity


@pytest.mark.parametrize(
    "parts",
    [[], [("user", "")], [("team", "a")], [("user", "u"), ("ip", "10.0.0.1")], [("client-id", ""), ("user", "u")]],
)
def test_what_has_no_quotas_is_refused(parts):
    with pytest.raises(ApiError) as refusal:
        entity_of(parts)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


def test_changes_set_and_take_away():
    asked = [("producer_byte_rate", 5.0), ("consumer_byte_rate", None), ("producer_byte_rate", 6.0)]
    assert changes_of(Entity("u"), asked) == {"producer_byte_rate": "6", "consumer_byte_rate": None}


def test_what_is_unknown_can_be_taken_away_but_not_what_is_no_quota():
    assert changes_of(Entity("u"), [("team_rate", None), ("SCRAM-SHA-256", None)]) == {}


@pytest.mark.parametrize(
    ("entity", "name", "value"),
    [
        (Entity("u"), "team_rate", 1.0),
        (Entity("u"), "SCRAM-SHA-256", 1.0),
        (Entity("u"), "connection_creation_rate", 1.0),
        (IpEntity(DEFAULT), "producer_byte_rate", 1.0),
        (Entity("u"), "producer_byte_rate", -1.0),
        (Entity("u"), "producer_byte_rate", 10.5),
    ],
)
def test_a_change_that_cannot_be_made_is_refused(entity, name, value):
    with pytest.raises(ApiError, match=name) as refusal:
        changes_of(entity, [(name, value)])
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
