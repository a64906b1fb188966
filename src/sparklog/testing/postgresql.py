"""A PostgreSQL of a test: Debian's, in a temporary directory, on a free port, run by somebody who is not root."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

from sparklog.local.ports import free_port

_NOBODY = 65534
PASSWORD = "open sésame \\😀"


def find_postgresql() -> Path | None:
    """The directory of its programs, of the newest version; None where it is not installed, or cannot be run here."""
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        return None  # it refuses to be run by root
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda each: int(each.parts[-3]))
    return found[-1].parent if found else None


class PostgreSql:
    """One database server; its user is ``sparklog``, its database ``warehouse``. ``with`` starts and stops it."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self.port = free_port()
        self.user = "sparklog"

    @property
    def url(self) -> str:
        """For JDBC."""
        return f"jdbc:postgresql://127.0.0.1:{self.port}/warehouse"

    def __enter__(self) -> PostgreSql:
        self._directory = Path(tempfile.mkdtemp(prefix="sparklog-postgresql-"))
        if os.geteuid() == 0:
            os.chown(self._directory, _NOBODY, _NOBODY)
        secret = self._directory / "password"
        secret.write_text(PASSWORD, "utf-8")
        secret.chmod(0o644)
        self._run("initdb", "-D", self._data, "-U", self.user, "-A", "scram-sha-256", "--pwfile", str(secret))
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
        self._run("pg_ctl", "-D", self._data, "-o", options, "-l", str(self._directory / "data" / "log"), "-w", "start")
        self.psql("create database warehouse", database="postgres")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")
        shutil.rmtree(self._directory)

    @property
    def _data(self) -> str:
        return str(self._directory / "data")

    def psql(self, sql: str, database: str = "warehouse") -> list[list[str]]:
        """The rows of a query, as texts. Raises AssertionError where it fails."""
        connection = f"host=127.0.0.1 port={self.port} user={self.user} dbname={database}"
        command = [str(self._programs / "psql"), connection, "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql]
        done = subprocess.run(
            command, env={**os.environ, "PGPASSWORD": PASSWORD}, capture_output=True, text=True, check=False, timeout=60
        )
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        return [line.split("|") for line in done.stdout.splitlines()]

    def _run(self, program: str, *arguments: str) -> None:
        as_whom = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"] if os.geteuid() == 0 else []
        command = [*as_whom, str(self._programs / program), *arguments]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd="/", check=False, timeout=120
        )
        if done.returncode != 0:
            raise AssertionError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
