"""A real HDFS: Hadoop's minicluster, one NameNode and one DataNode in one JVM."""

from __future__ import annotations

import re
from pathlib import Path

from sparklog.local.jars import jar_set, pyspark_jars
from sparklog.local.java import find_java
from sparklog.local.process import ChildProcess, OneProcess
from sparklog.local.running import Running

START_TIMEOUT_S = 180.0
_MAIN = "org.apache.hadoop.mapreduce.MiniHadoopClusterManager"
_SETTING = r"<name>{}</name><value>([^<]+)</value>.*</configuration>"


class HdfsCluster(OneProcess, Running):
    """HDFS of the ``hadoop`` JAR set and the Hadoop client that PySpark ships. ``data_dir`` has all that it writes."""

    name = "HDFS"

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = Path(data_dir).absolute()
        self._settings = self._data_dir / "conf" / "hdfs-site.xml"
        self._child = ChildProcess(self.name, self._data_dir / "hdfs.log")

    @property
    def uri(self) -> str:
        """By HTTP: ``webhdfs://HOST:PORT``. Only once it is started."""
        return f"webhdfs://{self._setting('dfs.namenode.http-address')}"

    @property
    def rpc_uri(self) -> str:
        """By Hadoop's own protocol: ``hdfs://HOST:PORT``. Only once it is started."""
        return str(self._setting("fs.defaultFS"))

    @property
    def conf_dir(self) -> Path:
        """What ``HADOOP_CONF_DIR`` is for its clients."""
        return self._settings.parent

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
        self._settings.parent.mkdir(parents=True, exist_ok=True)
        self._child.spawn(command)
        try:
            self._child.wait_until(lambda: self._setting("fs.defaultFS") is not None, START_TIMEOUT_S)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        self.kill()

    def kill(self) -> None:
        self._child.kill()

    def _setting(self, name: str) -> str | None:
        """One of the settings, which are written when all is up; None before."""
        if not self._settings.exists():
            return None
        found = re.search(_SETTING.format(re.escape(name)), self._settings.read_text(), re.DOTALL)
        return None if found is None else found[1]
