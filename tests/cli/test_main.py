"""Help, misuse, and what becomes of errors."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest
from cli.conftest import PROGRAM
from click.testing import CliRunner

from sparklog import __version__, not_compiled
from sparklog.cli.exit_status import BROKEN_PIPE, INTERRUPTED
from sparklog.cli.main import COMMANDS, cli
from sparklog.errors import ConfigError

HELP = """
import json, sys, time
from sparklog.cli.main import main
sys.argv = ["sparklog", "--help"]
try:
    main()
except SystemExit as ended:
    heavy = [name for name in ("pyspark", "pyarrow", "pandas", "kafka", "kazoo", "rich") if name in sys.modules]
    print(json.dumps([ended.code, heavy, time.process_time()]), file=sys.stderr)
"""

GROUPS = {
    "topic": ("create", "list", "describe", "alter", "trim", "delete"),
    "group": ("list", "describe", "reset-offsets", "delete-offsets", "migrate", "delete"),
    "broker": ("run", "list", "describe", "drain"),
    "cluster": ("describe", "elect", "reassign", "drain"),
    "config": ("describe", "alter"),
    "user": ("list", "add", "set-password", "delete"),
    "token": ("create", "describe", "renew", "expire"),
    "acl": ("list", "add", "remove"),
    "quota": ("list", "set", "remove"),
    "compact": ("run", "status"),
    "backup": ("run", "list", "verify"),
    "txn": ("list", "describe", "commit", "abort", "find-hanging", "producers"),
    "writes": ("list", "finish", "declare"),
    "log": ("dump", "verify", "dirs", "move"),
    "takeover": ("check",),
    "perf": ("produce", "consume", "e2e"),
}
COMMAND_LINES = [[name] for name in COMMANDS] + [[group, name] for group, names in GROUPS.items() for name in names]
ASKING = [
    ["topic", "delete"],
    ["topic", "trim"],
    ["group", "reset-offsets"],
    ["group", "delete-offsets"],
    ["group", "delete"],
    ["txn", "commit"],
    ["txn", "abort"],
    ["writes", "finish"],
    ["user", "delete"],
    ["acl", "remove"],
    ["token", "expire"],
]

MISUSES = [
    (["clean"], "No such command 'clean'"),
    (["topic", "create"], "Missing argument 'NAME...'"),
    (["topic", "create", "a", "--partitions", "0"], "--partitions"),
    (["topic", "create", "a", "--replication", "x"], "--replication"),
    (["topic", "create", "a", "--replication-factor", "x"], "--replication-factor"),
    (["topic", "create", "a", "--config", "retention.ms"], "--config"),
    (["topic", "create", "a", "--replication", "40000"], "no cluster has so many brokers"),
    (["topic", "describe"], "name a topic"),
    (["cluster", "elect", "--partition", "1"], "--partition needs the one --topic"),
    (["cluster", "elect", "--partition", "-1"], "--partition"),
    (["topic", "list", "--output", "xml"], "--output"),
    (["topic", "alter", "a"], "name what to change"),
    (["topic", "alter", "a", "--config", "x"], "--config"),
    (["topic", "alter", "a", "--config", "x=1", "--delete-config", "x"], "cannot be set and deleted"),
    (["topic", "delete"], "Missing argument 'NAME...'"),
    (["topic", "delete", "a"], "add --yes"),
    (["topic", "trim", "a", "--yes"], "Missing option '--before'"),
    (["topic", "trim", "a", "--before", "earliest", "--yes"], "nothing is before earliest"),
    (["topic", "trim", "a", "--before", "-1", "--yes"], "--before"),
    (["group", "describe"], "name the groups to describe, or --all"),
    (["group", "delete-offsets", "g"], "Missing option '-t' / '--topic'"),
    (["group", "delete", "g"], "add --yes"),
    (["group", "reset-offsets", "g"], "--to"),
    (["group", "reset-offsets", "g", "--to", "earliest", "--partition", "1"], "--partition needs the one --topic"),
    (["config", "describe"], "one of --topic, --broker, --all-brokers"),
    (["config", "describe", "--topic", "a", "--broker", "1"], "one of --topic, --broker, --all-brokers"),
    (["config", "alter", "--topic", "a"], "name what to change"),
    (["compact", "run"], "name the topics to clean, or --all"),
    (["compact", "run", "a", "--all"], "name the topics to clean, or --all"),
    (["compact", "run", "a", "b", "--partition", "1"], "--partition needs the one TOPIC"),
    (["compact", "users"], '"sparklog compact run users"'),
    (["backup", "a"], "Missing option '--dest'"),
    (["backup", "run", "--dest", "d"], "Missing argument 'TOPIC...'"),
    (["backup", "verify", "d", "--at", "1", "--all"], "exclude each other"),
    (["load", "--topic", "a"], "--from"),
    (["offload", "--topic", "a"], "--table"),
    (["restore"], "say where from: DEST, or --from-table TABLE"),
    (["restore", "d", "--replication", "40000"], "no cluster has so many brokers"),
    (["restore", "d", "--to", "a"], "--to needs the one --topic"),
    (["produce"], "Missing argument 'TOPIC'"),
    (["produce", "a", "no-such-file"], "no-such-file"),
    (["produce", "a", "--compression", "brotli"], "--compression"),
    (["produce", "a", "--key-separator", ""], "--key-separator"),
    (["produce", "a", "--acks", "2"], "--acks"),
    (["produce", "a", "--nonsense"], "--nonsense"),
    (["consume"], "Missing argument 'TOPIC...'"),
    (["consume", "a", "--from", "yesterday"], "--from"),
    (["consume", "a", "--to", "-1"], "--to"),
    (["consume", "a", "--max", "-1"], "--max"),
    (["consume", "a", "--partition", "-1"], "--partition"),
    (["consume", "a", "--follow", "--to", "3"], "--follow"),
    (["up", "--brokers", "0"], "--brokers"),
    (["up", "--port", "65536"], "--port"),
    (["demo", "--flights", "0"], "--flights"),
    (["demo", "--partitions", "101"], "--partitions"),
    (["up", "--zookeepers", "0"], "--zookeepers"),
    (["zookeeper", "--id", "1"], "Missing option"),
    (["broker", "--id", "one"], "--id"),
    (["broker", "--set", "broker.id"], "--set"),
    (["broker", "run", "--set", "broker.id"], "--set"),
    (["broker", "--id", "1", "list"], "unexpected extra argument (list)"),
    (["broker", "describe"], "Missing argument 'BROKER'"),
    (["broker", "describe", "one"], "BROKER"),
]


INTERRUPTED_EARLY = """
import sys
from sparklog.cli import main

async def call():
    pass

def command(**_):
    unbegun = call()
    raise KeyboardInterrupt

main.cli = command
sys.argv = ["sparklog", "topic", "list"]
main.main()
"""


def test_an_interrupt_says_nothing_of_what_had_not_begun():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED_EARLY], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, "", "")


def test_help_is_quick_and_imports_nothing_heavy():
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=True)
    status, heavy, cpu_seconds = json.loads(done.stderr)
    assert (status, heavy) == (0, [])
    assert cpu_seconds < 0.3
    for name, summary in COMMANDS.items():
        assert f"{name} " in done.stdout
        assert summary in done.stdout


@pytest.mark.parametrize("arguments", COMMAND_LINES, ids=" ".join)
def test_every_command_has_help(arguments):
    result = CliRunner().invoke(cli, [*arguments, "--help"], prog_name="sparklog")
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: sparklog {' '.join(arguments)}")


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_names_its_commands_with_a_whole_summary_each(group):
    output = CliRunner().invoke(cli, [group, "--help"], prog_name="sparklog", terminal_width=80).output
    summaries = dict(line.split(maxsplit=1) for line in output.partition("Commands:\n")[2].splitlines())
    assert summaries.keys() == set(GROUPS[group])
    assert [each for each in summaries.values() if not each.endswith(".") or each.endswith("..")] == []


@pytest.mark.parametrize("command", ASKING, ids=" ".join)
def test_examples_of_what_asks_first_work_in_a_script(command):
    for arguments in (command, command[:1]):
        output = CliRunner().invoke(cli, [*arguments, "--help"], prog_name="sparklog").output
        examples = [line for line in output.splitlines() if line.startswith(f"    sparklog {' '.join(command)} ")]
        assert examples
        assert [line for line in examples if not {"--yes", "--dry-run"} & set(line.split())] == []


def test_the_version_is_ours_and_says_whether_it_is_compiled(run):
    form = f"not compiled: {not_compiled}" if not_compiled else "compiled"
    assert run("--version") == (0, f"sparklog, version {__version__} ({form})\n", "")


@pytest.mark.parametrize(("arguments", "named"), MISUSES, ids=[" ".join(arguments) for arguments, _ in MISUSES])
def test_misuse_ends_with_2_and_names_what_is_wrong(run, arguments, named):
    result = run(*arguments)
    assert result.status == 2
    assert result.out == ""
    assert named in result.err.splitlines()[-1]


@pytest.mark.parametrize(
    "arguments",
    [["topic", "list"], ["topic", "create", "a"], ["topic", "delete", "a", "-y"], ["produce", "a"], ["consume", "a"]],
    ids=" ".join,
)
def test_no_broker_is_one_line_that_says_what_to_type(run, arguments):
    # Port 1 is a system's own: nothing of ours listens there.
    result = run(*arguments, "--bootstrap", "127.0.0.1:1")
    assert (result.status, result.out) == (1, "")
    assert result.err.count("\n") == 1
    assert result.err.startswith("sparklog: no broker can be reached; tried 127.0.0.1:1 ")
    assert '"sparklog up" starts one here' in result.err


@pytest.mark.integration
@pytest.mark.parametrize(
    ("command", "closed"),
    [(["topic", "list"], ">&-"), (["produce"], "<&-"), (["produce"], "2>&-"), (["consume"], "<&- >&- 2>&-")],
    ids=["topic list", "produce from nowhere", "produce", "consume"],
)
def test_streams_that_are_closed_are_done_without(bootstrap, topic, run, command, closed):
    """As by a shell's ``>&-``: what would be printed there is not, and all else is done."""
    assert run("topic", "create", topic, "--bootstrap", bootstrap).status == 0
    named = [] if command[0] == "topic" else [topic]
    line = f'exec "$@" {closed}'
    done = subprocess.run(
        ["sh", "-c", line, "sh", *PROGRAM, *command, *named, "--bootstrap", bootstrap],
        input=b"a line\n", capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert b"Error" not in done.stderr
    if command == ["produce"]:
        written = run("consume", topic, "--bootstrap", bootstrap).out
        assert written == ("" if "<" in closed else "a line\n")


def test_a_port_that_accepts_and_says_nothing_is_told_from_one_where_nobody_is(run):
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        address = f"127.0.0.1:{frozen.getsockname()[1]}"
        result = run("topic", "list", "--bootstrap", address)
    assert (result.status, result.out, result.err.count("\n")) == (1, "", 1)
    assert f"{address} accepts connections, and answers nothing within 3 s" in result.err
    assert "is it running" not in result.err
    assert "frozen" in result.err


def test_an_address_that_is_none_is_named(run):
    result = run("topic", "list", "--bootstrap", "somewhere")
    assert (result.status, result.out) == (2, "")
    assert "'somewhere' is not host:port with a port from 1 to 65535\n" in result.err


def test_a_file_of_settings_that_cannot_be_read_is_named(run, tmp_path):
    (tmp_path / "client.properties").write_bytes(b"a\xffb")
    for name, why in (("nowhere", "No such file"), ("client.properties", "not UTF-8")):
        result = run("topic", "list", "--command-config", tmp_path / name)
        assert (result.status, result.out) == (2, "")
        assert name in result.err
        assert why in result.err


def test_a_name_that_is_no_text_is_refused_and_a_file_of_such_a_name_is_not(run, tmp_path, monkeypatch):
    result = run("consume", os.fsdecode(b"a\xffb"))
    assert (result.status, result.out) == (2, "")
    assert r"'a\xffb' is not UTF-8, as a name must be" in result.err
    monkeypatch.chdir(tmp_path)
    file = Path(os.fsdecode(b"f\xff"))
    file.touch()
    result = run("log", "dump", file.name)
    assert "as a name must be" not in result.err


def test_a_plan_that_is_no_text_is_refused(run, tmp_path, bootstrap):
    (tmp_path / "plan.json").write_bytes(b"a\xffb")
    result = run("cluster", "reassign", "--plan", tmp_path / "plan.json", "--bootstrap", bootstrap)
    assert (result.status, result.out) == (2, "")
    assert "plan.json is not UTF-8 text" in result.err


def test_a_broker_whose_settings_cannot_be_read_says_so_and_is_not_to_be_restarted(run, tmp_path):
    result = run("broker", "--config", tmp_path / "server.properties")
    assert (result.status, result.out) == (2, "")
    assert result.err == f"sparklog: cannot read {tmp_path / 'server.properties'}: No such file or directory\n"


def test_a_broker_with_a_setting_that_cannot_be_is_not_to_be_restarted(run):
    result = run("broker", "--id", "0", "--set", "num.partitions=none")
    assert (result.status, result.out) == (2, "")
    assert result.err.splitlines()[-1].startswith("sparklog: num.partitions")


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (ConfigError("x is wrong"), 1, "sparklog: x is wrong\n"),
        (PermissionError(13, "Permission denied", "a"), 1, "sparklog: a: permission denied\n"),
        (KeyboardInterrupt(), INTERRUPTED, "\n"),
        (BrokenPipeError(), BROKEN_PIPE, ""),
        (KeyError("k"), 1, "sparklog: unexpected KeyError: 'k' (SPARKLOG_DEBUG=1 shows where; please report it)\n"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_becomes_a_status_and_at_most_a_line(run, monkeypatch, error, status, text):
    def fail(*_arguments, **_options):
        raise error

    monkeypatch.setattr(click.Group, "invoke", fail)
    assert run("topic", "list") == (status, "", text)
