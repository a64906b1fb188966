"""Visitors of a cluster that asks for passwords: each sees what its user may see, for as long as its session lasts."""

import logging

import pytest
from web.serving import Served

from sparklog.client import Admin, NewTopic
from sparklog.testing.clock import ManualClock
from sparklog.web.visitors import IDLE_S, LONGEST_S

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def clock():
    return ManualClock()


@pytest.fixture(scope="module")
def behind_logins(secured, clock):
    with Admin(secured.client("admin")) as admin:
        admin.create_topics([NewTopic("for-admins", 1, 1)])
    settings = secured.client("operator", "a password that is not used")
    with Served(settings, clock=clock) as found:
        yield found


@pytest.fixture
def visitor(behind_logins, clock):
    clock.advance(1000)  # wrong passwords of other tests are forgotten
    return behind_logins.browser()


def names(browser):
    return [each["name"] for each in browser.rows("/api/topics")["rows"]]


def test_nobody_sees_anything_without_a_login(visitor):
    assert visitor.rows("/api/session")["login_needed"]
    answer = visitor.get("/api/cluster")
    assert (answer.status, answer.json["error"]["message"]) == (401, "log in first")
    assert visitor.get("/").status == 200


def test_each_sees_what_its_user_may_see(secured, behind_logins, visitor):
    assert visitor.log_in("admin", secured.users["admin"]).status == 200
    assert "for-admins" in names(visitor)
    stranger = behind_logins.browser()
    assert stranger.log_in("stranger", secured.users["stranger"]).status == 200
    assert "for-admins" not in names(stranger)
    refused = stranger.get("/api/topic?name=for-admins")
    assert (refused.status, refused.json["error"]["code"]) == (403, "TOPIC_AUTHORIZATION_FAILED")


def test_the_cookie_is_no_scripts_and_no_other_sites(secured, visitor):
    cookie = visitor.log_in("admin", secured.users["admin"]).headers["Set-Cookie"]
    name, _, rest = cookie.partition("=")
    assert name == f"sparklog-{visitor.host.split(':')[1]}"
    assert {each.strip().lower() for each in rest.split(";")[1:]} == {"httponly", "path=/", "samesite=strict"}


def test_behind_tls_the_cookie_is_for_tls_and_this_host_alone(secured):
    with Served(secured.client("admin"), origin="https://log.example") as served:
        told = {"user": "admin", "password": secured.users["admin"]}
        cookie = served.browser().post("/api/login", told, Host="log.example").headers["Set-Cookie"]
    assert cookie.startswith("__Host-sparklog-")
    assert "; secure" in cookie.lower()


def test_a_login_gives_a_new_session_and_ends_the_old_one(secured, behind_logins, visitor):
    visitor.log_in("admin", secured.users["admin"])
    first = visitor.cookie
    visitor.log_in("admin", secured.users["admin"])
    assert visitor.cookie != first
    old = behind_logins.browser()
    old.cookie = first
    assert old.get("/api/cluster").status == 401


def test_leaving_needs_the_token_and_ends_the_session(secured, visitor):
    visitor.log_in("admin", secured.users["admin"])
    token, visitor.token = visitor.token, "another"
    assert visitor.post("/api/logout").status == 403
    assert visitor.get("/api/cluster").status == 200
    visitor.token = token
    assert visitor.post("/api/logout").status == 200
    assert visitor.get("/api/cluster").status == 401


@pytest.mark.parametrize(("step", "steps"), [(IDLE_S + 1, 1), (IDLE_S - 1, int(LONGEST_S // (IDLE_S - 1)) + 1)])
def test_a_session_ends_when_it_is_idle_and_after_half_a_day(secured, visitor, clock, step, steps):
    visitor.log_in("admin", secured.users["admin"])
    for _ in range(steps - 1):
        clock.advance(step)
        assert visitor.get("/api/session").json["user"] == "admin"
    clock.advance(step)
    assert visitor.get("/api/cluster").status == 401


def test_wrong_passwords_are_throttled_and_say_nothing(secured, visitor, clock, caplog):
    caplog.set_level(logging.DEBUG)
    answers = [visitor.log_in(user, "wrong-guess") for user in ("admin", "nobody-has-this-name")]
    assert [each.status for each in answers] == [401, 401]
    assert answers[0].body == answers[1].body
    for _ in range(2):
        visitor.log_in("admin", "wrong-guess")
    right = secured.users["admin"]
    early = visitor.log_in("admin", right)
    assert (early.status, early.headers["Retry-After"]) == (429, "1")
    clock.advance(1)
    assert visitor.log_in("admin", right).status == 200
    told = caplog.text + "".join(each.body + str(each.headers) for each in (*answers, early))
    assert "wrong-guess" not in told
    assert right not in told


def test_what_is_no_user_or_password_is_refused(visitor):
    for told in ({}, {"user": "admin"}, {"user": "admin", "password": 5}, {"user": "", "password": ""}):
        assert visitor.post("/api/login", told).status == 400


def test_a_password_with_quotes_stays_one(visitor):
    assert visitor.log_in("admin", 'x" tokenauth="true').status == 401
