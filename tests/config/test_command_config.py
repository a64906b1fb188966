import pytest

from sparklog.config.command_config import command_settings
from sparklog.errors import ConfigError


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.delenv("SPARKLOG_COMMAND_CONFIG", raising=False)
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SSL\nbootstrap.servers=in-the-file:1\n")
    return path


@pytest.mark.parametrize(
    ("is_given", "named", "expected"),
    [
        (False, None, {"bootstrap.servers": "127.0.0.1:9092"}),
        (False, "named:2", {"bootstrap.servers": "named:2"}),
        (True, None, {"security.protocol": "SSL", "bootstrap.servers": "in-the-file:1"}),
        (True, "named:2", {"security.protocol": "SSL", "bootstrap.servers": "named:2"}),
    ],
)
def test_brokers_are_those_that_are_named_or_else_the_files(file, is_given, named, expected):
    assert command_settings(file if is_given else None, named) == expected


def test_the_environment_names_the_file_where_the_command_does_not(file, tmp_path, monkeypatch):
    monkeypatch.setenv("SPARKLOG_COMMAND_CONFIG", str(file))
    assert command_settings(None, None)["security.protocol"] == "SSL"
    other = tmp_path / "other.properties"
    other.write_text("client.id=other\n")
    assert command_settings(other, "named:2") == {"client.id": "other", "bootstrap.servers": "named:2"}


def test_a_file_that_the_environment_names_must_be_there(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARKLOG_COMMAND_CONFIG", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"cannot read .*none"):
        command_settings(None, None)
