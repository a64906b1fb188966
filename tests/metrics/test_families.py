"""The table of families."""

import re

from sparklog.metrics.families import COUNTER, FAMILIES, GAUGE, HISTOGRAM, UNTYPED


def test_names_are_given_once_and_are_names():
    names = [each.name for each in FAMILIES]
    assert len(set(names)) == len(names)
    for each in FAMILIES:
        assert re.fullmatch(r"(kafka|sparklog)_[a-z0-9_]+", each.name)
        assert each.kind in (COUNTER, GAUGE, HISTOGRAM, UNTYPED)


def test_counters_and_only_they_end_as_counters_do():
    for each in FAMILIES:
        assert (each.kind == COUNTER) == each.name.endswith("_total")
        assert each.kind != UNTYPED or each.name.endswith("_count")  # as Kafka's histograms count


def test_every_family_says_what_it_is():
    for each in FAMILIES:
        assert each.help.endswith(".")
        assert "\n" not in each.help


def test_no_label_grows_with_the_clients():
    labels = {label for each in FAMILIES for label in each.labels}
    assert not labels & {"client_id", "client", "host", "member", "producer_id", "transactional_id", "user"}
