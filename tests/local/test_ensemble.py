"""Lists of servers: what they say, and which make no ensemble."""

import pytest

from sparklog.errors import ConfigError
from sparklog.local.ensemble import Server, parse_ensemble

THREE = "1=zk1:2888:3888:2181, 2=zk2:2888:3888,3=[::1]:2888:3888:2182:observer"


def test_what_a_list_says():
    found = parse_ensemble(THREE)
    assert found.servers == (
        Server(1, "zk1", 2888, 3888, 2181),
        Server(2, "zk2", 2888, 3888, 2181),
        Server(3, "::1", 2888, 3888, 2182, observer=True),
    )
    assert found.connect_string == "zk1:2181,zk2:2181,[::1]:2182"
    assert [each.line for each in found.servers] == [
        "zk1:2888:3888:participant", "zk2:2888:3888:participant", "[::1]:2888:3888:observer",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "at least one server that votes"),
        ("zk1:2888:3888", "'zk1:2888:3888' is not ID=HOST:PEER-PORT"),
        ("1=zk1:2888", "is not ID=HOST"),
        ("1=zk1:2888:3888:2181:leader", "is not ID=HOST"),
        ("1=::1:2888:3888", "IPv6 address stands in brackets"),
        ("1=a:1:2:3,1=b:1:2:3", "two servers have the id 1"),
        ("0=a:1:2:3", "server id 0 is not one of 1 to 255"),
        ("256=a:1:2:3", "server id 256"),
        ("1=a:0:2:3", "port 0 of server 1"),
        ("1=a:1:65536:3", "port 65536 of server 1"),
        ("1=a:1:1:3", "port 1 of a is named twice, by server 1 and 1"),
        ("1=a:1:2:3,2=a:4:5:3", "port 3 of a is named twice, by server 1 and 2"),
        ("1=a:1:2:3:observer", "all of these are observers"),
    ],
)
def test_what_is_refused(text, named):
    with pytest.raises(ConfigError, match=named):
        parse_ensemble(text)


@pytest.mark.parametrize(
    ("voters", "may_fail", "warned"), [(1, 0, "nothing goes on without it"), (2, 0, "no more than of 1"), (3, 1, None),
                                       (4, 1, "no more than of 3"), (5, 2, None)],
)  # fmt: skip
def test_how_many_may_fail(voters, may_fail, warned):
    servers = [f"{number}=h{number}:1:2:3" for number in range(1, voters + 1)]
    found = parse_ensemble(",".join([*servers, "9=h9:1:2:3:observer"]))
    assert (found.voters, found.may_fail) == (voters, may_fail)
    assert found.warning is None if warned is None else warned in found.warning


def test_a_member_is_found_by_its_id():
    found = parse_ensemble(THREE)
    assert found.server(2).host == "zk2"
    with pytest.raises(ConfigError, match="no server has the id 4; those named have 1, 2, 3"):
        found.server(4)
    assert found.with_client_port(2, 2199).connect_string == "zk1:2181,zk2:2199,[::1]:2182"
    assert found.with_client_port(2, None) is found
