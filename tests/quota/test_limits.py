from itertools import product

import pytest

from sparklog.quota.entity import DEFAULT, Entity
from sparklog.quota.limits import Limits, Tags

IN_ORDER = [
    Entity("u", "c"),
    Entity("u", DEFAULT),
    Entity("u"),
    Entity(DEFAULT, "c"),
    Entity(DEFAULT, DEFAULT),
    Entity(DEFAULT),
    Entity(client_id="c"),
    Entity(client_id=DEFAULT),
]
OTHERS = [Entity("v"), Entity("v", "d"), Entity(client_id="d")]
TAGS = {entity: Tags("u", "c") for entity in IN_ORDER} | {
    Entity("u"): Tags("u", ""),
    Entity(DEFAULT): Tags("u", ""),
    Entity(client_id="c"): Tags("", "c"),
    Entity(client_id=DEFAULT): Tags("", "c"),
}


def limits_of(entities):
    limits = Limits()
    for place, entity in enumerate(entities):
        limits.set(entity, place + 1.0)
    return limits


@pytest.mark.parametrize("number", range(256))
def test_the_first_level_that_is_set_holds(number):
    set_ = [entity for place, entity in enumerate(IN_ORDER) if number >> place & 1]
    limits = limits_of(set_ + OTHERS)
    tags = limits.tags("u", "c")
    assert limits.bound(tags) == (1.0 if set_ else None)
    assert tags == (TAGS[set_[0]] if set_ else Tags("", "c"))


def test_whose_bounds_are_of_one_kind_alone_share_a_sensor_by_that_kind():
    assert Limits().tags("u", "c") == Tags("", "c")
    assert limits_of([Entity(client_id="d")]).tags("u", "c") == Tags("", "c")
    assert limits_of([Entity("v")]).tags("u", "c") == Tags("u", "")
    assert limits_of([Entity("v", "d")]).tags("u", "c") == Tags("u", "c")
    assert limits_of([Entity("v"), Entity(client_id="d")]).tags("u", "c") == Tags("", "c")


def test_a_users_clients_share_his_bound_and_users_do_not_share_the_default():
    limits = limits_of([Entity(DEFAULT), Entity(client_id="x")])
    assert limits.tags("u", "c") == limits.tags("u", "d") == Tags("u", "")
    assert limits.tags("v", "c") == Tags("v", "")


def test_a_client_without_an_id_has_the_bound_of_its_user():
    limits = limits_of([Entity("u", DEFAULT), Entity("u")])
    assert limits.tags("u", "") == Tags("u", "")
    assert limits.bound(Tags("u", "")) == 2.0
    assert limits.bound(Tags("", "")) is None


def test_the_default_is_not_who_is_called_so():
    limits = limits_of([Entity(client_id=DEFAULT), Entity("<default>")])
    assert limits.bound(limits.tags("<default>", "c")) == 2.0
    assert limits.bound(limits.tags("u", "<default>")) == 1.0


def test_a_bound_is_changed_and_taken_away():
    limits = Limits()
    assert not limits.is_set
    versions = [limits.version]
    for bound in (5.0, 6.0, None):
        limits.set(Entity("u"), bound)
        versions.append(limits.version)
        assert limits.bound(Tags("u", "")) == bound
    assert not limits.is_set
    assert len(set(versions)) == 4
    limits.set(Entity("u"), None)
    assert limits.version == versions[-1]


def test_tags_are_as_if_what_was_taken_away_had_never_been():
    for one, other in product(IN_ORDER, IN_ORDER):
        if one != other:
            limits = limits_of([one, other])
            limits.set(other, None)
            assert limits.tags("u", "c") == limits_of([one]).tags("u", "c")
