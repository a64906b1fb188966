"""The jobs are told of their cluster as the commands are."""

from argparse import ArgumentParser

import pytest

from sparklog.spark.batch.arguments import add_cluster, add_task_token, client_settings


@pytest.fixture
def parsed():
    def parse(*arguments):
        parser = ArgumentParser()
        add_cluster(parser)
        return client_settings(parser, parser.parse_args(list(map(str, arguments))))

    return parse


def test_the_file_and_the_brokers(parsed, tmp_path):
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SSL\n")
    settings = parsed("--command-config", path, "--bootstrap-server", "host:1")
    assert settings == {"security.protocol": "SSL", "bootstrap.servers": "host:1"}
    assert parsed() == {"bootstrap.servers": "127.0.0.1:9092"}


def test_brokers_are_named_as_for_commands(parsed, monkeypatch, tmp_path):
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=host:1\n")
    assert parsed("--command-config", path) == {"bootstrap.servers": "host:1"}
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP", "host:2")
    assert parsed("--command-config", path) == {"bootstrap.servers": "host:2"}
    for option in ("-b", "--bootstrap", "--bootstrap-server"):
        assert parsed(option, "host:3") == {"bootstrap.servers": "host:3"}
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP", "")
    assert parsed() == {"bootstrap.servers": "127.0.0.1:9092"}


@pytest.mark.parametrize(("text", "expected"), [("15m", 900_000), ("12h", 43_200_000), ("500ms", 500)])
def test_how_long_a_token_of_tasks_lasts_is_written_as_in_spark(text, expected):
    parser = ArgumentParser()
    add_task_token(parser)
    assert parser.parse_args([]).task_token is None
    assert parser.parse_args(["--task-token", text]).task_token == expected


def test_a_time_that_is_none_is_a_misuse(capsys):
    parser = ArgumentParser()
    add_task_token(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--task-token", "soon"])
    assert "taskToken" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_a_misuse(parsed, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        parsed("--command-config", tmp_path / "none")
    assert ended.value.code == 2
    assert "error: cannot read" in capsys.readouterr().err
