"""The page names every file and every znode that the code names."""

import re
from types import ModuleType

import pytest
from docs.markdown import ROOT

from sparklog.log import adoption, checkpoints, files
from sparklog.log.directories import moved
from sparklog.security.acl import znode as acl_znode
from sparklog.structs import TopicPartition
from sparklog.zk import tokens, znodes

PAGE = (ROOT / "docs" / "files-and-znodes.md").read_text()
ROWS = re.findall(r"^\| `([^`]+)`", PAGE, re.MULTILINE)
_PART = TopicPartition("TOPIC", 7)
_PLACEHOLDER = r"[A-Z]+\b"


def _texts(module: ModuleType) -> list[str]:
    """The public names of files, suffixes and znodes among a module's constants."""
    return [value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)]


def _is_told(znode: str) -> bool:
    """Whether a row is this znode, or one below it."""
    return any(each == znode or each.startswith(f"{znode}/") for each in ROWS)


@pytest.mark.parametrize("module", [files, checkpoints, adoption, moved], ids=lambda module: module.__name__)
def test_every_file_is_told(module):
    told = [each.rstrip("/") for each in ROWS]
    names = _texts(module)
    assert names
    assert [name for name in names if not any(each.endswith(name) for each in told)] == []


def test_every_znode_is_told():
    constants = [*_texts(znodes), *_texts(tokens), *acl_znode.ROOTS.values(), *acl_znode.CHANGES.values()]
    paths = {each for each in constants if each.startswith("/")} | set(znodes.PERSISTENT_PATHS)
    assert len(paths) > 20
    assert {path for path in paths if not _is_told(path)} == set()


@pytest.mark.parametrize(
    "path",
    [
        znodes.broker_path(3),
        znodes.topic_path("TOPIC"),
        znodes.partition_state_path(_PART),
        znodes.eligible_path(_PART),
        znodes.topic_config_path("TOPIC"),
        znodes.delete_topic_path("TOPIC"),
        tokens.token_path("TOKEN"),
    ],
)
def test_a_path_is_as_it_is_told(path):
    patterns = [re.sub(_PLACEHOLDER, r"\\w+", re.escape(each)) for each in ROWS if each.startswith("/")]
    assert any(re.fullmatch(pattern, path) for pattern in patterns)


def test_nothing_is_told_twice():
    assert sorted(set(ROWS)) == sorted(ROWS)
