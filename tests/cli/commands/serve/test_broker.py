"""``sparklog broker``: a group of commands, and still the command that runs a broker."""

import pytest

from sparklog.cli.commands.serve import broker_run
from sparklog.config.broker import parse_broker_config


@pytest.fixture
def begun(monkeypatch):
    """The properties with which a broker was begun."""
    found = []

    def parsed(properties):
        found.append(properties)
        return parse_broker_config(properties)

    async def serve(_config, _page):
        pass

    monkeypatch.setattr(broker_run, "parse_broker_config", parsed)
    monkeypatch.setattr(broker_run, "_serve", serve)
    return found


@pytest.mark.parametrize("words", [("broker",), ("broker", "run")])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), {}),
        (("--id", "3", "--port", "0"), {"broker.id": "3", "port": "0"}),
        (("--set", "broker.id=3"), {"broker.id": "3"}),
        (("--set=broker.id=3",), {"broker.id": "3"}),
        (("--", *()), {}),
    ],
)
def test_a_broker_is_run_by_either_name(run, begun, words, options, expected):
    result = run(*words, *options)
    assert (result.status, result.out) == (0, "")
    assert begun == [expected]


def test_help_is_of_the_group_and_that_of_an_option_s_command_of_run(run, begun):
    assert "Commands:" in run("broker", "--help").out
    for words in (("broker", "run", "--help"), ("broker", "--id", "1", "--help")):
        assert "--metrics-port" in run(*words).out
    assert begun == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("",), ["describe", "drain", "list", "run"]),
        (("d",), ["describe", "drain"]),
        (("--con",), ["--config"]),
        (("--id", "1", "--po"), ["--port"]),
        (("run", "--po"), ["--port"]),
        (("list", "--ou"), ["--output"]),
    ],
)
def test_both_are_completed(run, monkeypatch, words, expected):
    monkeypatch.setenv("_SPARKLOG_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(["sparklog", "broker", *words]))
    monkeypatch.setenv("COMP_CWORD", str(1 + len(words)))
    assert [line.partition(",")[2] for line in run().out.splitlines()] == expected
