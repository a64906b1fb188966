import pytest

from sparklog.config.protocol_version import NEWEST, parse_protocol_version
from sparklog.takeover.planned import read_planned


def written(tmp_path, *lines):
    path = tmp_path / "server.properties"
    path.write_text("".join(f"{line}\n" for line in lines))
    return read_planned(path)


def test_the_version_is_that_of_the_file(tmp_path):
    found = written(tmp_path, "broker.id=3", "inter.broker.protocol.version=3.7")
    assert (found.broker_id, found.version) == (3, parse_protocol_version("3.7"))


def test_a_file_without_it_has_the_default(tmp_path):
    assert written(tmp_path, "broker.id=3").version == NEWEST


@pytest.mark.parametrize("line", ["listeners=OTHER://:9092", "process.roles=broker", "nothing"])
def test_what_no_broker_starts_with_is_told(tmp_path, line):
    assert written(tmp_path, "broker.id=3", line).fault


def test_a_file_that_is_not_there_is_told(tmp_path):
    assert "cannot read" in read_planned(tmp_path / "none").fault
