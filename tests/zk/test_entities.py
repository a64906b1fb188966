"""Names of users, client ids and addresses as Kafka writes them into paths (``SanitizerTest.java``)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import ConfigError
from sparklog.zk import entities
from sparklog.zk.entities import Part


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("alice", "alice"),
        ("CN=Some !@#$%&*()_-+=';:,/~", "CN%3DSome%20%21%40%23%24%25%26%2A%28%29_-%2B%3D%27%3B%3A%2C%2F%7E"),
        ("<default>", "%3Cdefault%3E"),
        ("münchen.de", "m%C3%BCnchen.de"),
    ],
)  # fmt: skip
def test_names_are_encoded_as_by_kafkas_sanitizer(name, path):
    assert entities.sanitize(name) == path
    assert entities.desanitize(path) == name


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_every_name_comes_back(name):
    if name in (".", ".."):
        return
    path = entities.sanitize(name)
    assert entities.desanitize(path) == name
    assert "/" not in path
    assert path != entities.DEFAULT_ENTITY


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_what_no_znode_can_be_named_is_refused(name):
    for named in (entities.user_entity, entities.client_entity, entities.ip_entity):
        with pytest.raises(ConfigError):
            named(name)


@pytest.mark.parametrize(
    ("entity", "named"),
    [
        (entities.user_entity("a b"), (Part("users", "a b"),)),
        (entities.user_entity(None), (Part("users", None),)),
        (entities.client_entity("c/d"), (Part("clients", "c/d"),)),
        (entities.user_client_entity("u", None), (Part("users", "u"), Part("clients", None))),
        (entities.user_client_entity(None, "<default>"), (Part("users", None), Part("clients", "<default>"))),
        (entities.ip_entity("::1"), (Part("ips", "::1"),)),
        (entities.ip_entity(None), (Part("ips", None),)),
    ],
)
def test_an_entity_tells_its_parts(entity, named):
    assert entities.parts(entity) == named


@pytest.mark.parametrize(
    "entity", ["", "users", "users/", "topics/t", "users/a/b", "users/a/users/b", "ips/1/clients/b", "users/a/clients/"]
)
def test_what_is_no_entity_is_refused(entity):
    with pytest.raises(ConfigError):
        entities.parts(entity)
