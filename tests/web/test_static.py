"""The page in a real browser."""

from urllib.parse import quote

import pytest
from fix_programs import lack_of
from web.chromium import Chromium
from web.serving import Served

from sparklog.client import Producer
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock

pytestmark = [pytest.mark.integration, pytest.mark.skipif(bool(lack_of("chromium")), reason=lack_of("chromium"))]

MARKUP = "<img src=x onerror=\"document.title='broken'\"><b>bold</b>"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with Chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def visit(chromium, served):
    """``visit(part)``: a tab with this part of the page, which at the end must have nothing to complain of."""
    page = chromium.page()

    def visited(part, host=served.host):
        page.go("about:blank")  # another part of the same page would show what was there for a moment
        page.go(f"http://{host}/{part}")
        page.wait("document.querySelector('h1') && document.querySelector('main :is(table, form)')")
        return page

    yield visited
    assert page.complaints == []
    page.close()


def test_the_cluster_is_shown_and_announced(visit, admin):
    page = visit("")
    assert page.run("document.title") == "Cluster · sparklog"
    assert str(admin.describe_cluster().cluster_id) in page.text()
    page.wait("document.querySelector('nav a[aria-current=page]').textContent === 'Cluster'")
    landmarks = page.run("['header', 'nav', 'main'].map((each) => document.querySelectorAll(each).length).join()")
    assert landmarks == "1,1,1"
    assert page.run("document.getElementById('status').getAttribute('aria-live')") == "polite"


def test_a_topic_is_found_by_keyboard_alone(visit, make):
    name = make(3)
    page = visit("#/cluster")
    page.run("document.querySelector('nav a[href=\"#/topics\"]').focus()")
    page.press("Enter", text="\r")
    page.wait("document.activeElement.textContent === 'Topics' && document.activeElement.tagName === 'H1'")
    page.wait("document.querySelector('input[type=search]')")
    page.press("Tab")
    page.wait("document.activeElement.type === 'search'")
    page.write(name)
    page.wait("document.querySelectorAll('tbody tr').length === 1")
    assert page.run("document.activeElement.type") == "search"
    page.run("document.querySelector('tbody a').focus()")
    page.press("Enter", text="\r")
    page.wait_text(f"Topic {name}")
    page.wait("document.activeElement.tagName === 'H1'")
    page.wait("document.querySelector('tbody')?.rows.length === 3")


def test_a_place_in_a_table_has_an_address_of_its_own(visit, make, topic):
    for number in range(3):
        make(number + 1, f"-{number}")
    page = visit(f"#/topics?search={topic}")
    page.wait("document.querySelectorAll('tbody tr').length === 3")
    press(page, "Partitions", "th")
    page.wait("document.querySelector('th[aria-sort=ascending]')?.textContent === 'Partitions'")
    page.run("document.querySelector('th[aria-sort] button').click()")
    page.wait("document.querySelector('th[aria-sort=descending]') && location.hash.includes('descending=true')")
    assert page.run("document.querySelector('tbody tr').cells[1].textContent") == "3"


def test_nothing_is_wider_than_a_phone(visit, make):
    name = make(2)
    for part in ("#/cluster", "#/topics", f"#/topic?name={name}"):
        page = visit(part)
        page.size(360, 740, mobile=True)
        assert page.run("document.documentElement.scrollWidth <= innerWidth"), part


def test_it_is_dark_where_that_is_preferred(visit):
    page = visit("")
    page.scheme("dark")
    dark = page.run("getComputedStyle(document.body).backgroundColor")
    page.scheme("light")
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)" != dark


def test_what_strangers_wrote_is_text(visit, bootstrap, admin, make, topic):
    name, group = make(1), f"{MARKUP}{topic}"
    admin.alter_group_offsets(group, {TopicPartition(name, 0): 0})
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(name, MARKUP, key=MARKUP, headers=[(MARKUP, MARKUP.encode())])
        producer.send(name, f'{{"a": "{quote(MARKUP)}", "html": "</script><b>"}}')
    page = visit(f"#/records?topic={name}&from=oldest")
    page.wait("document.querySelectorAll('tbody tr').length === 2")
    assert page.run("document.querySelectorAll('tbody tr')[0].cells[2].textContent") == MARKUP
    assert page.run("document.querySelectorAll('tbody tr')[0].cells[3].textContent") == MARKUP
    assert page.run("document.querySelectorAll('tbody tr')[0].cells[4].textContent") == f"{MARKUP}: {MARKUP}"
    page.run("document.querySelector('tbody button').click()")
    page.wait("document.querySelector('dialog pre')?.textContent")
    assert page.run("document.querySelectorAll('dialog pre')[1].textContent") == MARKUP
    page.press("Escape")
    page.wait("!document.querySelector('dialog')")
    page = visit(f"#/group?id={quote(group, safe='')}")
    page.wait_text(group)
    assert page.run("document.querySelectorAll('main img, main b, main script').length") == 0
    assert "broken" not in page.run("document.title").removeprefix(f"Group {group}")


def test_new_records_appear_as_they_come(visit, bootstrap, make):
    name = make(1)
    page = visit(f"#/records?topic={name}")
    page.wait_text("Looked at 0 records")
    click(page, "Live tail")
    page.wait_text("Waiting for new records")
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(name, "just now")
    page.wait_text("just now")
    click(page, "Stop")
    page.wait_text("Stopped.")


def label_of(page, number):
    """What a chart says to those who do not see it, as soon as there are so many."""
    page.wait(f"document.querySelectorAll('svg.chart').length === {number + 1}")
    return page.run(f"document.querySelectorAll('svg.chart')[{number}].getAttribute('aria-label')")


def test_rates_are_drawn_and_told_in_words(chromium, bootstrap, admin, make):
    """Looks five seconds apart: before the first nothing is written and read, then 10 records, 20, and none."""
    topic, clock, ends = make(1), ManualClock(), 0
    with Served({"bootstrap.servers": bootstrap}, clock) as served, Producer(bootstrap_servers=bootstrap) as producer:
        for count in (0, 10, 20):
            for _ in range(count):
                producer.send(topic, "x", partition=0)
            producer.flush()
            ends += count
            admin.alter_group_offsets(topic, {TopicPartition(topic, 0): ends})
            served.browser().rows(f"/api/topic/written?name={topic}")
            served.browser().rows(f"/api/group?id={topic}")
            clock.advance(5)
        page = chromium.page()
        page.go(f"http://{served.host}/#/topic?name={topic}")
        told = label_of(page, 0)
        assert told.startswith("Records written a second: 3 samples from ")
        assert told.endswith("now 0, least 0, most 4")
        page.go(f"http://{served.host}/#/group?id={topic}")
        told = label_of(page, 1)
        assert told.startswith("Records committed a second: 3 samples from ")
        assert told.endswith("now 0, least 0, most 4")
        page.go(f"http://{served.host}/#/cluster")
        assert label_of(page, 0) == "Records written a second: no samples yet"
        assert page.complaints == []
        page.close()


@pytest.mark.parametrize("part", ["groups", "disks", "transactions", "quotas", "jobs"])
def test_every_part_is_there(visit, admin, make, topic, part):
    admin.alter_group_offsets(topic, {TopicPartition(make(1), 0): 0})
    page = visit(f"#/{part}")
    page.wait("!document.querySelector('[aria-busy]') && document.querySelector('main caption')")
    assert page.run("document.querySelector('main .error')") is None


def test_a_topic_is_made_and_deleted_in_the_page(visit, bootstrap, admin, topic):
    with Served({"bootstrap.servers": bootstrap}, allow_changes=True) as served:
        page = visit("#/topics", served.host)
        click(page, "Create a topic")
        page.wait("document.querySelector('dialog[open]')?.contains(document.activeElement)")
        page.write(topic)
        press(page, "Create a topic")
        page.wait("!document.querySelector('dialog')")
        assert topic in {each.name for each in admin.list_topics()}
        page = visit(f"#/topic?name={topic}", served.host)
        click(page, "Delete the topic")
        page.wait("document.querySelector('dialog[open]')?.contains(document.activeElement)")
        page.write(topic[:-1])
        press(page, "Delete the topic")
        page.wait_text("type its name once more")
        page.write(topic[-1])
        page.run("document.querySelector('dialog input').focus()")
        press(page, "Delete the topic")
        page.wait("document.querySelector('h1').textContent === 'Topics'")
        page.go("about:blank")  # it asks nothing of a server that ends
    page.complaints.clear()  # the refusal, which the browser calls an error
    assert topic not in {each.name for each in admin.list_topics()}


def test_a_visitor_logs_in_and_out(visit, secured):
    with Served(secured.client("admin")) as served:
        page = visit("", served.host)
        page.wait("document.activeElement.name === 'user'")
        page.write("admin")
        page.run("document.querySelector('[type=password]').focus()")
        page.write("wrong")
        press(page, "Log in", "form")
        page.wait_text("no such user")
        page.wait("document.activeElement.type === 'password' && document.activeElement.value === ''")
        page.write(secured.users["admin"])
        press(page, "Log in", "form")
        page.wait_text("Under-replicated")
        assert page.run("document.cookie") == ""
        click(page, "Log out")
        page.wait("document.activeElement.name === 'user'")
        assert "Under-replicated" not in page.text()
        page.go("about:blank")
    page.complaints.clear()  # the wrong password, which the browser calls an error


def click(page, text):
    """A button, once it is there."""
    press(page, text, "body")


def press(page, text, inside="dialog"):
    """A button that is in something, once it is there and can be pressed."""
    buttons = f"[...document.querySelectorAll('{inside} button')]"
    page.wait(f"{buttons}.some((each) => each.textContent === {text!r} && !each.disabled)")
    page.run(f"{buttons}.find((each) => each.textContent === {text!r}).click()")


def test_a_time_that_no_calendar_has_hides_no_record(visit, bootstrap, make):
    name = make(1)
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(name, b"first", timestamp=2**60)
        producer.send(name, b"second")
    page = visit(f"#/records?topic={name}&from=oldest")
    page.wait("document.querySelector('main tbody')?.textContent.includes('second')")
    assert str(2**60) in page.text()
