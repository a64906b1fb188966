"""Classes that the ZooKeepers of tests share: loaded once, and kept in an archive (Java's class data sharing).

To load a thousand classes takes a third of the processor time of a ZooKeeper's start, and a run of all tests starts
more than a hundred. The archive is in ``build/classes`` of the checkout; the first ZooKeeper that finds none waits for
it to be made. Java looks whether an archive is of its own version and of the same JARs, and loads the classes as ever
if it is not.
"""

from __future__ import annotations

import fcntl
import hashlib
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from kazoo.client import KazooClient

from sparklog.local.extras import checkout
from sparklog.local.jars import pyspark_jar
from sparklog.local.java import find_java
from sparklog.local.zookeeper import MODULES, EmbeddedZooKeeper
from sparklog.testing.eventually import eventually


@cache
def options() -> list[str]:
    """For ``EmbeddedZooKeeper.start_options``; none where there is no checkout to keep an archive in."""
    root = checkout()
    return [] if root is None else [f"-XX:SharedArchiveFile={_archive(root / 'build' / 'classes')}"]


def _archive(directory: Path) -> Path:
    """Made now if it is not there; of the processes that want it at the same time one makes it."""
    archive = directory / f"zookeeper-{_origin()}.jsa"
    if not archive.exists():
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not archive.exists():
                _make(archive)
    return archive


def _origin() -> str:
    """Changes with the Java and with the JARs."""
    files = [find_java().home / "release", *map(pyspark_jar, MODULES)]
    known = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files if path.exists()]
    return hashlib.sha256(repr(known).encode()).hexdigest()[:16]


def _make(archive: Path) -> None:
    """By a ZooKeeper that serves a client; its JVM writes the archive as it ends."""
    with TemporaryDirectory(dir=archive.parent) as scratch:
        written = Path(scratch) / archive.name

        class Recorded(EmbeddedZooKeeper):
            @staticmethod
            def start_options() -> list[str]:
                return [f"-XX:ArchiveClassesAtExit={written}"]

        with Recorded(Path(scratch) / "data", fsync=False) as server:
            client = KazooClient(server.connect_string)
            client.start(timeout=60)
            client.create("/a/b", ephemeral=True, makepath=True)
            client.stop()
            client.close()
            server.terminate()
            eventually(lambda: not server.alive, what="the archive is written")
        written.rename(archive)
