"""A real HDFS: Hadoop's minicluster, one NameNode and one DataNode in one JVM."""

from __future__ import annotations

import re
from pathlib import Path

from sparklog.local.jars import jar_set, pyspark_jars
from sparklog.local.java import find_java
from sparklog.local.process import ChildProcess
from sparklog.local.running import Running

START_TIMEOUT_S = 180.0
_MAIN = "org.apache.hadoop.mapreduce.MiniHadoopClusterManager"
_HTTP = re.compile(r"<name>dfs\.namenode\.http-address</name><value>([^<]+)</value>.*</configuration>", re.DOTALL)


class HdfsCluster(Running):
    """HDFS of the ``hadoop`` JAR set and the Hadoop client that PySpark ships. ``data_dir`` has all that it writes."""

    name = "HDFS"

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = Path(data_dir).absolute()
        self._settings = self._data_dir / "hdfs.xml"
        self._child = ChildProcess(self.name, self._data_dir / "hdfs.log")

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child.alive

    @property
    def uri(self) -> str:
        """``webhdfs://HOST:PORT``. Only once it is started."""
        found = self._http_address()
        assert found is not None, "it is not started"
        return f"webhdfs://{found}"

    def start(self) -> None:
        """Start, and wait until files can be written."""
        class_path = ":".join([*map(str, jar_set("hadoop")), f"{pyspark_jars()}/*"])
        settings = {"hdfs.minidfs.basedir": self._data_dir / "hdfs", "hadoop.tmp.dir": self._data_dir / "tmp"}
        command = [
            str(find_java().executable),
            *("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
            *("-cp", class_path, _MAIN, "-nomr", "-format", "-writeConfig", str(self._settings)),
            *(part for name, value in settings.items() for part in ("-D", f"{name}={value}")),
        ]
        self._child.spawn(command)
        try:
            self._child.wait_until(lambda: self._http_address() is not None, START_TIMEOUT_S)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        self.kill()

    def kill(self) -> None:
        self._child.kill()

    def _http_address(self) -> str | None:
        """As the settings say, which are written when all is up; None before."""
        if not self._settings.exists():
            return None
        found = _HTTP.search(self._settings.read_text())
        return None if found is None else found[1]
