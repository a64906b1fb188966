"""Finding a Java."""

from pathlib import Path

import pytest

from sparklog.errors import ConfigError
from sparklog.local.java import find_java, main


def install(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


def test_java_home_comes_first(tmp_path):
    named = install(tmp_path / "named", "21.0.1")
    on_path = install(tmp_path / "on-path", "17.0.9")
    java = find_java({"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}, tmp_path / "none")
    assert (java.home, java.version) == (named, 21)
    assert java.executable == named / "bin" / "java"


def test_the_path_comes_before_the_jvm_directory(tmp_path):
    on_path = install(tmp_path / "on-path", "17")
    install(tmp_path / "jvm" / "a", "17")
    assert find_java({"PATH": str(on_path / "bin")}, tmp_path / "jvm").home == on_path


def test_an_old_java_is_passed_over(tmp_path):
    old = install(tmp_path / "old", "1.8.0_292")
    older = install(tmp_path / "older", "11.0.2")
    good = install(tmp_path / "jvm" / "good", "17.0.9")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(older / "bin")}, tmp_path / "jvm").home == good


def test_a_tested_release_is_preferred_to_a_newer_one(tmp_path):
    install(tmp_path / "a-25", "25")
    tested = install(tmp_path / "b-21", "21.0.5")
    assert find_java({"PATH": ""}, tmp_path).home == tested


def test_it_is_preferred_even_to_a_newer_one_on_the_path_but_not_to_java_home(tmp_path):
    newer = install(tmp_path / "a-25", "25")
    tested = install(tmp_path / "jvm" / "17", "17.0.9")
    path = str(newer / "bin")
    assert find_java({"PATH": path}, tmp_path / "jvm").home == tested
    assert find_java({"PATH": path, "JAVA_HOME": str(newer)}, tmp_path / "jvm").home == newer


def test_an_untested_newer_release_is_better_than_none(tmp_path):
    install(tmp_path / "25", "25")
    assert find_java({"PATH": ""}, tmp_path).version == 25


def test_no_java_says_what_to_type(tmp_path):
    (tmp_path / "not-java").mkdir()
    with pytest.raises(ConfigError, match="apt-get install -y openjdk-17-jre-headless"):
        find_java({"PATH": "", "JAVA_HOME": str(tmp_path / "gone")}, tmp_path)


def test_the_command_says_which_java(capsys):
    assert main() == 0
    assert str(find_java().home) in capsys.readouterr().out
