"""The page in a real browser: 10,000 partitions, and what axe-core finds. ``make soak`` runs these."""

import re
from pathlib import Path

import pytest
from fix_programs import lack_of
from web.chromium import Chromium
from web.serving import Served

from sparklog.client import Admin, NewTopic, Producer
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness

RECORD = Path(__file__).parents[2] / "build" / "pictures"
"""Every part and every dialog as it was drawn last: on a desk, and on a phone."""
AXE = Path(__file__).parents[2] / "build" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
PARTITIONS = 10_000
BIG = "big"

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(lack_of("chromium")), reason=lack_of("chromium")),
]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A cluster with a topic of 10,000 partitions, and one of 2 with records and a group."""
    with ClusterHarness(tmp_path_factory.mktemp("large")) as cluster:
        settings = {"bootstrap.servers": cluster.bootstrap_servers}
        patience = {"default.api.timeout.ms": 900_000, "request.timeout.ms": 900_000}
        with Admin(settings | patience) as admin:
            admin.create_topics([NewTopic(BIG, PARTITIONS, 1), NewTopic("small", 2, 1)])
            with Producer(settings) as producer:
                producer.send("small", '{"a": 1}', key="k", headers=[("h", b"v")])
            admin.alter_group_offsets("readers", {TopicPartition("small", 0): 0})
        with Served(settings, allow_changes=True) as served:
            yield served


@pytest.fixture
def page(large, tmp_path_factory):
    with Chromium(tmp_path_factory.mktemp("chromium")) as chromium:
        found = chromium.page()
        found.url = f"http://{large.host}/"
        yield found
        assert found.complaints == []


def busy_s(page):
    """Seconds that the tab's main thread has worked."""
    return {each["name"]: each["value"] for each in page.ask("Performance.getMetrics")["metrics"]}["TaskDuration"]


def test_ten_thousand_partitions_are_a_hundred_rows(page, record_property):
    page.ask("Performance.enable", timeDomain="threadTicks")
    page.go(f"{page.url}#/topic?name={BIG}")
    page.wait("document.querySelector('tbody')?.rows.length === 100")
    page.wait_text("1 to 100 of 10,000")
    before = busy_s(page)
    steps = ("Next", "Next", "Last", "Previous", "First")
    for step, first in zip(steps, (100, 200, 9900, 9800, 0), strict=True):
        page.run(f"[...document.querySelectorAll('button')].find((each) => each.textContent === '{step}').click()")
        page.wait(f"document.querySelector('tbody').rows[0]?.cells[0].textContent.replace(',', '') === '{first}'")
    spent = (busy_s(page) - before) / len(steps)
    record_property("main_thread_seconds_a_page_of_rows", spent)
    print(f"a page of rows takes the main thread {spent * 1000:.0f} ms")  # noqa: T201 (kept as a figure)
    assert page.run("document.querySelectorAll('*').length") < 3000
    assert spent < 0.5  # CPU seconds


def test_a_group_of_partitions_is_searched_for_by_number(page):
    page.go(f"{page.url}#/topic?name={BIG}&search=999")
    page.wait_text("1 to 19 of 19")


PARTS = [
    *("cluster", "topics", f"topic?name={BIG}", "records?topic=small&from=oldest", "groups", "group?id=readers"),
    *("disks", "transactions", "quotas", "acls", "jobs", "broker?id=0"),
]
DIALOGS = {
    "a topic is made": ("topics", "Create a topic"),
    "a topic is deleted": ("topic?name=small", "Delete the topic"),
    "a setting is changed": ("topic?name=small", "Change a setting"),
    "a group is reset": ("group?id=readers", "Reset offsets"),
    "a record is shown whole": ("records?topic=small&from=oldest", "0: 0"),
}
"""Where they are opened, and by which button."""


@pytest.fixture
def opened(page):
    """``opened(part)``, ``opened(dialog)``: it is drawn, and nothing more comes."""

    def go(what):
        part, button = DIALOGS.get(what, (what, None))
        page.go("about:blank")  # a dialog that was open is gone
        page.go(f"{page.url}#/{part}")
        drawn = "document.querySelector('main caption, main p.quiet, main .error')"
        page.wait(f"{drawn} && !document.querySelector('[aria-busy]')")
        if button is not None:
            wanted = f"[...document.querySelectorAll('main button')].find((each) => each.textContent === '{button}')"
            page.wait(f"!!{wanted}")
            page.run(f"{wanted}.click()")
            page.wait("document.querySelector('dialog[open]')?.contains(document.activeElement)")

    return go


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is missing; type: make axe")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("what", [*PARTS, *DIALOGS])
def test_axe_finds_nothing(page, opened, what, scheme):
    page.scheme(scheme)
    opened(what)
    page.run(AXE.read_text() + "; true")
    found = page.run(
        "axe.run().then((told) => told.violations.map((each) => [each.id, each.nodes.map((n) => n.html)]))"
    )
    assert found == []
    if what == "acls":
        page.complaints.clear()  # this cluster has no lists, which the browser calls an error


@pytest.mark.parametrize("what", [*PARTS, *DIALOGS])
def test_it_is_drawn_on_a_desk_and_fits_a_phone(page, opened, what):
    """The pictures stay, for people to look at; that nothing is wider than the screen is checked."""
    RECORD.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^a-z]+", "-", what.lower())
    for width, height, place in ((1200, 800, "desk"), (360, 740, "phone")):
        page.size(width, height, mobile=place == "phone")
        opened(what)
        assert page.run("document.documentElement.scrollWidth <= innerWidth"), place
        assert page.run(_WITHIN), place
        page.picture(RECORD / f"{name}-{place}.png")
    if what == "acls":
        page.complaints.clear()


_WITHIN = """[...document.querySelectorAll('dialog[open]')].every(
    (each) => each.getBoundingClientRect().right <= innerWidth && each.scrollWidth <= each.clientWidth)"""
"""No dialog is wider than the screen, and none is scrolled sideways."""
