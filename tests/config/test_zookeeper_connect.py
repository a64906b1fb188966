"""Connect strings: as ZooKeeper's own clients read them."""

import pytest

from sparklog.config.broker import parse_broker_config
from sparklog.config.zookeeper_connect import parse_connect
from sparklog.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("h:2181", "h:2181", ""),
        ("h", "h:2181", ""),
        ("a:1,b:2,c:3", "a:1,b:2,c:3", ""),
        (" a:1 , b:2 ,c ", "a:1,b:2,c:2181", ""),
        ("a:1,,b:2,", "a:1,b:2", ""),
        ("a:1,b:2,a:1", "a:1,b:2", ""),
        ("a:1,a", "a:1,a:2181", ""),
        ("a:1,b:2/kafka", "a:1,b:2", "/kafka"),
        ("a:1,b:2/kafka/one/", "a:1,b:2", "/kafka/one"),
        ("a:1/ ", "a:1", ""),
        ("a:1//", "a:1", ""),
        ("[::1]:2181,[fe80::1%eth0]", "[::1]:2181,[fe80::1%eth0]:2181", ""),
        ("[::1]:2182/kafka", "[::1]:2182", "/kafka"),
    ],
)
def test_what_it_names(text, hosts, chroot):
    found = parse_connect(text)
    assert (found.hosts, found.chroot) == (hosts, chroot)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "names no ZooKeeper"),
        (" , ", "names no ZooKeeper"),
        ("/kafka", "names no ZooKeeper"),
        ("h:0", "port from 1 to 65535"),
        ("h:65536", "port from 1 to 65535"),
        ("h:x", "'h:x' is not HOST:PORT"),
        ("a b:1", "'a b:1' is not HOST:PORT"),
        ("::1:2181", r"in brackets, as in \[::1\]:2181"),
        ("h:1/a//b", "no path of a znode"),
        ("h:1/a/../b", "no path of a znode"),
    ],
)
def test_what_is_refused(text, named):
    with pytest.raises(ConfigError, match=named):
        parse_connect(text)
    with pytest.raises(ConfigError, match=r"zookeeper\.connect"):
        parse_broker_config({"broker.id": "0", "log.dirs": "/d", "zookeeper.connect": text})
