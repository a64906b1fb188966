"""An offload to a real PostgreSQL: every record once, whatever happens, and no password anywhere."""

import base64
import json
import logging
import os
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from fix_programs import lack_of

from sparklog.client import NewTopic, Producer
from sparklog.errors import ConfigError, DataSourceError
from sparklog.local.jars import is_fetched, jar_set
from sparklog.local.ports import free_port
from sparklog.spark.batch.offload import Offload, OffloadOptions, run
from sparklog.spark.batch.unattended import passes
from sparklog.spark.lake.destination import Overtaken
from sparklog.spark.lake.places.jdbc import Connection, Database
from sparklog.spark.lake.places.jdbc_table import JdbcDestination, JdbcIntake, JdbcTable
from sparklog.spark.lake.places.staging import StageRanges
from sparklog.testing.clock import ManualClock
from sparklog.testing.eventually import eventually
from sparklog.testing.postgresql import PASSWORD, PostgreSql, find_postgresql

pytestmark = [pytest.mark.peer, pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(600)]
JOB = Path(__file__).parents[4] / "jobs" / "offload.py"


@pytest.fixture(autouse=True)
def _few_rows(interpreted):
    """The queries here are of a few rows."""


@pytest.fixture(scope="module")
def server():
    programs = find_postgresql()
    if programs is None:
        pytest.skip(
            lack_of("psql") or "PostgreSQL cannot be run here; type: sudo apt-get install -y postgresql util-linux"
        )
    with PostgreSql(programs) as running:
        yield running


@pytest.fixture(scope="module")
def driver(spark):
    """Its JDBC driver, in the session's JVM."""
    if not is_fetched("postgresql"):
        pytest.skip("no JAR of PostgreSQL; type: python -m sparklog.local.jars postgresql")
    (jar,) = jar_set("postgresql")
    spark.sql(f"ADD JAR {jar}")
    return jar


@pytest.fixture
def database(server, driver):
    return Database(server.url, server.user, PASSWORD)


@pytest.fixture
def table(server, topic):
    """In a schema of this test's own."""
    schema = f"t_{topic[-40:].lower()}".replace("-", "_")
    server.psql(f"create schema {schema}")
    return f"{schema}.records"


@pytest.fixture
def make(admin, topic):
    def made(suffix="", partitions=2):
        admin.create_topics([NewTopic(topic + suffix, partitions, 1, {"retention.ms": "-1"})])
        return topic + suffix

    return made


@pytest.fixture
def options(cluster, database, table):
    def chosen(*topics, **more):
        target = JdbcTable(more.pop("database", database), more.pop("table", table))
        return OffloadOptions(cluster.bootstrap_servers, topics, target, **more)

    return chosen


@pytest.fixture
def send(cluster):
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:

        def sent(topic, start, count):
            for number in range(start, start + count):
                headers = [("number\0", b"%d" % number), ("none", None)] if number % 2 else []
                producer.send(
                    topic,
                    b"\0value %d" % number if number % 5 else None,
                    key=b"key %d\0" % number if number % 3 else None,
                    partition=number % 2,
                    timestamp=number * 3_600_000,
                    headers=headers,
                )
            producer.flush()

        yield sent


COLUMNS = (
    'encode(key, \'hex\'), encode(value, \'hex\'), headers, topic, "partition", "offset", "timestampMs",'
    ' (extract(epoch from "timestamp") * 1000)::bigint, "timestampType"'
)


def in_table(server, table):
    return server.psql(f'select {COLUMNS} from {table} order by topic, "partition", "offset"')


def in_log(spark, cluster, *topics):
    """What the table is to hold, by the session's own source."""
    frame = (
        spark.read.format("sparklog")
        .options(subscribe=",".join(topics), includeHeaders="true")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("kafka.isolation.level", "read_committed")
        .load()
    )
    return [
        [
            "" if each.key is None else each.key.hex(),
            "" if each.value is None else each.value.hex(),
            _headers(each.headers),
            each.topic,
            str(each.partition),
            str(each.offset),
            *[str(each.ms)] * 2,
            str(each.timestampType),
        ]
        for each in frame.selectExpr("*", "unix_millis(timestamp) as ms")
        .orderBy("topic", "partition", "offset")
        .collect()
    ]


def _headers(headers):
    if not headers:
        return ""
    told = [{"key": each.key, "value": each.value and base64.b64encode(each.value).decode()} for each in headers]
    return json.dumps(told, separators=(",", ":"))


def staging_tables(server, table):
    schema = table.split(".")[0]
    sql = "select tablename from pg_tables where tablename like 'sparklog_staging%'"
    return [name for (name,) in server.psql(f"{sql} and schemaname = '{schema}'")]


def test_the_table_has_what_the_log_has_and_a_rerun_adds_nothing(spark, cluster, server, table, options, make, send):
    name = make()
    send(name, 0, 60)
    (first,) = run(spark, options(name))
    assert (first.records, first.version, len(first.ages_s)) == (60, 1, 2)
    assert first.nbytes > 60 * 10
    assert run(spark, options(name)) == []
    send(name, 60, 30)
    (second,) = run(spark, options(name))
    assert (second.records, second.version) == (30, 2)
    assert in_table(server, table) == in_log(spark, cluster, name)
    assert staging_tables(server, table) == []


def test_of_two_jobs_one_wins(spark, cluster, server, table, options, make, send, monkeypatch):
    name, write = make(), JdbcIntake.write
    send(name, 0, 20)

    def overtaken(self, *arguments):
        outcomes = write(self, *arguments)
        monkeypatch.setattr(JdbcIntake, "write", write)
        run(spark, options(name))
        return outcomes

    for _ in range(2):  # the first commit of the table, and another one
        monkeypatch.setattr(JdbcIntake, "write", overtaken)
        with pytest.raises(Overtaken, match="another job has offloaded to table"):
            run(spark, options(name))
        assert in_table(server, table) == in_log(spark, cluster, name)
        assert staging_tables(server, table) == []
        send(name, 20, 10)


def test_of_two_first_jobs_with_other_topics_one_wins(spark, server, table, options, make, send, monkeypatch):
    one, two, write = make("-1"), make("-2"), JdbcIntake.write
    send(one, 0, 4)
    send(two, 0, 4)

    def overtaken(self, *arguments):
        monkeypatch.setattr(JdbcIntake, "write", write)
        run(spark, options(two))
        return write(self, *arguments)

    monkeypatch.setattr(JdbcIntake, "write", overtaken)
    with pytest.raises(Overtaken):
        run(spark, options(one))
    assert {row[3] for row in in_table(server, table)} == {two}
    with pytest.raises(DataSourceError, match=r"say that topics are added \(--add-topics\)"):
        run(spark, options(one))
    run(spark, options(one, add_topics=True))
    assert len(in_table(server, table)) == 8


def test_attempts_that_died_ran_twice_or_come_late_are_left_out(
    spark, cluster, server, table, options, make, send, monkeypatch
):
    name, write = make(), JdbcIntake.write
    send(name, 0, 20)

    def disturbed(self, *arguments):
        outcomes = write(self, *arguments)
        staging = self._source
        columns = 'key, value, headers, topic, "partition", "offset", "timestamp", "timestampMs", "timestampType"'
        for attempt, tail in ((1000001, ""), (1000002, 'and "sparklogSummary" is null')):  # a whole one, and half a one
            server.psql(
                f'insert into {staging} select {columns}, "sparklogTask", {attempt}, "sparklogSummary" from {staging}'
                f' where "sparklogAttempt" < 1000000 {tail}'
            )
        return outcomes

    monkeypatch.setattr(JdbcIntake, "write", disturbed)
    (commit,) = run(spark, options(name))
    assert commit.records == 20
    assert in_table(server, table) == in_log(spark, cluster, name)


@pytest.mark.parametrize("step", ["_check", "_take_rows", "_store", "lost"])
def test_a_job_that_dies_in_its_commit_leaves_nothing_or_all(
    spark, cluster, server, table, options, make, send, monkeypatch, step
):
    name = make()
    send(name, 0, 10)
    run(spark, options(name))
    send(name, 10, 10)

    class Killed(Exception):
        """As by a signal, which nobody catches."""

    def die(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(JdbcDestination if step == "lost" else JdbcIntake, "drop" if step == "lost" else step, die)
        with pytest.raises(Killed):
            run(spark, options(name))
    assert len(in_table(server, table)) == (20 if step == "lost" else 10)
    assert len(run(spark, options(name))) == (0 if step == "lost" else 1)
    assert in_table(server, table) == in_log(spark, cluster, name)
    assert len(staging_tables(server, table)) == 1
    clock = ManualClock()
    clock.set_wall(int(staging_tables(server, table)[0].split("_")[2]) * 1000 + 86_400_000)
    with closing(JdbcDestination(spark, options(name).target, clock)) as next_job:
        next_job.prepare()
        assert len(staging_tables(server, table)) == 1
    clock.advance(1)
    with closing(JdbcDestination(spark, options(name).target, clock)) as next_job:
        next_job.prepare()
    assert staging_tables(server, table) == []


def test_a_task_that_cannot_read_fails_the_job_and_leaves_nothing(
    spark, server, options, make, send, table, monkeypatch
):
    name = make()
    send(name, 0, 10)

    def broken(self, ranges):
        return StageRanges(self, tuple(each._replace(end=each.end + 5) for each in ranges))

    monkeypatch.setattr("sparklog.spark.lake.places.jdbc_table.StageRanges", broken)
    with pytest.raises(DataSourceError, match="SPARKLOG_"):
        run(spark, options(name))
    assert in_table(server, table) == []
    assert staging_tables(server, table) == []


def test_a_table_with_fewer_columns_takes_those_and_one_of_others_is_refused(spark, server, table, options, make, send):
    name = make()
    send(name, 0, 10)
    server.psql(f'create table {table} (id serial, "offset" bigint, value bytea)')
    run(spark, options(name))
    assert server.psql(f'select count(*), max("offset"), max(id) from {table}') == [["10", "4", "10"]]
    server.psql(f"create table {table}_x (a int)")
    with pytest.raises(DataSourceError, match="has none of the columns"):
        run(spark, options(name, table=f"{table}_x"))
    server.psql(f"create table {table}_y (value bytea); insert into {table}_y values ('x')")
    with pytest.raises(DataSourceError, match="somebody else has written them"):
        run(spark, options(name, table=f"{table}_y"))
    server.psql(f"create table {table}_z (value bytea, must int not null)")
    with pytest.raises(DataSourceError, match="has a name that is too long"):
        run(spark, options(name, table="x" * 64))
    with pytest.raises(DataSourceError, match='null value in column "must"') as refused:
        run(spark, options(name, table=f"{table}_z"))
    assert PASSWORD not in str(refused.value)


def test_a_topic_made_again_is_refused(spark, admin, options, make, send):
    name = make()
    send(name, 0, 4)
    run(spark, options(name))
    admin.delete_topics([name])
    eventually(lambda: name not in {each.name for each in admin.list_topics()})
    make()
    with pytest.raises(DataSourceError, match="which was deleted"):
        run(spark, options(name))


def test_a_user_that_may_make_no_table_is_told_so(spark, server, database, table, options, make, send):
    """Nothing is made in its name; once it may, the same job has all."""
    schema, _, _ = table.partition(".")
    server.psql(f"create role {schema} login password '{PASSWORD.replace(chr(39), chr(39) * 2)}'")
    server.psql(f"grant usage on schema {schema} to {schema}")
    name = make()
    send(name, 0, 6)
    chosen = options(name, database=replace(database, user=schema))
    with pytest.raises(DataSourceError, match=f"permission denied for schema {schema}") as refused:
        run(spark, chosen)
    assert PASSWORD not in str(refused.value)
    assert server.psql(f"select count(*) from pg_tables where schemaname = '{schema}'") == [["0"]]
    server.psql(f"grant create on schema {schema} to {schema}")
    (commit,) = run(spark, chosen)
    assert commit.records == 6


def test_times_without_a_date_are_null_and_their_milliseconds_are_there(spark, cluster, server, table, options, make):
    name = make()
    times = [0, 253_402_300_799_999, 253_402_300_800_000, 9_000_000_000_000_000]
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for each in times:
            producer.send(name, b"v", partition=0, timestamp=each)
        producer.flush()
    run(spark, options(name))
    told = server.psql(f'select "timestampMs", "timestamp" is null from {table} order by 1')
    assert told == [[str(each), "f" if each < times[2] else "t"] for each in times]


def test_a_commit_of_some_partitions_goes_on_where_it_was(spark, cluster, server, table, options, make, send):
    name = make()
    send(name, 0, 40)
    with closing(Offload(spark, options(name, commit_bytes=800))) as offload:
        commits = list(offload.commits())
    assert len(commits) > 1
    assert in_table(server, table) == in_log(spark, cluster, name)
    offsets = f"{table.split('.')[0]}.sparklog_offsets"
    stored = server.psql(f"select topic, partition_number, next_offset from {offsets} where topic = '{name}'")
    assert sorted(stored) == [[name, "0", "20"], [name, "1", "20"]]


def test_a_server_that_has_ended_the_connection_is_come_back_to(spark, server, options, make, send):
    """It was started again, or takes the connection for idle."""
    name = make()
    send(name, 0, 4)
    with closing(Offload(spark, options(name))) as offload:
        list(offload.commits())
        server.psql(
            "select pg_terminate_backend(pid) from pg_stat_activity where backend_type = 'client backend'"
            " and pid <> pg_backend_pid()"
        )
        with pytest.raises(DataSourceError, match=r"SPARKLOG_DATABASE_UNREACHABLE.*cannot be reached") as ended:
            list(offload.commits())
    assert passes(ended.value)
    assert run(spark, options(name)) == []


def test_a_server_that_is_away_is_come_back_to_and_one_that_refuses_the_user_is_not(spark, server, database, options):
    away = replace(database, url=f"jdbc:postgresql://127.0.0.1:{free_port()}/warehouse")
    with pytest.raises(DataSourceError, match=r"SPARKLOG_DATABASE_UNREACHABLE.*cannot be reached") as told:
        run(spark, options("t", database=away))
    assert passes(told.value)
    for wrong in (replace(database, user="nobody"), replace(database, password=None)):
        with pytest.raises(DataSourceError, match=r"SPARKLOG_NO_TABLE.*does not let this job in") as told:
            run(spark, options("t", database=wrong))
        assert not passes(told.value)


class TestPasswords:
    def test_a_url_with_a_password_is_refused(self, server):
        for url in (f"{server.url}?user=me&password=x", "jdbc:postgresql://me:x@h/db", f"{server.url}?sslpassword=x"):
            with pytest.raises(DataSourceError, match="must have no password in it") as refused:
                Database(url)
            assert "=x" not in str(refused.value)

    def test_it_is_shown_by_nothing(self, spark, server, database, options, make, send, caplog):
        assert PASSWORD not in repr(database)
        name = make()
        send(name, 0, 4)
        with caplog.at_level(logging.DEBUG):
            run(spark, options(name))
        assert PASSWORD not in caplog.text
        store = spark._jsparkSession.sharedState().statusStore()
        executions = store.executionsList()
        plans = "".join(executions.apply(each).physicalPlanDescription() for each in range(executions.size()))
        assert "SaveIntoDataSourceCommand" in plans
        assert PASSWORD not in plans

    def test_a_wrong_one_is_not_told(self, spark, server, options, driver):
        wrong = Database(server.url, server.user, "wrong secret")
        with pytest.raises(DataSourceError, match="password authentication failed") as refused:
            run(spark, options("t", database=wrong))
        assert "wrong secret" not in str(refused.value)
        assert refused.value.__suppress_context__


def test_a_driver_that_is_not_there_is_named(spark, server):
    with pytest.raises(ConfigError, match=r"no JDBC driver com\.example\.Driver"):
        Connection(spark, Database(server.url, driver="com.example.Driver"))
    with pytest.raises(DataSourceError, match="name the class of the JDBC driver"):
        Database("jdbc:other://h/db")
    with pytest.raises(DataSourceError, match="no JDBC URL"):
        Database("postgresql://h/db")


def test_the_job_takes_its_password_from_the_environment_or_a_file(
    cluster, server, driver, table, make, send, tmp_path, quick_spark
):
    name = make()
    send(name, 0, 10)
    secret = tmp_path / "secret"
    secret.write_text(f"{PASSWORD}\n")
    command = [sys.executable, str(JOB), "--bootstrap-server", cluster.bootstrap_servers, "--topic", name]
    command += ["--jdbc", server.url, "--jdbc-table", table, "--jdbc-user", server.user, "--jdbc-jar", str(driver)]
    environ = {**os.environ, **quick_spark, "WAREHOUSE_PASSWORD": PASSWORD}
    for arguments, said in (
        (["--jdbc-password-env", "WAREHOUSE_PASSWORD"], "10 records"),
        (["--jdbc-password-file", str(secret)], "nothing new"),
    ):
        done = subprocess.run(
            [*command, *arguments], env=environ, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        (line,) = done.stdout.splitlines()
        assert said in line
        assert PASSWORD not in done.stdout + done.stderr
    assert len(in_table(server, table)) == 10
    missing = subprocess.run(
        [*command, "--jdbc-password-env", "NOT_THERE"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "there is no environment variable NOT_THERE" in missing.stderr
