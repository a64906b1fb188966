"""Where a database is, and what is never said of it."""

from typing import Any

import pytest
from py4j.protocol import Py4JError

from sparklog.errors import DataSourceError
from sparklog.spark.batch.unattended import passes
from sparklog.spark.lake.places.jdbc import Database
from sparklog.spark.lake.places.jdbc_table import JdbcTable

URL = "jdbc:postgresql://h:5432/db"


def test_a_database_shows_neither_password_nor_parameters():
    database = Database(f"{URL}?ssl=true&reWriteBatchedInserts=true", "me", "sesame")
    assert "sesame" not in repr(database)
    assert database.shown == URL
    assert database.said(ValueError("no,\n sesame")) == "no, ***"
    assert database.driver_class == "org.postgresql.Driver"


@pytest.mark.parametrize(
    "url",
    [
        f"{URL}?user=me&password=x",
        f"{URL}?ssl=true&PassWord = x",
        f"{URL}?sslpassword=x",
        f"{URL};pwd=x",
        "jdbc:postgresql://me:x@h/db",
        "jdbc:oracle:thin:me/x@h:1521",
    ],
)
def test_a_url_with_a_password_is_refused(url):
    with pytest.raises(DataSourceError, match="must have no password in it") as refused:
        Database(url)
    assert url not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "why"), [("postgresql://h/db", "no JDBC URL"), ("jdbc:other://h/db", "name the class")]
)
def test_what_is_no_url_and_what_has_no_known_driver_is_refused(url, why):
    with pytest.raises(DataSourceError, match=why):
        Database(url)
    if url.startswith("jdbc"):
        assert Database(url, driver="com.example.Driver").driver_class == "com.example.Driver"


class Said:
    """An exception of the JVM."""

    def __init__(self, text, state=None, cause=None):
        self._text, self._state, self._cause = text, state, cause

    def getMessage(self):
        return self._text

    def getCause(self):
        return self._cause

    def getSQLState(self):
        if self._state is None:
            raise Py4JError("no such method")
        return self._state


def failed(exception):
    error: Any = RuntimeError("by Spark")
    error._origin = exception
    return Database(URL).failure(error, "SPARKLOG_NO_TABLE", "has no table t")


@pytest.mark.parametrize("state", ["08001", "08006", "08003", "57P01", "57P03", "53300"])
def test_a_database_that_is_away_passes_by_itself(state):
    refused = Said("Connection to h refused", state, Said("Connection refused"))
    error = failed(Said("Job aborted", None, refused))
    assert passes(error)
    assert str(error) == f"[SPARKLOG_DATABASE_UNREACHABLE] {URL} cannot be reached: Connection refused"


@pytest.mark.parametrize("state", ["28P01", "42501", "3D000", "08004", "08P01", None])
def test_one_that_refuses_what_it_is_asked_does_not(state):
    error = failed(Said("no", state))
    assert not passes(error)
    assert str(error) == f"[SPARKLOG_NO_TABLE] {URL} has no table t: no"


def test_tables_of_other_databases_schemas_and_users_are_others():
    url = "jdbc:postgresql://h/db"
    targets = [
        JdbcTable(Database(url, "ann"), "clicks"),
        JdbcTable(Database(url, "bob"), "clicks"),
        JdbcTable(Database(f"{url}?currentSchema=a", "ann"), "clicks"),
        JdbcTable(Database(f"{url}?currentSchema=b", "ann"), "clicks"),
        JdbcTable(Database(url, "ann"), "public.clicks"),
    ]
    assert len({each.identity for each in targets}) == len(targets)
    assert targets[-1].identity == JdbcTable(Database(url, "bob"), "public.clicks").identity
