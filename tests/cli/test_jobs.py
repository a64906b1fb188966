"""A job is started by its command, in this process, with the options of its own parser."""

import importlib.util
import sys

import pytest
from click.shell_completion import BashComplete

from sparklog.cli import jobs
from sparklog.cli.main import cli
from sparklog.errors import ConfigError

JOB = """
import argparse, sys

def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--topic", action="append")
    parser.add_argument("-p", "--pause", type=int, default=3, help="seconds; so long")
    return parser

if __name__ == "__main__":
    parser = arguments()
    print(parser.prog, parser.parse_args(), __name__)
    sys.exit(4)
"""


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A checkout whose job ``offload`` says how it was started, and ends with 4."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "offload.py").write_text(JOB)
    monkeypatch.setattr(jobs, "checkout", lambda: tmp_path)
    return tmp_path / "jobs" / "offload.py"


@pytest.fixture
def without_spark(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyspark" else found(name))


@pytest.mark.usefixtures("job")
def test_a_job_has_its_options_its_name_and_its_exit_code(run):
    done = run("offload", "--topic", "a b", "--topic=c", "-p", "7")
    assert (done.status, done.err) == (4, "")
    assert done.out == "sparklog offload Namespace(topic=['a b', 'c'], pause=7) __main__\n"


@pytest.mark.usefixtures("job")
def test_help_has_examples_and_the_options_of_the_job(run):
    done = run("offload", "--help")
    assert done.status == 0
    assert done.out.startswith("Usage: sparklog offload [OPTIONS]\n")
    assert "  sparklog offload --topic clicks --table /data/clicks\n" in done.out
    assert "\nOptions:\n  -h, --help" in done.out
    assert "usage:" not in done.out
    assert "seconds; so long" in done.out


def test_the_jobs_own_options_are_shown_and_their_misuse_is_told(run):
    assert "--freshness FRESHNESS" in run("offload", "--help").out
    misused = run("offload", "--topic", "a", "--table", "b/c", "--once", "--every", "5s")
    assert misused.status == 2
    said = "sparklog offload: error: --once, --every and --freshness (or --continuous) exclude each other\n"
    assert misused.err.endswith(said)
    assert run("offload", "--topic", "a", "--table", "b/c", "--continuous", "--every", "5s").err.endswith(said)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--table b/c --upsert --schema s --dead-letters d", "--schema does nothing without --value-format"),
        ("--table b/c --skip-keyless", "--skip-keyless does nothing without --upsert"),
        ("--table b/c --with value", "--with does nothing without --value-format"),
        ("--table b/c --format segments", "--format does nothing without --files"),
        ("--table b/c --unsafe-vacuum", "--unsafe-vacuum does nothing without --vacuum"),
        ("--table b/c --jdbc-user u", "--jdbc-user does nothing without --jdbc"),
        ("--files d --partition-by day", "--partition-by does nothing without --table"),
        ("--files d --upsert", "--upsert does nothing without --table"),
        ("--jdbc jdbc:x --value-format json --schema s", "--value-format does nothing without --table"),
        ("--table b/c --upsert --partition-by day", "--upsert takes no --partition-by"),
        ("--table b/c --value-format json", "--value-format needs --schema FILE"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(run, options, said):
    refused = run("offload", "--topic", "a", *options.split())
    assert refused.status == 2
    assert said in refused.err


@pytest.mark.parametrize(("job", "needed"), [("offload", "--table b/c"), ("load", "--from . --format csv --name n")])
def test_a_broker_that_is_away_is_told_before_spark_starts(run, job, needed, monkeypatch):
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP", "127.0.0.1:1")
    done = run(job, "--topic", "a", *needed.split())
    assert done.status == 1
    assert done.err.startswith(f"{job}: no broker can be reached; tried 127.0.0.1:1 (")


def test_files_that_are_not_there_are_told_before_spark_starts(run, monkeypatch):
    for name in ("SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    done = run("load", "--topic", "a", "--from", "/not/there", "--format", "csv", "--name", "n")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("load: [SPARKLOG_NOT_LOADED] /not/there is not there")
    database = "--jdbc jdbc:postgresql://127.0.0.1:1/d --jdbc-jar /not/there.jar"
    done = run("offload", "--topic", "a", *database.split())
    assert (done.status, "offload: --jdbc-jar: there is no file /not/there.jar" in done.err) == (1, True)


@pytest.mark.usefixtures("without_spark")
def test_where_spark_is_not_installed_it_says_what_to_type(run):
    done = run("offload", "--topic", "a", "--table", "b")
    assert (done.status, done.out) == (1, "")
    assert "this command needs pyspark; type: pip install '" in done.err
    assert "[spark]'" in done.err
    assert "type: pip install '" in run("offload", "--help").out


def completed(line):
    *args, incomplete = line.split(" ")
    found = BashComplete(cli, {}, "sparklog", "_SPARKLOG_COMPLETE").get_completions(args, incomplete)
    return [each.value if each.type == "plain" else each.type for each in found]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("offload --to", ["--topic"]),
        ("load --fr", ["--from"]),
        ("load --topic clicks --from /data --fo", ["--format"]),
        ("load --format ", ["parquet", "delta", "csv", "json", "segments"]),
        ("load --via=p", ["produce"]),
        ("load --output ", ["text", "json"]),
        ("offload --topic a --topic b --to", ["--topic"]),
        ("load --topic a --to", []),
        ("offload --once --ev", ["--every", "--evolve"]),
        ("offload --jdbc-password-file ", ["file"]),
        ("offload --schema ", ["file"]),
        ("offload --command-c", ["--command-config"]),
        ("offload --boot", ["--bootstrap", "--bootstrap-server"]),
        ("load x", []),
    ],
)
def test_the_options_of_a_job_and_their_choices_are_completed(line, found):
    assert completed(line) == found


@pytest.mark.integration
def test_the_topics_of_a_job_are_those_of_the_cluster_that_its_line_names(monkeypatch, bootstrap, make, topic):
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP", "127.0.0.1:1")
    found = make()
    assert completed(f"load --bootstrap {bootstrap} --topic {topic}") == [found]
    assert completed(f"load --topic {topic}") == []


@pytest.mark.usefixtures("without_spark")
def test_where_spark_is_not_installed_no_option_of_a_job_is_completed(capfd):
    assert completed("offload --to") == []
    assert capfd.readouterr() == ("", "")


class TestInstalled:
    @pytest.fixture(autouse=True)
    def _prefix(self, monkeypatch, tmp_path):
        monkeypatch.setattr(jobs, "checkout", lambda: None)
        monkeypatch.setattr(sys, "prefix", str(tmp_path))

    def test_a_job_is_found_among_the_files_of_the_package(self, tmp_path):
        there = tmp_path / "share" / "sparklog" / "jobs" / "offload.py"
        there.parent.mkdir(parents=True)
        there.touch()
        assert jobs.path_of("offload") == there

    def test_a_job_that_is_not_there_is_told(self, tmp_path):
        with pytest.raises(ConfigError, match=f"the job 'offload' is not in .*{tmp_path}/share/sparklog/jobs"):
            jobs.path_of("offload")
        assert completed("offload --to") == []
