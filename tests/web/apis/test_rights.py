from math import inf

import pytest
from web.serving import Served

from sparklog.client import Admin
from sparklog.client.admin.admin import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from sparklog.client.admin.quotas import ClientQuota, QuotaAdmin
from sparklog.quota.entity import DEFAULT, Entity

pytestmark = pytest.mark.integration


def test_quotas_say_whose_they_are(browser, admin, topic):
    mine, others = Entity(topic, DEFAULT), Entity(None, topic)
    admin.alter_client_quotas({mine: {"producer_byte_rate": 1024.0}, others: {"request_percentage": 12.5}})
    told = browser.rows(f"/api/quotas?search={topic}&sort=value")["rows"]
    assert [(each["whose"], each["name"], each["value"]) for each in told] == [
        (f"client-id {topic}", "request_percentage", 12.5),
        (f"user {topic}, every other client-id", "producer_byte_rate", 1024),
    ]
    admin.alter_client_quotas({mine: {"producer_byte_rate": None}, others: {"request_percentage": None}})


def test_a_quota_without_an_end_is_null_and_the_greatest(bootstrap, monkeypatch):
    """JSON has no infinity: a page would not be read at all."""
    quotas = [
        ClientQuota(Entity(name, None), {"producer_byte_rate": value}) for name, value in (("a", inf), ("b", 5.0))
    ]

    async def described(*_, **__):
        return quotas

    monkeypatch.setattr(QuotaAdmin, "describe_client_quotas", described)
    with Served({"bootstrap.servers": bootstrap}) as served:
        told = served.browser().rows("/api/quotas?sort=value")["rows"]
    assert [(each["whose"], each["value"]) for each in told] == [("user b", 5), ("user a", None)]


def test_a_cluster_without_lists_says_so(browser):
    answer = browser.get("/api/acls")
    assert (answer.status, answer.json["error"]["code"]) == (501, "SECURITY_DISABLED")


def test_lists_are_shown_to_those_who_may_see_them(secured):
    entry = AclBinding(
        ResourcePattern(ResourceType.TOPIC, "shown-", PatternType.PREFIXED),
        AclEntry("User:operator", "*", Operation.READ, Permission.DENY),
    )
    with Admin(secured.client("admin")) as admin:
        admin.create_acls([entry])
    with Served(secured.client("admin")) as served:
        browser = served.browser()
        browser.log_in("admin", secured.users["admin"])
        (told,) = browser.rows("/api/acls?search=shown-")["rows"]
        assert told == {
            "resource": "topic",
            "name": "shown-",
            "pattern": "prefixed",
            "principal": "User:operator",
            "host": "*",
            "operation": "read",
            "permission": "deny",
        }
        stranger = served.browser()
        stranger.log_in("stranger", secured.users["stranger"])
        assert stranger.get("/api/acls").status == 403
