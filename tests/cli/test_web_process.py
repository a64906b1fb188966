"""The page beside a broker: what is refused before anything starts, and that it begins and ends with the broker."""

import importlib.util
import os
import re
import signal
import socket

import pytest
from web.serving import Browser

from sparklog.cli import web_process
from sparklog.cli.web_process import WebProcess
from sparklog.client import Admin, NewTopic, Producer
from sparklog.config.broker import BrokerConfig
from sparklog.config.properties import load_properties
from sparklog.errors import ConfigError
from sparklog.registry import AvroSerializer, SchemaRegistry
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually, wait_for_death
from sparklog.testing.registry import schema_registry


def config(**settings):
    return BrokerConfig(web_port=0, **settings)


@pytest.fixture
def client_file(tmp_path):
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n")
    return str(path)


def test_without_a_clients_settings_the_page_does_not_pass_by_a_password():
    ends = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"
    with pytest.raises(ConfigError, match=r"SASL_PLAINTEXT is not PLAINTEXT.*sparklog\.web\.client\.config"):
        WebProcess(config(listeners=ends))


def test_passwords_are_not_sent_in_the_clear(client_file):
    ends = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"
    with pytest.raises(ConfigError, match=r"in the clear: give sparklog\.web\.certificate, or"):
        WebProcess(config(listeners=ends, web_client_config=client_file, web_host="10.1.2.3"))


def test_a_client_that_no_listener_is_for_is_refused(client_file):
    with pytest.raises(ConfigError, match="no listener of this broker speaks SASL_PLAINTEXT"):
        WebProcess(config(web_client_config=client_file))


def test_a_certificate_that_is_none_is_refused_at_the_start(tmp_path):
    with pytest.raises(ConfigError, match=r"sparklog\.web\.certificate .* has no certificate"):
        WebProcess(config(web_certificate=str(tmp_path / "none.pem")))


def test_a_missing_package_is_one_line(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "aiohttp" else found(name))
    with pytest.raises(ConfigError, match=r"sparklog\.web\.port=0 needs the package aiohttp"):
        WebProcess(config())


def test_a_port_in_use_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        page = WebProcess(BrokerConfig(web_port=port))
        with pytest.raises(ConfigError, match=f"cannot listen for sparklog.web.port={port} at 127.0.0.1"):
            page.listen()


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ({"port": 9092}, "127.0.0.1:9092"),
        ({"port": 9092, "advertised_host": "log.example"}, "log.example:9092"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "127.0.0.1:9092"),
        ({"listeners": "PLAINTEXT://[::1]:9092"}, "[::1]:9092"),
        (
            {"listeners": "PLAINTEXT://0.0.0.0:9092", "advertised_listeners": "PLAINTEXT://log.example:19092"},
            "log.example:19092",
        ),
    ],
)
def test_it_reaches_the_broker_as_clients_are_told_to(ends, expected):
    found = config(**ends)
    assert WebProcess(found)._address_at(found.ends.bound) == expected


def page_of(broker):
    """A browser at the page of a broker that has said where it is."""
    return Browser(re.fullmatch(r"http://(127\.0\.0\.1:\d+)/", broker.web_url)[1])


def children_of(pid):
    """The processes of the page that a broker has begun."""
    found = []
    for each in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{each}/stat") as stat, open(f"/proc/{each}/cmdline") as line:
                if int(stat.read().rpartition(")")[2].split()[1]) == pid and "\0web\0" in line.read():
                    found.append(int(each))
        except OSError:
            continue
    return found


@pytest.fixture
def broker(tmp_path, zookeeper):
    chroot = f"{zookeeper.connect_string}/web-{tmp_path.name}"
    with BrokerHarness(tmp_path, chroot, settings={"sparklog.web.port": 0}) as found:
        yield found


@pytest.mark.integration
def test_it_is_begun_again_when_it_dies_and_ends_with_the_broker(broker):
    browser = page_of(broker)
    assert [each["id"] for each in browser.rows("/api/cluster")["brokers"]] == [0]
    assert not browser.rows("/api/session")["changes_allowed"]
    (page,) = children_of(broker.pid)
    os.kill(page, signal.SIGKILL)
    eventually(lambda: "the web page ended with status -9" in broker.output(), 60)
    assert browser.get("/").status == 200  # it waits on the broker's socket until there is a page again
    (page,) = children_of(broker.pid)
    broker.stop()
    wait_for_death(page)
    assert "the web page ended" not in broker.output().partition("status -9")[2]


@pytest.mark.integration
@pytest.mark.parametrize("by", ["registry", "registry.config"])
def test_it_shows_values_by_the_schemas_of_the_registry(tmp_path, zookeeper, topic, by):
    pytest.importorskip("fastavro")
    file = tmp_path / "registry.properties"
    with schema_registry() as (url, registry):
        registry.user = "ann:secret" if by == "registry.config" else None
        file.write_text(f"schema.registry.url={url}\nbasic.auth.user.info=ann:secret\n")
        schema = {"type": "record", "name": "Trip", "fields": [{"name": "place", "type": "string"}]}
        known = SchemaRegistry(load_properties(file))
        settings = {"sparklog.web.port": 0, f"sparklog.web.{by}": url if by == "registry" else file}
        chroot = f"{zookeeper.connect_string}/web-{tmp_path.name}"
        with BrokerHarness(tmp_path, chroot, settings=settings) as broker:
            with Admin(bootstrap_servers=broker.address) as admin:
                admin.create_topics([NewTopic(topic, 1, 1)])
            serializer = AvroSerializer(known, schema)
            with Producer(bootstrap_servers=broker.address, value_serializer=serializer) as producer:
                producer.send(topic, {"place": "Zug"}).result()
            (found,) = page_of(broker).rows(f"/api/records?topic={topic}")["records"]
            assert (found["value"]["form"], found["value"]["text"]) == ("schema", '{"place": "Zug"}')


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"web_registry": "zug"}, r"sparklog\.web\.port=0: .*zug"),
        ({"web_registry_config": "/not/there"}, "cannot read /not/there"),
        (
            {"web_registry": "http://ann:secret@127.0.0.1:8081"},
            r"sparklog\.web\.registry names a user: put it into the file of sparklog\.web\.registry\.config",
        ),
    ],
)
def test_a_registry_that_cannot_be_is_refused_at_the_start(given, said):
    with pytest.raises(ConfigError, match=said) as refused:
        WebProcess(config(**given))
    assert "secret" not in str(refused.value)


@pytest.mark.integration
def test_a_killed_broker_takes_its_page_along(broker):
    assert page_of(broker).get("/").status == 200
    (page,) = children_of(broker.pid)
    broker.kill()
    wait_for_death(page)


def test_it_names_the_settings_of_every_option_that_a_complaint_names():
    text = web_process._by_settings("--host 0.0.0.0: give --certificate FILE, or --origin https://NAME")
    assert text == "sparklog.web.host 0.0.0.0: give sparklog.web.certificate, or sparklog.web.origin https://NAME"
