"""Every command reaches a cluster in the same way, and a cluster that asks for TLS and passwords too."""

import json
import re

import click
import pytest

from sparklog.cli.main import cli
from sparklog.cli.rights import RIGHTS_OF_COMMANDS
from sparklog.client.admin.admin import Admin
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.local.ports import free_port
from sparklog.security.access import Operation, ResourceType
from sparklog.security.acl.binding import AclBinding, AclFilter
from sparklog.security.acl.entry import AclEntry
from sparklog.security.acl.pattern import PatternType, ResourcePattern
from sparklog.testing.secured import ADMIN

COMMANDS = (
    "topic list",
    "topic describe commanded",
    "topic alter commanded --config retention.ms=86400000",
    "consume commanded",
    "group list",
    "broker list",
    "broker describe 0",
    "cluster describe",
    "config describe --broker 0",
    "acl list",
    "quota list",
    "compact status",
    "backup run commanded --dest {directory}/backup",
    "restore {directory}/backup --topic commanded --to restored",
    "erase commanded --keys {directory}/keys --yes --report {directory}/report",
    "txn list",
    "writes list",
    "log dirs",
    "topic delete restored --yes",
)


JOBS = {
    "backup run t --dest {directory}/backup": "sparklog-backup",
    "restore {directory}/backup": "sparklog-restore",
    "erase t --keys {directory}/keys --yes --report {directory}/report": "sparklog-erase",
    "topic list": "sparklog",
}
"""Commands and their client ids, as docs/quotas.md has them."""


class Asked(Exception):
    """Of the cluster, by a client of this id."""


@pytest.mark.parametrize("settings", [{}, {"client.id": "mine"}])
@pytest.mark.parametrize("command", JOBS)
def test_jobs_have_client_ids_to_be_held_by(command, settings, tmp_path, monkeypatch):
    def opened(_, config):
        raise Asked(config.client_id)

    # not the name in its module: what is imported meanwhile would keep the replacement
    monkeypatch.setattr(ClusterMetadata, "__init__", opened)
    (tmp_path / "keys").write_text("k\n")
    (tmp_path / "backup").mkdir()
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
    words = [*command.format(directory=tmp_path).split(), "--command-config", str(file), "--bootstrap", "127.0.0.1:1"]
    with pytest.raises(Asked) as asked:
        cli(words, standalone_mode=False)
    assert str(asked.value) == settings.get("client.id", JOBS[command])


OPERATIONS = (
    ("backup run operated --dest {directory}/backup", "READ topic operated, DESCRIBE_CONFIGS topic operated"),
    (
        "restore {directory}/backup --to operated-restored --topic operated --no-groups",
        "CREATE topic operated-, WRITE topic operated-, ALTER topic operated-, DESCRIBE_CONFIGS topic operated-,"
        " DESCRIBE cluster kafka-cluster",
    ),
    ("erase operated --keys {directory}/keys --yes --report {directory}/report", "DELETE topic operated"),
    ("compact run operated-compacted", "ALTER topic operated-compacted"),
    ("topic delete operated-made --yes", "DELETE topic operated-made"),
    ("cluster elect", "ALTER cluster kafka-cluster"),
    ("quota list", "DESCRIBE_CONFIGS cluster kafka-cluster"),
)
MORE_OPERATIONS = (
    ("compact status operated-compacted", "DESCRIBE topic operated-compacted"),
    ("perf e2e operated --records 1", "READ topic operated, WRITE topic operated"),
    ("topic create operated-new", "CREATE topic operated-new, DESCRIBE topic operated-new"),
    ("topic describe operated", "DESCRIBE topic operated, DESCRIBE_CONFIGS topic operated"),
    ("topic alter operated --config retention.ms=8640000", "DESCRIBE topic operated, ALTER_CONFIGS topic operated"),
    ("topic alter operated --partitions 2", "ALTER topic operated"),
    ("group describe operators", "DESCRIBE group operators, DESCRIBE topic operated"),
    ("group reset-offsets operators --topic operated --to latest --yes", "READ group operators, READ topic operated"),
    ("group delete operators --yes", "DELETE group operators"),
    ("broker list", "DESCRIBE cluster kafka-cluster"),
    ("cluster reassign --list", "DESCRIBE cluster kafka-cluster"),
    ("config describe --topic operated", "DESCRIBE_CONFIGS topic operated"),
    ("config alter --topic operated --config retention.ms=8640000", "ALTER_CONFIGS topic operated"),
    ("txn producers operated", "READ topic operated"),
    ("log dirs", "DESCRIBE cluster kafka-cluster"),
    ("user list", "DESCRIBE cluster kafka-cluster"),
    ("user delete nobody --yes", "ALTER cluster kafka-cluster"),
    ("token create --owner User:admin", "CREATE_TOKENS user User:admin"),
    ("acl list", "DESCRIBE cluster kafka-cluster"),
    ("acl remove --topic operated --yes", "ALTER cluster kafka-cluster"),
    ("quota set --user nobody producer_byte_rate=1e9", "ALTER_CONFIGS cluster kafka-cluster"),
    ("quota remove --user nobody", "ALTER_CONFIGS cluster kafka-cluster"),
)
"""Commands, and what docs/security.md says that they need."""


PARTIAL = {
    "topic list": "topics",
    "topic describe --under-replicated": "topics",
    "group list": "groups",
    "txn list": "transactional ids",
    "txn find-hanging": "topics",
    "writes list": "transactional ids",
    "compact status": "topics",
}
"""Lists, and of what there may be more for a user who may not describe all of them."""
SEEING_ALL = {
    "topics": "DESCRIBE topic *",
    "groups": "DESCRIBE group *",
    "transactional ids": "DESCRIBE transactional_id *",
}


@pytest.fixture
def granted(secured, operator):
    """``granted(rights)``: the operator has these, and no others."""

    def grant(rights):
        with Admin(secured.client(ADMIN)) as admin:
            admin.delete_acls([AclFilter(principal=f"User:{operator}")])
            admin.create_acls([_binding(*right.split()) for right in filter(None, rights.split(", "))])

    return grant


def _binding(operation, kind, name):
    pattern = PatternType.LITERAL if kind == "cluster" or name == "*" else PatternType.PREFIXED
    resource = ResourcePattern(ResourceType[kind.upper()], name, pattern)
    return AclBinding(resource, AclEntry("User:operator", "*", Operation[operation]))


@pytest.fixture
def reached(secured, run, monkeypatch):
    """``run``, with the administrator's settings in the environment."""
    monkeypatch.setenv("SPARKLOG_COMMAND_CONFIG", str(secured.client_file(ADMIN)))
    return run


@pytest.mark.integration
def test_every_command_reaches_a_secured_cluster(reached, tmp_path):
    (tmp_path / "keys").write_text("forgotten\n")
    assert reached("topic", "create", "commanded").err == ""
    assert reached("produce", "commanded", stdin=b"hello\n").status == 0
    for command in COMMANDS:
        done = reached(*command.format(directory=tmp_path).split())
        assert done.status == 0, (command, done)
        assert "hello" in done.out or command != "consume commanded"


@pytest.mark.integration
@pytest.mark.parametrize("operations", [OPERATIONS, pytest.param(MORE_OPERATIONS, marks=pytest.mark.slow)])
def test_an_operator_needs_what_the_page_says(secured, run, granted, tmp_path, operations):
    (tmp_path / "keys").write_text("forgotten\n")
    admin, operator = (("--command-config", secured.client_file(user)) for user in (ADMIN, "operator"))
    run("topic", "create", "operated", *admin)
    run("topic", "create", "operated-compacted", "--config", "cleanup.policy=compact", *admin)
    run("topic", "create", "operated-made", *admin)
    run("produce", "operated", *admin, stdin=b"hello\n")
    run("group", "reset-offsets", "operators", "--topic", "operated", "--to", "earliest", "--yes", *admin)
    for command, rights in operations:
        words = command.format(directory=tmp_path).split()
        granted("")
        refused = run(*words, *operator)
        assert refused.status == 1, command
        assert "AUTHORIZATION_FAILED" in refused.err, command
        assert refused.err.count("docs/security.md") == 1, command
        assert " needs " in refused.err, command
        granted(rights)
        done = run(*words, *operator)
        assert done.status == 0, (command, done)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("command", "right"),
    [("consume", "READ on the topics, and with --group on the group"), ("produce", "WRITE on the topic")],
)
@pytest.mark.parametrize("rights", ["", "DESCRIBE topic written"])
def test_who_may_not_read_or_write_is_told_the_right(secured, run, granted, command, right, rights):
    admin, operator = (("--command-config", secured.client_file(user)) for user in (ADMIN, "operator"))
    run("produce", "written", *admin, stdin=b"hello\n")
    granted(rights)
    done = run(command, "written", *operator, stdin=b"hello\n")
    assert (done.status, done.out) == (1, "")
    assert f"the user needs {right}: see docs/security.md" in done.err


def test_every_command_that_may_be_refused_has_its_rights():
    def paths(command, path):
        if isinstance(command, click.Group):
            context = click.Context(command)
            found = ((name, command.get_command(context, name)) for name in command.list_commands(context))
            return {each for name, inner in found for each in paths(inner, (*path, name))}
        return {" ".join(path)} if any(each.name == "bootstrap" for each in command.params) else set()

    assert paths(cli, ()) == RIGHTS_OF_COMMANDS.keys() | {"backup run", "restore", "erase"}
    words = {word for rights in RIGHTS_OF_COMMANDS.values() for word in re.findall(r"\b[A-Z][A-Z_]+\b", rights)}
    assert words <= {each.name for each in Operation}


@pytest.mark.integration
def test_a_list_that_may_lack_something_says_so(secured, run, granted):
    admin, operator = (("--command-config", secured.client_file(user)) for user in (ADMIN, "operator"))
    for command, what in PARTIAL.items():
        words = command.split()
        assert run(*words, *admin).err == ""
        granted("")
        done = run(*words, *operator)
        assert (done.status, done.err) == (0, f"only {what} that this user may describe are listed\n"), command
        granted("DESCRIBE cluster kafka-cluster")  # which has brokers list all groups, and nothing else
        assert ("may describe" in run(*words, *operator).err) is (what != "groups"), command
        granted(SEEING_ALL[what])
        assert "may describe" not in run(*words, *operator).err, command


@pytest.mark.integration
def test_what_is_looked_at_may_be_a_part_and_that_is_said(secured, run, granted):
    admin, operator = (("--command-config", secured.client_file(user)) for user in (ADMIN, "operator"))
    granted("")
    assert "only topics that this user may describe are counted\n" in run("cluster", "describe", *operator).err
    assert "may describe" not in run("cluster", "describe", *admin).err
    seen = "that this user may describe were looked at"
    assert f"note: only topics, groups, transactional ids {seen}" in run("doctor", *operator).out
    assert "may describe" not in run("doctor", *admin).out
    granted("DESCRIBE cluster kafka-cluster")
    assert f"note: only topics, transactional ids {seen}" in run("doctor", *operator).out
    assert "only topics that this user may describe are counted\n" in run("cluster", "describe", *operator).err
    granted("ALTER cluster kafka-cluster")
    elected = run("cluster", "elect", "--unclean", "--yes", *operator)
    assert (elected.status, elected.err) == (0, "only topics that this user may describe are looked at\n")
    granted("")
    top = run("top", "--once", "--interval", "0.01", *operator)
    assert "only topics and groups that this user may describe are listed\n" in top.err
    assert top.out.splitlines()[1].split("\t")[:2] == ["0", "up"]  # it answers, and does not tell this user its bytes


@pytest.mark.integration
def test_of_a_group_it_is_said_that_topics_may_be_left_out(secured, run, granted):
    """Brokers tell of no offset in a topic that the user may not describe, nor that there is one."""
    admin, operator = (("--command-config", secured.client_file(user)) for user in (ADMIN, "operator"))
    run("produce", "half-hidden", *admin, stdin=b"hello\n")
    to = ("--topic", "half-hidden", "--to", "earliest", "--yes")
    assert run("group", "reset-offsets", "half-seen", *to, *admin).status == 0
    granted("READ group half-seen")
    said = "only topics that this user may describe are looked at\n"
    described = run("group", "describe", "half-seen", *operator)
    assert (described.status, described.out, described.err) == (0, "group half-seen: Empty, 0 members, lag 0\n", said)
    reset = run("group", "reset-offsets", "half-seen", "--to", "latest", "--yes", *operator)
    assert (reset.status, reset.err.startswith(said)) == (2, True)
    assert run("group", "describe", "half-seen", *admin).err == ""


@pytest.mark.integration
def test_the_cluster_is_surveyed_by_the_listener_that_the_file_is_for(secured, reached):
    done = reached("takeover", "check", "--zookeeper", secured.spec.zookeeper, "--output", "json")
    assert "could not be asked" not in done.out
    assert json.loads(done.out)


@pytest.mark.integration
def test_brokers_that_are_named_count_before_those_in_the_file(secured, reached):
    free = free_port()
    done = reached("topic", "list", "--bootstrap", f"127.0.0.1:{free}")
    assert done.status == 1
    assert f"127.0.0.1:{free}" in done.err
    assert secured.address not in done.err


@pytest.mark.integration
def test_a_command_without_the_file_is_told_of_it(secured, run):
    done = run("topic", "list", "--bootstrap", secured.address)
    assert done.status == 1
    assert "--command-config FILE" in done.err


@pytest.mark.integration
def test_a_password_that_is_wrong_is_not_shown(secured, run, tmp_path):
    settings = tmp_path / "client.properties"
    told = secured.client(ADMIN, "a-wrong-guess")
    settings.write_text("".join(f"{name}={value}\n" for name, value in told.items()))
    done = run("topic", "list", "--command-config", settings)
    assert done.status == 1
    assert "invalid credentials" in done.err
    assert "a-wrong-guess" not in done.err
