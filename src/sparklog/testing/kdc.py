"""A Kerberos realm of tests: MIT's KDC, with its database and files in one directory, on a free port of loopback."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from sparklog.errors import ConfigError
from sparklog.local.ports import LOOPBACK, free_port
from sparklog.local.process import ChildProcess, OneProcess
from sparklog.local.running import Running
from sparklog.testing.programs import find_program

REALM = "EXAMPLE.COM"
_START_TIMEOUT_S = 30.0
_GRACE_S = 10.0
_LIBRARY = """\
[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
[realms]
  {realm} = {{
    kdc = {address}
  }}
"""
_KDC = """\
[kdcdefaults]
  kdc_listen = {address}
  kdc_tcp_listen = {address}
[realms]
  {realm} = {{
    database_name = {directory}/principal
    key_stash_file = {directory}/stash
    acl_file = {directory}/acl
  }}
[logging]
  kdc = STDERR
"""


class Kdc(OneProcess, Running):
    """The realm ``EXAMPLE.COM``. A host's name is taken as it is, without DNS."""

    name = "KDC"

    def __init__(self, directory: Path) -> None:
        self.directory = Path(directory).absolute()
        self.port = free_port()
        self.environment: Mapping[str, str] = {
            "KRB5_CONFIG": str(self.directory / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf"),
            "KRB5RCACHEDIR": str(self.directory),
            "KRB5CCNAME": f"FILE:{self.directory / 'nobody.cache'}",
        }
        """What a process of the realm has; its ticket cache is empty."""
        self._child = ChildProcess(self.name, self.directory / "kdc.log", environ=self.environment)

    @property
    def java_option(self) -> str:
        """By which a JVM knows the realm."""
        return f"-Djava.security.krb5.conf={self.environment['KRB5_CONFIG']}"

    def start(self) -> None:
        """Start, and wait until it answers. Its principals outlive it."""
        if not (self.directory / "krb5.conf").exists():
            self._make()
        self._child.spawn([_needed("krb5kdc"), "-n"])
        self._child.wait_until(lambda: "starting..." in self._child.output(), _START_TIMEOUT_S)

    def _make(self) -> None:
        told = {"realm": REALM, "address": f"{LOOPBACK}:{self.port}", "directory": self.directory}
        (self.directory / "krb5.conf").write_text(_LIBRARY.format(**told))
        (self.directory / "kdc.conf").write_text(_KDC.format(**told))
        self._run("kdb5_util", "create", "-s", "-P", "master")

    def stop(self) -> None:
        self._child.stop(_GRACE_S)

    def kill(self) -> None:
        self._child.kill()

    def add(self, *principals: str, keytab: str = "") -> Path:
        """Principals with keys of chance, and a keytab of these; one that is there gets another key.

        The keytab has the name of the first unless another is said; to one that is there they are added.
        """
        path = self.directory / f"{keytab or principals[0].replace('/', '-')}.keytab"
        asked = [f"addprinc -randkey {each}" for each in principals] + [f"ktadd -k {path} {' '.join(principals)}"]
        self._run("kadmin.local", told="\n".join(asked))
        return path

    def ticket(self, principal: str, keytab: Path, *arguments: str) -> Path:
        """A ticket cache with a ticket for tickets; ``arguments`` are of ``kinit``."""
        cache = self.directory / f"{principal.replace('/', '-')}.cache"
        self._run("kinit", *arguments, "-c", f"FILE:{cache}", "-k", "-t", str(keytab), principal)
        return cache

    def _run(self, name: str, *arguments: str, told: str = "") -> None:
        environment = {**os.environ, **self.environment}
        done = subprocess.run(
            [_needed(name), *arguments], input=told, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise ConfigError(f"{name} ended with {done.returncode}: {done.stdout}{done.stderr}")


def _needed(name: str) -> str:
    found = find_program(name)
    if found is None:
        raise ConfigError(f"{name} is not installed (Debian: krb5-kdc krb5-admin-server krb5-user)")
    return found
