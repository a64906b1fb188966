"""The text of metrics against prometheus-client's parser."""

from prometheus_client.parser import text_string_to_metric_families

from sparklog.metrics.exposition import Exposition, Family, label_text

GAUGE = Family("a_gauge", "gauge", ("topic", "odd"), 'Says "what" it is\\is not,\nin two lines.')
COUNTER = Family("a_total", "counter", (), "Counts.")


def text(page):
    parts = []
    for _ in page.encoding(parts):
        pass
    return b"".join(parts).decode()


def test_what_is_written_is_read_whatever_is_in_a_label():
    odd = 'a"b\\c\nd\\n{},= é'
    page = Exposition()
    page.add(GAUGE, 1.5, "t", odd)
    page.add(COUNTER, 7)
    page.add(GAUGE, 2, "u", "")
    gauge, counter = text_string_to_metric_families(text(page))
    assert (gauge.name, gauge.type, gauge.documentation) == (GAUGE.name, "gauge", GAUGE.help)
    assert [(each.labels, each.value) for each in gauge.samples] == [
        ({"topic": "t", "odd": odd}, 1.5),
        ({"topic": "u", "odd": ""}, 2),
    ]
    assert (counter.type, [each.value for each in counter.samples]) == ("counter", [7])


def test_a_family_without_samples_is_named():
    page = Exposition()
    page.lines(GAUGE)
    assert "# TYPE a_gauge gauge\n" in text(page)


def test_a_page_is_written_in_steps():
    page = Exposition()
    for number in range(10_000):
        page.add(GAUGE, number, "t", str(number))
    assert len(list(page.encoding([]))) == 5


def test_without_labels_there_are_no_braces():
    assert label_text((), ()) == ""
