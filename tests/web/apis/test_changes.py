"""Changes are made for those who may, where the server allows them, and by its own page alone."""

import pytest
from web.serving import Served

from sparklog.structs import TopicPartition

pytestmark = pytest.mark.integration
PATHS = ("topic/create", "topic/delete", "topic/alter", "group/reset")


@pytest.fixture(scope="module")
def changeable(cluster):
    with Served({"bootstrap.servers": cluster.bootstrap_servers}, allow_changes=True) as served:
        yield served


@pytest.fixture
def editor(changeable):
    browser = changeable.browser()
    browser.token = browser.rows("/api/session")["token"]
    return browser


def change(browser, path, **told):
    answer = browser.post(f"/api/{path}", told)
    assert answer.status == 200, answer.body
    return answer.json


def test_there_is_nothing_to_change_with_unless_it_is_allowed(browser):
    session = browser.rows("/api/session")
    assert not session["changes_allowed"]
    browser.token = session["token"]
    assert {browser.post(f"/api/{path}", {"name": "x"}).status for path in PATHS} == {404}


def test_a_change_needs_the_token(editor):
    editor.token = "another"
    assert {editor.post(f"/api/{path}", {"name": "x"}).status for path in PATHS} == {403}


def test_a_topic_s_life(editor, admin, topic):
    change(editor, "topic/create", name=topic, partitions=2, settings={"retention.ms": "1000"})
    assert len(admin.describe_topics([topic])[topic].partitions) == 2
    change(editor, "topic/alter", name=topic, settings={"retention.ms": None, "cleanup.policy": "compact"})
    told = {each["name"]: each for each in editor.rows(f"/api/topic/settings?name={topic}")}
    assert told["retention.ms"]["is_default"]
    assert told["cleanup.policy"]["value"] == "compact"
    assert editor.post("/api/topic/delete", {"name": topic, "again": topic[:-1]}).status == 400
    change(editor, "topic/delete", name=topic, again=topic)
    assert topic not in {each.name for each in admin.list_topics()}


def test_a_group_reads_on_where_it_is_told(editor, admin, make, topic):
    name = make(2)
    admin.alter_group_offsets(topic, {TopicPartition(name, 0): 0})
    told = change(editor, "group/reset", id=topic, topic=name, **{"from": "offset"}, at=5)
    assert told["offsets"] == {f"{name}-0": 0, f"{name}-1": 0}
    assert {tp.partition: each.offset for tp, each in admin.group_offsets(topic).items()} == {0: 0, 1: 0}


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("topic/create", {}),
        ("topic/create", {"name": 5}),
        ("topic/create", {"name": "a/b"}),
        ("topic/create", {"name": "x", "partitions": 10**6}),
        ("topic/create", {"name": "x", "settings": {"retention.ms": 5}}),
        ("topic/create", {"name": "x", "settings": {"no.such.setting": "1"}}),
        ("topic/alter", {"name": "x", "settings": {}}),
        ("group/reset", {"id": "g", "topic": "t", "from": "here"}),
    ],
)
def test_what_cannot_be_is_refused(editor, path, told):
    answer = editor.post(f"/api/{path}", told)
    assert answer.status == 400
    assert answer.json["error"]["message"]
