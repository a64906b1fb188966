"""``sparklog quota`` on a real cluster."""

import json

import pytest

from sparklog.client.admin.admin import Admin
from sparklog.client.admin.quotas import ClientQuota
from sparklog.quota.entity import Entity

pytestmark = pytest.mark.integration


def told(here, *whose):
    return json.loads(here("quota", "list", *whose, "--output", "json").out)


def test_quotas_are_set_listed_and_removed(here, topic):
    user = ("--user", topic)
    done = here("quota", "set", *user, "producer_byte_rate=1048576", "request_percentage=12.5")
    assert done == (0, f"set for user {topic}: producer_byte_rate=1048576, request_percentage=12.5\n", "")
    assert told(here, *user) == [
        {"entity": {"user": topic}, "quotas": {"producer_byte_rate": 1048576, "request_percentage": 12.5}}
    ]
    lines = [line.split("\t") for line in here("quota", "list", *user).out.splitlines()]
    assert lines[0] == ["user", "client id", "ip", "quota", "value"]
    assert [topic, "", "", "producer_byte_rate", "1048576"] in lines
    assert here("quota", "remove", *user, "producer_byte_rate").status == 0
    assert told(here, *user) == [{"entity": {"user": topic}, "quotas": {"request_percentage": 12.5}}]
    assert here("quota", "remove", *user, "producer_byte_rate") == (0, f"user {topic} has none of these\n", "")
    assert here("quota", "remove", *user) == (0, f"removed from user {topic}: request_percentage\n", "")
    assert here("quota", "list", *user) == (0, "", "no quotas are set\n")


def test_a_quota_without_an_end_as_kafkas_tools_store_it_is_listed(here, monkeypatch):
    endless = ClientQuota(Entity("u", None), {"producer_byte_rate": float("inf"), "consumer_byte_rate": 5.0})
    monkeypatch.setattr(Admin, "describe_client_quotas", lambda *_, **__: [endless])
    assert told(here) == [{"entity": {"user": "u"}, "quotas": {"producer_byte_rate": None, "consumer_byte_rate": 5}}]
    shown = here("quota", "list")
    assert shown.status == 0, shown.err
    assert [line.split("\t")[3:] for line in shown.out.splitlines()[1:]] == [
        ["producer_byte_rate", "inf"],
        ["consumer_byte_rate", "5"],
    ]


def test_the_defaults_have_quotas_too(here, topic):
    whose = ("--user", topic, "--client-id-default")
    assert here("quota", "set", *whose, "consumer_byte_rate=5").status == 0
    assert told(here, "--user", topic) == [
        {"entity": {"user": topic, "client-id": None}, "quotas": {"consumer_byte_rate": 5}}
    ]
    assert "(default)" in here("quota", "list", "--user", topic).out
    removed = here("quota", "remove", *whose).out
    assert removed == f"removed from user {topic}, the default client-id: consumer_byte_rate\n"


NAMES = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")


@pytest.mark.parametrize(
    ("arguments", "status", "named"),
    [
        (["set", "producer_byte_rate=5"], 2, "say whose quotas"),
        (["set", "--user", "u", "--ip", "10.0.0.1", "producer_byte_rate=5"], 2, "say whose quotas"),
        (["set", "--user", "u", "--user-default", "producer_byte_rate=5"], 2, "either --user or --user-default"),
        (["set", "--user", "u", "producer_byte_rate"], 2, "is not NAME=NUMBER"),
        (["set", "--user", "u", "producer_byte_rate=much"], 2, "'much' is no number"),
        (["set", "--user", "u", "connection_creation_rate=5"], 2, "user u has no such quota"),
        (["remove", "--ip-default", "producer_byte_rate"], 2, "the default ip has no such quota"),
        (["set", "--user", "u", "producer_byte_rate=-5"], 1, "is no quota"),
        (["set", "--user", "u"], 2, "Missing argument"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_what_cannot_be_set_is_refused_by_name(here, arguments, status, named):
    result = here("quota", *arguments)
    assert (result.status, result.out) == (status, "")
    assert named in result.err
