"""Every block of code is in a language that is said, and is right in it: commands, imports, settings, documents."""

import ast
import importlib
import importlib.util
import json
import re
import shutil
import subprocess
import tomllib
from functools import cache

import nbformat
import pytest
import yaml
from docs.commands import commands, complaint
from docs.markdown import PAGES, ROOT, Block, blocks, blocks_in, name, spans, spans_of

from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.kafka_settings import is_kafkas
from sparklog.client.consumer.config import ConsumerConfig
from sparklog.client.producer.config import ProducerConfig
from sparklog.client.zookeeper.config import ZooKeeperConsumerConfig
from sparklog.config.broker import BrokerConfig, topic_synonyms
from sparklog.config.definition import definitions
from sparklog.config.properties import load_properties
from sparklog.config.topic import TopicConfig
from sparklog.config.zookeeper_security import ZooKeeperSecurity

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LANGUAGES = ("sh", "python", "properties", "json", "toml", "yaml", "sql", "text")
_TABLES = (
    BrokerConfig,
    TopicConfig,
    ZooKeeperSecurity,
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
    ZooKeeperConsumerConfig,
)
_SETTINGS = {name for table in _TABLES for name in definitions(table)}
_OF_A_LISTENER = re.compile(r"listener\.name\.\w+\.(\w[\w-]*\.(?=sasl\.))?")
_SYNONYMS = topic_synonyms()
_OF_KAFKA_ALONE = {"transaction.version", "offsets.storage"}
"""A feature of its clusters, and a setting of its oldest consumers."""
_ASSIGNED = re.compile(r"(?<![\w.-])[a-z]+(?:\.[a-z0-9]+)+(?==)")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_says_its_language(page):
    assert {each.place: each.language for each in blocks(page) if each.language not in LANGUAGES} == {}


@pytest.mark.parametrize("block", blocks_in("sh"), ids=lambda block: block.place)
def test_every_command_is_one_that_its_program_takes(block):
    wrong = [f"{' '.join(words)}: {said}" for words in commands(block.code) if (said := complaint(words))]
    assert not wrong


@pytest.mark.skipif(shutil.which("sh") is None, reason="there is no shell")
def test_the_shell_reads_every_block_of_commands():
    for block in blocks_in("sh"):
        read = subprocess.run(["sh", "-n"], input=block.code, capture_output=True, text=True, check=False)
        assert read.returncode == 0, f"{block.place}: {read.stderr}"


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent.name != "adr" and page.name != "cli.md"], ids=name
)
def test_every_command_in_the_text_is_one(page):
    """A decision may name a command that is to come or was given up, and the page of commands has names of others."""
    named = [list(words) for span in spans(page) if span.startswith("sparklog ") for words in commands(span)]
    assert not [f"{' '.join(words)}: {said}" for words in named if (said := complaint(words, in_text=True))]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name)
def test_every_command_in_the_text_of_a_notebook_is_one(notebook):
    cells = [cell.source for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "markdown"]
    named = [words for text in cells for span in spans_of(text) for words in commands(span) if _is_command(words)]
    assert not [f"{' '.join(words)}: {said}" for words in named if (said := complaint(words, in_text=True))]


@pytest.mark.parametrize("block", blocks_in("python"), ids=lambda block: block.place)
def test_every_program_compiles_and_imports_what_is_there(block):
    assert _missing(block.code, block.place) == []


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name)
def test_every_cell_compiles_and_imports_what_is_there(notebook):
    code = [cell for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code"]
    plain = [(re.sub(r"^%.*", "", cell.source, flags=re.MULTILINE), cell.id) for cell in code]
    assert [each for source in plain for each in _missing(*source)] == []


@pytest.mark.parametrize("block", blocks_in("properties"), ids=lambda block: block.place)
def test_every_setting_is_known(block, tmp_path):
    path = tmp_path / "block.properties"
    path.write_text(block.code)
    assert [each for each in load_properties(path) if not _is_setting(each)] == []


def test_every_setting_that_a_command_is_given_is_known():
    """A module is the name of a logger, which is given a level."""
    typed = [words for block in blocks_in("sh") for words in commands(block.code) if words[:1] == ["sparklog"]]
    given = {each for words in typed for word in words for each in _ASSIGNED.findall(word)}
    assert [each for each in sorted(given) if not _is_setting(each) and not _is_there(each, None)] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_setting_in_the_text_that_is_given_a_value_is_known(page):
    given = {found[0] for span in spans(page) if (found := _ASSIGNED.match(span))}
    assert [each for each in sorted(given) if not _is_setting(each)] == []


@pytest.mark.parametrize("block", blocks_in("json", "toml", "yaml"), ids=lambda block: block.place)
def test_every_document_parses(block):
    parse = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}[block.language]
    assert parse(block.code)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("sparklog topic lst", "lst"),
        ("sparklog topic create", "argument"),
        ("sparklog topic create t --partition 3", "--partition"),
        ("sparklog topic create t --partitions three", "three"),
        ("sparklog up --brokers", "requires"),
        ("sparklog consume t | sparklog produse t", "produse"),
        ("sparklog backup t", "dest"),
        ("sparklog offload --topic t --tabel /t", "--tabel"),
        ("make tests", "tests"),
        ("python jobs/offlod.py --topic t", "no such job"),
        ("python jobs/offload.py --topic t --tabel /t", "--tabel"),
        ("python -m benchmarks.nothing", "benchmarks.nothing"),
        ("kafka-topics --list", "kafka-topics"),
    ],
)
def test_a_wrong_command_is_found(command, said):
    (complained,) = filter(None, map(complaint, commands(command)))
    assert said in complained


@pytest.mark.parametrize("command", ["sparklog group reset", "sparklog topic list --internl", "sparklog compakt"])
def test_a_wrong_command_in_the_text_is_found(command):
    (words,) = commands(command)
    assert complaint(words, in_text=True)


@pytest.mark.parametrize("command", ["sparklog writes", "sparklog erase", "sparklog up --data", "sparklog backup run"])
def test_a_command_in_the_text_may_be_cut_short(command):
    (words,) = commands(command)
    assert complaint(words, in_text=True) is None


def test_a_wrong_block_is_found(tmp_path):
    assert not _is_setting("listener.name.sasl_ssl.retention.sm")
    assert _is_setting("listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config")
    assert not _is_there("sparklog.client", "Produser")
    assert not _is_there("sparklog.clients", "Producer")
    page = tmp_path / "page.md"
    page.write_text("text\n\n    indented\n")
    with pytest.raises(ValueError, match="not in the subpath"):
        list(blocks(page))
    assert Block("a.md", 3, "", "").language not in LANGUAGES


def _is_command(words):
    """The first word is a program whose parser is known; a name of a file, an option or a function is none."""
    return words[:1] in (["sparklog"], ["make"], ["python"]) and len(words) > 1


def _missing(code, place):
    """Module and name of each import that is of nothing. Raises SyntaxError for what is no Python."""
    tree = compile(code, place, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert isinstance(tree, ast.Module)
    return [each for node in ast.walk(tree) for each in _imported(node) if not _is_there(*each)]


def _imported(node):
    """Module and name of each import."""
    if isinstance(node, ast.Import):
        return [(each.name, None) for each in node.names]
    if isinstance(node, ast.ImportFrom):
        return [(node.module, each.name) for each in node.names]
    return []


@cache
def _is_there(module, member):
    if not module.startswith("sparklog"):
        return importlib.util.find_spec(module.partition(".")[0]) is not None
    try:
        found = importlib.import_module(module)
        return member is None or hasattr(found, member) or importlib.util.find_spec(f"{module}.{member}") is not None
    except ModuleNotFoundError:
        return False


def _is_setting(setting):
    plain = _OF_A_LISTENER.sub("", setting.removeprefix("kafka."))
    return plain in _SETTINGS or plain in _SYNONYMS or plain in _OF_KAFKA_ALONE or is_kafkas(plain)
