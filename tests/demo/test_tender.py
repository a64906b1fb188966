"""The job of the currencies: what the table has after a run, after others that go on, and after a cleaning."""

from datetime import date

import pytest

from sparklog.client import Admin, Producer
from sparklog.demo.currencies import load_changes, tender_on
from sparklog.demo.tender import TenderOptions, TenderReport, run
from sparklog.errors import ConfigError

pytest.importorskip("babel")
pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.usefixtures("interpreted")]

EURO = date(2002, 3, 1)


@pytest.fixture
def options(bootstrap, topic, tmp_path, delta_jars):
    del delta_jars
    return lambda until=None: TenderOptions(bootstrap, topic, str(tmp_path / "table"), until)


def rows(spark, options):
    found = spark.read.format("delta").load(options().table).collect()
    return {row.territory: tuple(row.currencies) for row in found}


def test_runs_go_on_and_the_table_is_what_the_data_say_of_each_day(spark, options, bootstrap, topic):
    changes = load_changes()
    before = sum(each.day < EURO for each in changes)
    first = run(spark, options(EURO))
    assert (first.written, first.day, first.agrees) == (before, changes[before - 1].day, True)
    assert rows(spark, options) == tender_on(first.day)
    again = run(spark, options(EURO))
    assert (again.written, again.commits, again.agrees) == (0, 0, True)
    rest = run(spark, options())
    assert (rest.written, rest.day, rest.agrees) == (len(changes) - before, changes[-1].day, True)
    assert rows(spark, options) == tender_on(changes[-1].day)
    assert str(rest).endswith(
        f"the table has {rest.territories} territories with {rest.currencies} currencies, as the data say"
    )
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.alter_topic_configs(topic, {"min.cleanable.dirty.ratio": "0"})
        (cleaned,) = admin.compact([topic]).values()
    assert cleaned.run.messages_after < cleaned.run.messages_before == len(changes)
    assert run(spark, options())[:2] == (0, 0), "offsets are counted, and these stay"


def test_a_table_that_somebody_has_changed_is_told_of(spark, options):
    run(spark, options(EURO))
    spark.sql(f"DELETE FROM delta.`{options().table}` WHERE territory = 'CH'")
    report = run(spark, options(EURO))
    assert not report.agrees
    assert "which is NOT what the data say" in str(report)


def test_a_topic_of_something_else_is_refused(spark, options, bootstrap, topic):
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(len(load_changes()) + 1):
            producer.send(topic, "{}", key=str(number), partition=0)
    with pytest.raises(ConfigError, match="more than the"):
        run(spark, options())


def test_before_the_first_change_there_is_nothing(spark, options):
    assert run(spark, options(date(1600, 1, 1))) == TenderReport(0, 0, 0, 0, None, agrees=True)
