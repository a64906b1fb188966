"""Numbered manifests: each once, whole, and known by its checksum."""

import pytest

from sparklog.errors import StorageError
from sparklog.storage.manifests import Manifests
from sparklog.storage.place import open_place


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "m"


@pytest.fixture
def manifests(tmp_path):
    return Manifests(open_place(str(tmp_path)), "m")


def test_they_are_numbered_from_0_on(manifests):
    assert manifests.numbers() == range(0)
    assert manifests.put(0, {"a": "ä"})
    assert manifests.put(1, {"a": 2})
    assert manifests.numbers() == range(2)
    assert (manifests.read(0), manifests.read(1)) == ({"a": "ä"}, {"a": 2})


def test_a_number_is_taken_once(manifests):
    assert manifests.put(0, {"run": "mine"})
    assert not manifests.put(0, {"run": "yours"})
    assert manifests.put(0, {"run": "mine"})  # it is there, whoever asks
    assert manifests.read(0) == {"run": "mine"}


@pytest.mark.parametrize(
    "damage", [b"", b"[]", b"{}", b'{"sha256": "0", "content": {"a": 1}}', b'{"sha256": 1, "content": 1}']
)
def test_damage_is_told(manifests, directory, damage):
    manifests.put(0, {"a": 1})
    (directory / f"{0:020d}.json").write_bytes(damage)
    with pytest.raises(StorageError, match=r"0\.json is damaged"):
        manifests.read(0)


def test_a_changed_word_is_damage(manifests, directory):
    manifests.put(0, {"end": 12})
    path = directory / f"{0:020d}.json"
    path.write_text(path.read_text().replace("12", "13"))
    with pytest.raises(StorageError, match="its checksum is another one"):
        manifests.read(0)


def test_one_that_is_missing_is_told(manifests, directory):
    for number in range(3):
        manifests.put(number, {})
    (directory / f"{1:020d}.json").unlink()
    with pytest.raises(StorageError, match=r"1\.json is missing"):
        manifests.numbers()


def test_other_files_are_passed_over(manifests, directory):
    manifests.put(0, {})
    for name in ("README", "1.json", f"{1:020d}.json.orig"):
        (directory / name).write_text("")
    assert manifests.numbers() == range(1)
