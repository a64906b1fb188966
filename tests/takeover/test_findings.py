from dataclasses import replace

import pytest

from sparklog.config.protocol_version import parse_protocol_version
from sparklog.takeover.findings import findings
from sparklog.takeover.planned import Planned
from sparklog.takeover.survey import Listener, Survey, SurveyedBroker, SurveyedTopic

SETTINGS = {
    "inter.broker.protocol.version": "3.9-IV0",
    "authorizer.class.name": "",
    "remote.log.storage.system.enable": "false",
    "zookeeper.metadata.migration.enable": "false",
}
BROKER = SurveyedBroker(1, (Listener("PLAINTEXT", "PLAINTEXT"),), SETTINGS)
TOPIC = SurveyedTopic("clicks")
SOUND = Survey((BROKER, replace(BROKER, id=2)), (TOPIC,))


def broker(**changes):
    return replace(SOUND, brokers=(replace(BROKER, **changes), replace(BROKER, id=2)))


def setting(name, value):
    return broker(settings=SETTINGS | {name: value})


def topic(**changes):
    return replace(SOUND, topics=(TOPIC, replace(TOPIC, name="odd", **changes)))


def test_a_cluster_that_can_be_taken_over_has_no_findings():
    assert findings(SOUND) == []


@pytest.mark.parametrize(
    "survey",
    [
        Survey(),
        replace(SOUND, has_controller=False),
        replace(SOUND, is_migrating=True),
        replace(SOUND, features=("metadata.version",)),
        replace(SOUND, is_reassigning=True),
        broker(silence="it does not answer"),
        broker(is_recent=False),
        broker(listeners=(Listener("SSL", "SSL"),)),
        broker(listeners=(Listener("INTERNAL", "PLAINTEXT"),)),
        setting("inter.broker.listener.name", "INTERNAL"),
        setting("control.plane.listener.name", "CONTROLLER"),
        setting("inter.broker.protocol.version", "2.7-IV2"),
        setting("inter.broker.protocol.version", "3.8"),
        setting("authorizer.class.name", "org.apache.ranger.Authorizer"),
        setting("remote.log.storage.system.enable", "true"),
        setting("log.message.format.version", "0.10.2-IV0"),
        setting("log.message.format.version", "0.9.0"),
        setting("zookeeper.metadata.migration.enable", "true"),
        topic(has_id=False),
        topic(is_moving=True),
        topic(lagging=(0,)),
        topic(leaderless=(0,)),
        topic(settings={"remote.storage.enable": "true"}),
        topic(settings={"message.format.version": "0.10.2"}),
    ],
)
def test_what_stops_a_takeover_is_found_and_has_a_remedy(survey):
    found = findings(survey)
    assert [each.stops for each in found] == [True] * len(found) != []
    assert all(each.remedy for each in found)


@pytest.mark.parametrize(
    "survey",
    [
        replace(SOUND, quotas=2),
        replace(SOUND, acls=1),
        replace(SOUND, tokens=1),
        broker(listeners=(Listener("PLAINTEXT", "PLAINTEXT"), Listener("SSL", "SSL"))),
        topic(single=(0, 1)),
        broker(by_default=frozenset({"inter.broker.protocol.version"})),
    ],
)
def test_what_is_to_be_known_stops_nothing(survey):
    assert [each.stops for each in findings(survey)] == [False]


@pytest.mark.parametrize("version", ["0.11.0-IV2", "1.0", "3.0-IV1", ""])
def test_a_message_format_that_is_stored_here_too_is_no_finding(version):
    assert findings(setting("log.message.format.version", version)) == []
    assert findings(topic(settings={"message.format.version": version})) == []


def test_a_listener_of_the_controllers_is_named():
    (found,) = findings(setting("control.plane.listener.name", "CONTROLLER"))
    assert "control.plane.listener.name=CONTROLLER" in found.what


def planned(broker_id=1, version="3.9"):
    return Planned("server.properties", broker_id, parse_protocol_version(version))


def test_a_new_broker_that_says_what_kafkas_say_has_no_findings():
    assert findings(SOUND, [planned()]) == []
    assert findings(SOUND, [planned(), planned(2)._replace(source="other.properties")]) == []


def test_two_brokers_cannot_take_one_place():
    faulty = Planned("third.properties", fault="no")
    (_, found) = findings(SOUND, [planned(), faulty, planned()._replace(source="other.properties")])
    assert (found.stops, found.subject, found.what) == (
        True, "other.properties", "its broker.id is 1, as in server.properties",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("plan", "named"),
    [
        (planned(version="4.0"), "set inter.broker.protocol.version=3.9-IV0"),
        (planned(version="3.8"), "set inter.broker.protocol.version=3.9-IV0"),
        (planned(broker_id=7), "the id of the broker"),
        (Planned("server.properties", fault="there is no TLS"), "does not start with it"),
    ],
)
def test_what_a_new_broker_lacks_stops_a_takeover(plan, named):
    (found,) = findings(SOUND, [plan])
    assert found.stops
    assert named in found.remedy


def test_a_cluster_of_ours_alone_need_not_say_its_version():
    ours = replace(
        BROKER,
        settings=SETTINGS | {"inter.broker.protocol.version": "4.0-IV1"},
        by_default=frozenset({"inter.broker.protocol.version"}),
    )
    assert findings(replace(SOUND, brokers=(ours,))) == []


def test_what_stops_comes_first():
    both = replace(topic(single=(0,)), is_reassigning=True)
    assert [each.stops for each in findings(both)] == [True, False]
