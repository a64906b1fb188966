"""The cache of JAR sets. Resolving itself is Ivy's; a fake one stands in."""

import sys
import threading
import zipfile

import pytest

from sparklog.errors import ConfigError
from sparklog.local import jars
from sparklog.local.jars import JarSet
from sparklog.testing.programs import run_program

WANTED = JarSet("things", ("org.example:thing:1.0",), pinned=("org.example:part:0.9",), left_out=("junk",))


class FakeIvy:
    def __init__(self, *names):
        self.names = names
        self.calls = 0

    def __call__(self, recipe, directory):
        self.calls += 1
        for name in self.names:
            (directory / name).write_text(recipe)


def test_a_set_is_fetched_once(tmp_path):
    ivy = FakeIvy("thing-1.0.jar")
    assert jars.fetch(WANTED, tmp_path, ivy) == tmp_path / "things"
    assert jars.fetch(WANTED, tmp_path, ivy) == tmp_path / "things"
    assert ivy.calls == 1
    assert (tmp_path / "things" / "thing-1.0.jar").is_file()


def test_another_recipe_replaces_the_set_whole(tmp_path):
    jars.fetch(WANTED, tmp_path, FakeIvy("thing-1.0.jar"))
    newer = JarSet("things", ("org.example:thing:1.1",))
    jars.fetch(newer, tmp_path, FakeIvy("thing-1.1.jar"))
    assert [jar.name for jar in (tmp_path / "things").glob("*.jar")] == ["thing-1.1.jar"]


def test_a_fetch_cut_short_leaves_no_set(tmp_path):
    def cut_short(recipe, directory):
        (directory / "half.jar").write_text("")
        raise ConfigError("the network went away")

    with pytest.raises(ConfigError, match="went away"):
        jars.fetch(WANTED, tmp_path, cut_short)
    assert not (tmp_path / "things").exists()
    assert jars.fetch(WANTED, tmp_path, FakeIvy("whole.jar")).is_dir()


def test_a_directory_without_its_marker_is_fetched_again(tmp_path):
    (tmp_path / "things").mkdir()
    (tmp_path / "things" / "half.jar").write_text("")
    jars.fetch(WANTED, tmp_path, FakeIvy("whole.jar"))
    assert [jar.name for jar in (tmp_path / "things").glob("*.jar")] == ["whole.jar"]


def test_two_at_once_fetch_once(tmp_path):
    ivy = FakeIvy("thing-1.0.jar")
    together = threading.Barrier(2)

    def one():
        together.wait(10)
        jars.fetch(WANTED, tmp_path, ivy)

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert ivy.calls == 1


def test_the_recipe_names_roots_pins_and_what_is_left_out():
    recipe = WANTED.ivy_xml()
    assert '<dependency org="org.example" name="thing" rev="1.0"' in recipe
    assert '<override org="org.example" module="part" rev="0.9"/>' in recipe
    assert '<exclude org="*" module="junk"/>' in recipe


def test_what_pyspark_ships_is_left_out_beside_spark():
    assert 'module="jackson-databind"' in JarSet("x", (), beside_spark=True).ivy_xml()
    assert 'module="jackson-databind"' not in JarSet("x", ()).ivy_xml()


def test_a_pyspark_jar_is_found_by_its_module():
    assert jars.pyspark_jar("zookeeper").name.startswith("zookeeper-3.")
    assert jars.pyspark_jar("zookeeper-jute").name.startswith("zookeeper-jute-3.")
    with pytest.raises(ConfigError, match="no nonsuch JAR"):
        jars.pyspark_jar("nonsuch")


def test_the_jars_are_sparks_where_pyspark_is_an_archive(tmp_path, monkeypatch):
    """As under spark-submit."""
    archive = tmp_path / "python" / "lib" / "pyspark.zip"
    archive.parent.mkdir(parents=True)
    with zipfile.ZipFile(archive, "w") as written:
        written.writestr("pyspark/__init__.py", "")
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "ivy-2.5.3.jar").touch()
    code = "from sparklog.local.jars import pyspark_jar; print(pyspark_jar('ivy'))"
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    ran = run_program([sys.executable, "-c", code], tmp_path, timeout=60, paths=[str(archive)])
    assert ran.stdout.strip() == str(tmp_path / "jars" / "ivy-2.5.3.jar")


def test_an_unknown_set_names_the_known():
    with pytest.raises(ConfigError, match=", ".join(sorted(jars.JAR_SETS))):
        jars.jar_set("nonsuch")


def test_the_environment_says_where(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARKLOG_JARS", str(tmp_path))
    assert jars.jars_root() == tmp_path


def test_ivy_failing_is_told_without_its_progress(tmp_path, monkeypatch):
    fake_java = tmp_path / "bin" / "java"
    fake_java.parent.mkdir()
    fake_java.write_text("#!/bin/sh\necho '..... (1kB)'\necho 'UNRESOLVED DEPENDENCIES: thing'\nexit 1\n")
    fake_java.chmod(0o755)
    (tmp_path / "release").write_text('JAVA_VERSION="17"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"Ivy's repository(.|\n)*UNRESOLVED DEPENDENCIES: thing") as caught:
        jars.fetch(WANTED, tmp_path / "jars")
    assert "....." not in str(caught.value)
