"""A database behind a JDBC URL, through ``java.sql`` in the session's JVM: what the driver of an offload asks of it.

Invariant: a password is in no URL, and in no text that leaves this module. See ``docs/adr/0036-jdbc.md``.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError

from sparklog.errors import ConfigError, DataSourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVERS = {"postgresql": "org.postgresql.Driver"}
"""The class of the driver by what follows ``jdbc:`` in a URL."""
_SECRET = re.compile(
    r"[?;&][^=;&]*(pass|pwd|secret|token)[^=;&]*=|//[^/@?;]*:[^/@?;]*@|:[^/@:?;]+/[^/@?;]+@", re.IGNORECASE
)
"""A parameter, ``//USER:PASSWORD@`` or Oracle's ``:USER/PASSWORD@``."""
UNREACHABLE = "SPARKLOG_DATABASE_UNREACHABLE"
_AWAY = ("08", "57P", "53300")
"""How SQLStates begin of a server that does not answer, stops, starts, ends idle sessions, or has too many clients."""
_REFUSALS = ("08004", "08P01")
"""Of a server that does not take this client, or speaks another protocol: that stays so."""
_PATIENCE_S = 5
"""For a server to say that a connection is good."""
_READ_COMMITTED = 2
"""``java.sql.Connection.TRANSACTION_READ_COMMITTED``."""


@dataclass(frozen=True)
class Database:
    """Where it is, and as whom to come. Raises DataSourceError for a URL that is none, or has a password in it."""

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    driver: str | None = None
    """The class of the JDBC driver; known without it for PostgreSQL."""

    def __post_init__(self) -> None:
        if not re.match(r"jdbc:[a-z0-9]+:", self.url):
            raise DataSourceError(
                "SPARKLOG_INVALID_OPTION", "that is no JDBC URL, such as jdbc:postgresql://HOST:5432/DATABASE"
            )
        if _SECRET.search(self.url):
            raise DataSourceError(
                "SPARKLOG_INVALID_OPTION",
                "a JDBC URL is shown in logs and in Spark's plans, so it must have no password in it: give that in a"
                " file or in an environment variable",
            )
        if self.driver_class is None:
            raise DataSourceError(
                "SPARKLOG_INVALID_OPTION",
                f"name the class of the JDBC driver for {self.shown}; it is known for {', '.join(DRIVERS)} alone",
            )

    @property
    def driver_class(self) -> str | None:
        return self.driver or DRIVERS.get(self.url.split(":")[1])

    @property
    def shown(self) -> str:
        """The URL without its parameters."""
        return re.split(r"[?;]", self.url)[0]

    def login(self, jvm: Any) -> Any:
        """``user`` and ``password``, as ``java.util.Properties``.

        Py4J logs all that it sends at the level DEBUG. So it does not send the password: that goes by a file of its
        owner's alone, which is gone when this returns.
        """
        properties = jvm.java.util.Properties()
        if self.user is not None:
            properties.setProperty("user", self.user)
        if self.password is not None:
            units = memoryview(self.password.encode("utf-16-be")).cast("B")
            escaped = "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True))
            with tempfile.NamedTemporaryFile("w") as file:
                file.write(f"password={escaped}\n")
                file.flush()
                stream = jvm.java.io.FileInputStream(file.name)
                properties.load(stream)
                stream.close()
        return properties

    def said(self, error: Exception) -> str:
        """What went wrong, as the database or Spark says it, in one line."""
        causes = _causes(error)
        text = str(causes[-1].getMessage() or causes[-1].toString()) if causes else str(error)
        if self.password:
            text = text.replace(self.password, "***")
        return " ".join(text.split())[:500]

    def failure(self, error: Exception, code: str, what: str) -> DataSourceError:
        """The same as an error; of a database that is away with a code of its own, for that passes by itself."""
        if any(_says_away(each) for each in _causes(error)):
            code, what = UNREACHABLE, "cannot be reached"
        return DataSourceError(code, f"{self.shown} {what}: {self.said(error)}")


class Connection:
    """One connection. It belongs to one thread. Each statement is committed by itself, but in ``transaction``."""

    def __init__(self, spark: SparkSession, database: Database) -> None:
        """Raises ConfigError where the session has no such driver, DataSourceError where the database refuses."""
        jvm = getattr(spark, "_jvm", None)
        if jvm is None:
            raise ConfigError("a session of Spark Connect cannot offload: use a session with its own JVM")
        self._jvm: Any = jvm
        self._database = database
        self._dialect = self._jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(database.url)
        driver = self._driver()
        self.login = database.login(jvm)
        """For Spark's JDBC source."""
        self._java: Any = None
        with self.errors("SPARKLOG_NO_TABLE", "does not let this job in"):
            self._java = driver.connect(database.url, self.login)
            self._java.setTransactionIsolation(_READ_COMMITTED)

    def _driver(self) -> Any:
        registry = self._jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry
        try:
            registry.register(self._database.driver_class)
            return registry.get(self._database.driver_class)
        except (Py4JError, TypeError) as error:
            raise ConfigError(
                f"this Spark session has no JDBC driver {self._database.driver_class}; start Spark with its JAR, such"
                " as --packages org.postgresql:postgresql:42.7.7"
            ) from error

    @contextmanager
    def errors(self, code: str, what: str) -> Iterator[None]:
        """Raises DataSourceError with the database's words, without what Java adds, for what goes wrong meanwhile.

        Its code is UNREACHABLE, not ``code``, where the database is away or the connection is lost.
        """
        try:
            yield
        except Py4JError as error:
            if self._is_lost():
                code, what = UNREACHABLE, "cannot be reached any more"
            raise self._database.failure(error, code, what) from None

    def _is_lost(self) -> bool:
        try:
            return self._java is not None and not self._java.isValid(_PATIENCE_S)
        except Py4JError:  # it is the JVM that does not answer
            return False

    def quote(self, name: str) -> str:
        """The name as an identifier of this database."""
        return str(self._dialect.quoteIdentifier(name))

    def execute(self, sql: str, *values: object) -> int:
        """How many rows it changed. ``values`` are texts and whole numbers for the question marks."""
        statement = self._prepared(sql, values)
        try:
            return int(statement.executeUpdate())
        finally:
            statement.close()

    def query(self, sql: str, *values: object, most: int = 0) -> list[tuple[Any, ...]]:
        """Its rows, ``most`` at most; texts, whole numbers and None."""
        statement = self._prepared(sql, values)
        try:
            statement.setMaxRows(most)
            result = statement.executeQuery()
            width = result.getMetaData().getColumnCount()
            rows = []
            while result.next():
                rows.append(tuple(result.getObject(number + 1) for number in range(width)))
            return rows
        finally:
            statement.close()

    def _prepared(self, sql: str, values: Sequence[object]) -> Any:
        statement = self._java.prepareStatement(sql)
        for number, value in enumerate(values, 1):
            if isinstance(value, int):
                statement.setLong(number, value)
            else:
                statement.setString(number, value)
        return statement

    def tables(self, schema: str | None, pattern: str) -> list[str]:
        """The tables whose names are like ``pattern``, which has ``%`` for anything and ``_`` for one character."""
        found = self._java.getMetaData().getTables(self._java.getCatalog(), self._schema(schema), pattern, None)
        return _column(found, "TABLE_NAME")

    @property
    def longest_name(self) -> int:
        """Bytes that the name of a table may have; 0 for any number."""
        return int(self._java.getMetaData().getMaxTableNameLength())

    def columns(self, schema: str | None, table: str) -> list[str]:
        """The columns of a table; none where there is no such table."""
        metadata = self._java.getMetaData()
        escape = str(metadata.getSearchStringEscape())
        exact = re.sub(r"([_%\\])", lambda found: escape + found[1], table)
        return _column(metadata.getColumns(self._java.getCatalog(), self._schema(schema), exact, None), "COLUMN_NAME")

    def _schema(self, schema: str | None) -> str | None:
        return schema if schema is not None else self._java.getSchema()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is done meanwhile, or nothing."""
        self._java.setAutoCommit(False)
        try:
            yield
            self._java.commit()
        except BaseException:
            self._roll_back()
            raise
        finally:
            self._end()

    def _roll_back(self) -> None:
        try:
            self._java.rollback()
        except Py4JError:  # the connection is gone, and the transaction with it
            return

    def _end(self) -> None:
        try:
            self._java.setAutoCommit(True)
        except Py4JError:
            return

    def close(self) -> None:
        try:
            self._java.close()
        except Py4JError:
            return


def _causes(error: Exception) -> list[Any]:
    """The exceptions of the JVM behind an error, the innermost last."""
    java = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    found = []
    while java is not None:
        found.append(java)
        java = java.getCause()
    return found


def _says_away(exception: Any) -> bool:
    """Whether it is an SQLException of a database that cannot be reached."""
    try:
        state = str(exception.getSQLState())
    except Py4JError:  # another exception
        return False
    return state.startswith(_AWAY) and state not in _REFUSALS


def _column(result: Any, name: str) -> list[str]:
    found = []
    while result.next():
        found.append(str(result.getString(name)))
    result.close()
    return found
