"""Members of an ensemble: what directory is whose, and what ZooKeeper is told. Real ones run in test_ensemble.py."""

import socket

import pytest

from sparklog.errors import ConfigError
from sparklog.local.ensemble import parse_ensemble
from sparklog.local.member import EnsembleMember
from sparklog.local.ports import free_port
from sparklog.local.process import ChildProcess
from sparklog.zk.client import ZkClient


def has_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def ensemble(*more):
    ports = ":".join(str(free_port()) for _ in range(3))
    return parse_ensemble(",".join([f"1=127.0.0.1:{ports}", "2=127.0.0.2:2888:3888", "3=127.0.0.3:2888:3888", *more]))


@pytest.fixture
def started(monkeypatch):
    """Members whose JVM is not run: the commands that would have been."""
    commands = []
    monkeypatch.setattr("sparklog.local.process.ChildProcess.spawn", lambda _, command: commands.append(command))
    return commands


def settings_in(directory):
    return dict(line.split("=", 1) for line in (directory / "zoo.cfg").read_text().splitlines())


def test_what_zookeeper_is_told(tmp_path, started):
    members = ensemble("4=127.0.0.4:2888:3888:2181:observer")
    EnsembleMember(tmp_path, members, 1, more={"snapCount": "1000", "autopurge.snapRetainCount": "7"}).spawn()
    assert (tmp_path / "myid").read_text() == "1\n"
    told = settings_in(tmp_path)
    own = members.server(1)
    assert told["clientPort"] == str(own.client_port)
    assert told["server.1"] == f"127.0.0.1:{own.peer_port}:{own.election_port}:participant"
    assert told["server.4"] == "127.0.0.4:2888:3888:observer"
    assert (told["tickTime"], told["initLimit"], told["syncLimit"]) == ("2000", "15", "5")
    assert told["4lw.commands.whitelist"] == "srvr,ruok,mntr"
    assert (told["autopurge.purgeInterval"], told["autopurge.snapRetainCount"]) == ("1", "7")
    assert told["snapCount"] == "1000"
    assert "reconfigEnabled" not in told
    assert "peerType" not in told
    (command,) = started
    assert command[-2:] == ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(tmp_path / "zoo.cfg")]


@pytest.mark.parametrize(
    ("observers", "lines", "told_else"),
    [("", set(), {}), (",2=127.0.0.2:2888:3888:observer", {"server.1", "server.2"}, {"standaloneEnabled": "false"})],
)
def test_one_server_that_votes_is_no_ensemble_unless_others_observe(tmp_path, started, observers, lines, told_else):
    ports = ":".join(str(free_port()) for _ in range(3))
    EnsembleMember(tmp_path, parse_ensemble(f"1=127.0.0.1:{ports}{observers}"), 1).spawn()
    told = settings_in(tmp_path)
    assert {name for name in told if name.startswith("server.")} == lines
    assert {name: value for name, value in told.items() if name == "standaloneEnabled"} == told_else


@pytest.mark.parametrize(
    ("found", "named"),
    [
        ({"myid": "2\n"}, "is the directory of member '2', not of 1"),
        ({"myid": ""}, "is the directory of member '', not of 1"),
        ({"version-2/snapshot.0": ""}, "that was no member of an ensemble .there is no myid.*or write 1 into"),
    ],
)
def test_a_directory_of_another_is_refused_and_left_alone(tmp_path, started, found, named):
    for name, text in found.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=named):
        EnsembleMember(tmp_path, ensemble(), 1).spawn()
    assert not started
    assert {
        str(each.relative_to(tmp_path)): each.read_text() for each in tmp_path.rglob("*") if each.is_file()
    } == found


def test_its_own_directory_is_taken_again(tmp_path, started):
    EnsembleMember(tmp_path, ensemble(), 1).spawn()
    (tmp_path / "version-2").mkdir()
    EnsembleMember(tmp_path, ensemble(), 1).spawn()
    assert len(started) == 2


@pytest.mark.parametrize("which", ["peer_port", "election_port", "client_port"])
def test_a_port_in_use_is_named_and_nothing_is_written(tmp_path, started, which):
    members = ensemble()
    port = getattr(members.server(1), which)
    named = f"port {port} on 127.0.0.1, wanted by ZooKeeper 1, is in use"
    with socket.create_server(("127.0.0.1", port)), pytest.raises(ConfigError, match=named):
        EnsembleMember(tmp_path / "new", members, 1).spawn()
    assert not started
    assert not (tmp_path / "new").exists()


def test_an_address_of_another_machine_is_refused_unless_it_listens_everywhere(tmp_path, started):
    members = parse_ensemble(f"1=192.0.2.1:{free_port()}:{free_port()}:{free_port()}")
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1 is not an address of this machine"):
        EnsembleMember(tmp_path, members, 1).spawn()
    EnsembleMember(tmp_path, members, 1, host="0.0.0.0").spawn()
    assert settings_in(tmp_path)["quorumListenOnAllIPs"] == "true"
    assert settings_in(tmp_path)["clientPortAddress"] == "0.0.0.0"


@pytest.mark.parametrize("name", ["dataDir", "clientPort", "server.4", "reconfigEnabled"])
def test_what_the_arguments_say_is_not_set_twice(tmp_path, name):
    with pytest.raises(ConfigError, match=f"{name} is set by the options"):
        EnsembleMember(tmp_path, ensemble(), 1, more={name: "x"})


@pytest.mark.parametrize(
    ("said", "advised"),
    [
        ("Unable to load database on disk No snapshot found", True),
        ("Unable to load database on disk No space left on device", False),
        ("Exiting JVM with code 1", False),
    ],
)
def test_what_to_do_is_said_where_data_cannot_be_read(tmp_path, monkeypatch, said, advised):
    monkeypatch.setattr(ChildProcess, "output", lambda _: said)
    member = EnsembleMember(tmp_path, ensemble(), 1)
    assert (f"move {tmp_path}/version-2 away while the others serve" in member.fate) is advised


@pytest.mark.integration
@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 address of its own")
def test_a_server_and_a_broker_meet_at_an_ipv6_address(tmp_path):
    members = parse_ensemble(f"1=[::1]:{free_port('::1')}:{free_port('::1')}:{free_port('::1')}")
    with EnsembleMember(tmp_path, members, 1, tick_time_ms=500, fsync=False) as server:
        assert server.connect_string == members.connect_string == f"[::1]:{server.port}"
        assert server.mode == "standalone"
        client = ZkClient(f" {server.connect_string} ,/below/", session_timeout=20.0, on_session=lambda _: None)
        assert len(client.cluster_id()) == 22
        client.close()
