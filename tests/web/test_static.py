"""The page in a real browser."""

import pytest
from fix_programs import lack_of
from web.chromium import Chromium

pytestmark = [pytest.mark.integration, pytest.mark.skipif(bool(lack_of("chromium")), reason=lack_of("chromium"))]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with Chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def visit(chromium, served):
    """``visit(part)``: a tab with this part of the page, which at the end must have nothing to complain of."""
    page = chromium.page()

    def visited(part):
        page.go(f"http://{served.host}/{part}")
        page.wait("document.querySelector('h1') && document.querySelector('main table')")
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
    page.run("[...document.querySelectorAll('th button')].find((each) => each.textContent === 'Partitions').click()")
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
