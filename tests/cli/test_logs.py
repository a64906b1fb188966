"""Where a broker's log lines go."""

import json
import logging
import re
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from sparklog.cli.logs import LogFormat, begin_to_log
from sparklog.errors import ConfigError
from sparklog.local.ports import free_port

EXAMPLE = Path(__file__).parents[2] / "conf" / "logging.toml"
CLEANER = "sparklog.replica.cleaning"


@pytest.mark.usefixtures("logging_as_before")
def test_the_example_gives_the_cleaner_a_file_of_its_own(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    begin_to_log(EXAMPLE)
    logging.getLogger(CLEANER).info("cleaned log users-0")
    logging.getLogger("sparklog.replica.manager").info("something else")
    assert re.search(rf"INFO +{re.escape(CLEANER)}  cleaned log users-0\n$", Path("log-cleaner.log").read_text())
    said = capfd.readouterr().err
    assert "something else" in said
    assert "users-0" not in said


@pytest.mark.usefixtures("logging_as_before")
def test_a_name_makes_up_no_line_and_no_colours(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    begin_to_log(EXAMPLE)
    logging.getLogger("sparklog.net.server").warning(
        "closing %s: häßlich", "a\nERROR sparklog all is lost\x1b[31m\u2028"
    )
    (line,) = capfd.readouterr().err.split("\n")[:-1]
    assert line.endswith(r"closing a\nERROR sparklog all is lost\x1b[31m\u2028: häßlich")


ODD = 'a\n{"level": "ERROR"}\x1b[31m\u2028 "\\ \udcff é'


def begin_json(broker):
    """As in a process of its own: pytest's handlers would count for some."""
    logging.getLogger().handlers.clear()
    begin_to_log(None, LogFormat.JSON, broker)


def logged(capfd):
    """The objects of the lines, each of which is ASCII."""
    lines = capfd.readouterr().err.split("\n")
    assert lines.pop() == ""
    assert all(each.isascii() and each.isprintable() for each in lines)
    return [json.loads(each) for each in lines]


@pytest.mark.usefixtures("logging_as_before")
def test_json_is_an_object_a_line_whatever_is_named(capfd):
    begin_json(7)
    logger = logging.getLogger("sparklog.net.server")
    logger.warning("closing %s", ODD)
    try:
        raise ValueError(ODD)
    except ValueError:
        logger.exception("failed")
    plain, failed = logged(capfd)
    assert list(plain) == ["time", "level", "logger", "message", "broker"]
    assert (plain["level"], plain["logger"], plain["broker"]) == ("WARNING", "sparklog.net.server", 7)
    assert plain["message"].startswith(r'closing a\n{"level": "ERROR"}\x1b[31m')
    assert plain["message"].endswith("é")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", plain["time"])
    assert datetime.fromisoformat(plain["time"]).utcoffset() == timedelta(0)
    assert failed["exception"].startswith("Traceback (most recent call last):\n")
    assert f"ValueError: {ODD}" in failed["exception"]


@pytest.mark.usefixtures("logging_as_before")
def test_a_file_can_ask_for_json(tmp_path, capfd):
    text = EXAMPLE.read_text().replace('formatter = "line"', 'formatter = "json"', 1)
    (tmp_path / "logging.toml").write_text(text.replace('filename = "', f'filename = "{tmp_path}/'))
    begin_to_log(tmp_path / "logging.toml", None, 0)
    logging.getLogger("sparklog.net.server").info("said")
    (said,) = logged(capfd)
    assert (said["message"], said["broker"]) == ("said", 0)


@pytest.mark.usefixtures("logging_as_before")
def test_a_file_and_a_format_at_once_are_refused():
    with pytest.raises(ConfigError, match="leave out --log-format"):
        begin_to_log(EXAMPLE, LogFormat.TEXT)


@pytest.mark.usefixtures("logging_as_before")
def test_loggers_that_are_there_already_go_on(tmp_path):
    early = logging.getLogger("sparklog.test_logs")
    (tmp_path / "logging.toml").write_text('[handlers.null]\nclass = "logging.NullHandler"\n')
    begin_to_log(tmp_path / "logging.toml")
    assert not early.disabled


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot read .*: No such file"),
        ("[root", "is not TOML"),
        ("version = 2", "Unsupported version"),
        ('[root]\nhandlers = ["nowhere"]', "nowhere"),
        ('[handlers.a]\nclass = "no.such.Handler"', "no"),
        ('[handlers.a]\nclass = "logging.FileHandler"\nfilename = "/no/such/directory/a.log"', "/no/such/directory"),
        ("root = 7", "logging.toml: "),
    ],
)
@pytest.mark.usefixtures("logging_as_before")
def test_a_file_that_is_none_is_named(tmp_path, text, said):
    path = tmp_path / "logging.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        begin_to_log(path)


def test_a_broker_takes_it_as_an_option_and_from_its_environment(run, monkeypatch, tmp_path):
    wanted = ("broker", "--port", free_port())
    given = run(*wanted, "--logging", tmp_path / "a.toml")
    monkeypatch.setenv("SPARKLOG_LOGGING", str(tmp_path / "b.toml"))
    inherited = run(*wanted)
    assert [given.status, inherited.status] == [2, 2]
    assert given.err == f"sparklog: cannot read {tmp_path / 'a.toml'}: No such file or directory\n"
    assert inherited.err == f"sparklog: cannot read {tmp_path / 'b.toml'}: No such file or directory\n"
