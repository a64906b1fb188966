"""Log directories that are full, or out of use."""

import pytest

from sparklog.cli.doctor.directories import directory_findings
from sparklog.cli.doctor.finding import Severity
from sparklog.client.admin.log_dirs import LogDir
from sparklog.structs import TopicPartition


@pytest.mark.parametrize(
    ("usable", "severity"),
    [(16, None), (15, Severity.WARNING), (6, Severity.WARNING), (5, Severity.ERROR), (0, Severity.ERROR), (-1, None)],
)
def test_how_full_is_too_full(usable, severity):
    found = list(directory_findings({3: [LogDir("/data", None, 100, usable, {})]}, 85))
    assert [each.severity for each in found] == ([] if severity is None else [severity])
    assert [each.where for each in found] == ([] if severity is None else [("broker 3 /data",)])


def test_from_95_percent_on_it_is_an_error_whatever_is_asked_for():
    (found,) = directory_findings({3: [LogDir("/data", None, 100, 4, {})]}, 100)
    assert found.severity is Severity.ERROR


def test_the_largest_partition_is_named():
    sizes = {TopicPartition("a", 0): 10, TopicPartition("b", 7): 50}
    (found,) = directory_findings({3: [LogDir("/data", None, 100, 10, sizes)]}, 85)
    assert "sparklog topic alter b --config retention.ms=" in found.advice
    assert "sparklog log move b --partition 7 --broker 3 --to DIR" in found.advice


def test_a_directory_out_of_use():
    (found,) = directory_findings({3: [LogDir("/data", "KAFKA_STORAGE_ERROR", -1, -1, {})]}, 85)
    assert (found.severity, found.where) == (Severity.ERROR, ("broker 3 /data",))
    assert "KAFKA_STORAGE_ERROR" in found.what
