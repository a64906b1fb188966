"""The client against a real ZooKeeper: what is refused, what is conditional, what goes with a session."""

import json
import queue
import socket
import threading
from dataclasses import replace
from uuid import UUID

import pytest
from kazoo.client import KazooClient, TransactionRequest
from kazoo.security import make_acl

from sparklog.errors import CoordinationError, MalformedZnode
from sparklog.security.acl.znode import decode_list
from sparklog.structs import Endpoint, TopicPartition
from sparklog.testing.eventually import eventually
from sparklog.zk import znodes
from sparklog.zk.client import Office, Session, ZkClient
from sparklog.zk.notifications import config_changes
from sparklog.zk.znodes import (
    BrokerInfo,
    PartitionState,
    TopicAssignment,
    delete_topic_path,
    topic_config_path,
    topic_entity,
    topic_path,
)

pytestmark = pytest.mark.integration

HERE = BrokerInfo(1, Endpoint("127.0.0.1", 9092))
TP = TopicPartition("t", 0)
STATE = PartitionState(1, 0, (1,), 1)


@pytest.fixture
def connect(chroot):
    """Opens sessions in this test's own tree."""
    sessions = []

    def open_session():
        events = queue.Queue()
        client = ZkClient(chroot, session_timeout=10.0, on_session=events.put)
        client.ensure_tree()
        sessions.append(client)
        return client, events

    yield open_session
    for client in sessions:
        client.close()


@pytest.fixture
def zk(connect):
    return connect()[0]


def expire(zk, zookeeper):
    """End the session behind the client's back, as the server does when it hears nothing."""
    thief = KazooClient(hosts=zookeeper.connect_string, client_id=zk._client.client_id)
    thief.start(timeout=60)
    thief.stop()
    thief.close()


def test_nobody_there_is_said_with_the_setting():
    with pytest.raises(CoordinationError, match=r"no ZooKeeper answers at 127\.0\.0\.1:1 .*zookeeper\.connect"):
        ZkClient("127.0.0.1:1", session_timeout=1.0, connect_timeout=0.3, on_session=lambda _: None)


@pytest.fixture
def hole():
    """``host:port`` that lets nobody in and refuses nobody, as a machine that has lost power."""
    with socket.socket() as server, socket.socket() as first, socket.socket() as second:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for each in (first, second):  # these fill the queue of connections that nobody accepts
            each.setblocking(False)
            each.connect_ex(server.getsockname())
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_member_that_is_silent_costs_its_share_of_the_time_only(chroot, hole, monkeypatch):
    monkeypatch.setattr("sparklog.zk.client.random.sample", lambda members, count: list(members))
    zk = ZkClient(f"{hole}, {chroot}", session_timeout=6.0, connect_timeout=5.5, on_session=lambda _: None)
    assert zk.session_id
    zk.close()


def test_members_are_tried_again_every_second_however_long_they_have_been_away(connect):
    zk, _ = connect()
    assert zk._client._conn_retry.max_delay == 1.0
    assert zk._client._conn_retry.max_tries == -1


def test_a_member_may_be_named_twice(zookeeper):
    twice = f"{zookeeper.connect_string}, {zookeeper.connect_string},/twice/"
    zk = ZkClient(twice, session_timeout=10.0, on_session=lambda _: None)
    zk.ensure_tree()
    assert zk.topics() == []
    zk.close()


def test_the_cluster_id_is_made_once(connect):
    (one, _), (two, _) = connect(), connect()
    assert one.cluster_id() == two.cluster_id() == one.cluster_id()
    assert len(one.cluster_id()) == 22


def test_a_broker_is_known_while_its_session_lives(connect):
    (one, _), (two, _) = connect(), connect()
    epoch = one.register_broker(HERE, 5)
    assert two.brokers() == {1: HERE._replace(epoch=epoch)}
    assert one.register_broker(HERE, 6) == epoch, "registering again is no change"
    one.close()
    assert two.brokers() == {}
    assert two.register_broker(HERE, 7) > epoch


def test_a_duplicate_broker_id_is_refused(connect):
    (one, _), (two, _) = connect(), connect()
    one.register_broker(HERE, 5)
    with pytest.raises(CoordinationError, match=r"broker id 1 is already registered .* another session"):
        two.register_broker(HERE._replace(endpoint=Endpoint("127.0.0.1", 9093)), 5)
    assert two.brokers()[1].endpoint == HERE.endpoint


def test_the_session_of_a_dead_broker_is_ended_with_all_that_it_held(connect):
    (dead, _), (here, _) = connect(), connect()
    dead.register_broker(HERE, 5)
    dead.try_become_controller(1, 5)
    assert here.broker_owner(1) == dead.session_id
    here.end_session(dead.session)
    assert (here.brokers(), here.controller(), here.broker_owner(1)) == ({}, None, None)
    here.end_session(dead.session)  # ended already
    here.register_broker(HERE, 6)
    here.end_session(Session(here.session_id, b"not its password"))
    assert 1 in here.brokers()


def test_an_expired_session_takes_its_ephemerals_and_is_told(connect, zookeeper):
    (one, events), (two, _) = connect(), connect()
    assert events.get(timeout=60) == "connected"
    one.register_broker(HERE, 5)
    gone = threading.Event()
    assert 1 in two.brokers(gone.set)
    expire(one, zookeeper)
    assert gone.wait(60)
    assert two.brokers() == {}
    told = [events.get(timeout=60)]
    while told[-1] != "connected":
        told.append(events.get(timeout=60))
    assert "expired" in told
    one.register_broker(HERE, 6)
    assert 1 in two.brokers()


def test_one_controller_at_a_time_each_with_a_higher_epoch(connect):
    (one, _), (two, _) = connect(), connect()
    first = one.try_become_controller(1, 5)
    assert two.try_become_controller(2, 5) is None
    assert two.controller() == 1
    one.close()
    second = two.try_become_controller(2, 6)
    assert second[0] == first[0] + 1
    assert second[1] > first[1]
    assert two.controller() == 2


def test_many_candidates_at_once_elect_one(connect):
    clients = [connect()[0] for _ in range(4)]
    results, start = [None] * 4, threading.Barrier(4)

    def stand(number):
        start.wait()
        results[number] = clients[number].guarded(clients[number].try_become_controller, number, 5)

    threads = [threading.Thread(target=stand, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(result is not None for result in results) == 1
    assert results[clients[0].controller()] is not None


def test_the_office_is_taken_from_the_controller_that_is_meant_and_no_other(connect):
    (one, _), (two, _) = connect(), connect()
    first, _ = one.try_become_controller(1, 5)
    assert two.try_become_controller(2, 5, Office(1, first - 1)) is None
    assert two.try_become_controller(2, 5, Office(1, first))[0] == first + 1
    assert two.office() == Office(2, first + 1)
    assert one.try_become_controller(1, 6, Office(1, first)) is None
    assert not one.give_up_controller()
    two.give_up_controller()
    assert one.try_become_controller(1, 6, Office(2, first + 1)) is None  # it is vacant: to be had without that


def test_the_controllers_coming_and_going_is_watched(connect):
    (one, _), (two, _) = connect(), connect()
    for change in (lambda: one.try_become_controller(1, 5), one.close):
        changed = threading.Event()
        two.controller(changed.set)
        change()
        assert changed.wait(60)


def test_a_watch_fires_once_and_tells_of_what_was_asked(connect):
    (one, _), (two, _) = connect(), connect()
    fired = queue.Queue()
    two.topics(lambda: fired.put("topics"))
    two.topics_to_delete(lambda: fired.put("deletions"))
    one.create_topic(TopicAssignment("t", {0: (1,)}), {})
    assert fired.get(timeout=60) == "topics"
    one.create_topic(TopicAssignment("u", {0: (1,)}), {})
    one.request_topic_deletion("t")
    assert fired.get(timeout=60) == "deletions"


def test_a_topics_life(zk):
    topic = TopicAssignment("t", {0: (1,), 1: (2,)}, UUID(int=5))
    assert zk.create_topic(topic, {"retention.ms": "5"})
    assert not zk.create_topic(TopicAssignment("t", {0: (9,)}), {"retention.ms": "6"})
    assert zk.topics() == ["t"]
    assert zk.assignment("t") == topic
    assert zk.topic_config("t") == {"retention.ms": "5"}
    zk.request_topic_deletion("t")
    zk.request_topic_deletion("t")
    assert zk.topics_to_delete() == {"t": None}
    _, version = zk.try_become_controller(1, 5)
    zk.forget_topic("t", version)
    zk.forget_topic("t", version)
    assert (zk.topics(), zk.topics_to_delete(), zk.assignment("t"), zk.topic_config("t")) == ([], {}, None, {})


def controller_of(zk):
    _, version = zk.try_become_controller(1, 5)
    zk.create_topic(TopicAssignment("t", dict.fromkeys(range(3), (1,))), {})
    return version


def test_a_state_is_written_only_over_the_version_that_was_read(zk):
    version = controller_of(zk)
    written = zk.write_partition_states({TP: STATE}, version)
    assert written[TP].version == 0
    assert zk.partition_states([TP, TopicPartition("t", 1)]) == {TP: STATE}
    again = PartitionState(1, 1, (1,), 1, written[TP].version)
    assert zk.write_partition_states({TP: again}, version)[TP].version == 1
    assert zk.write_partition_states({TP: again}, version) == {}, "a version that is past"
    assert zk.write_partition_states({TP: STATE}, version) == {}, "made already"
    assert zk.partition_states([TP])[TP].leader_epoch == 1


def test_whether_a_broker_has_registered_since_a_state_was_written_is_told(zk):
    version = controller_of(zk)
    before = zk.register_broker(HERE._replace(id=8), 1)
    zk.write_partition_states({TP: STATE}, version)
    found = zk.partition_states([TP])[TP]
    since = zk.register_broker(HERE._replace(id=9), 1)
    assert before < found.zxid < since


def states_beside(zk, *partitions):
    return zk.beside(zk.partition_states(partitions))


def test_who_is_eligible_is_written_with_the_state_and_read_beside_it(zk):
    version = controller_of(zk)
    state = zk.write_partition_states({TP: STATE}, version)[TP]
    assert states_beside(zk, TP) == {TP: STATE}
    for eligible, last_known in (((2, 3), ()), ((3,), (1,)), ((), (1,))):
        wanted = replace(state, eligible=eligible, last_known=last_known, min_isr=2)
        state = zk.write_partition_states({TP: wanted}, version)[TP]
        found = states_beside(zk, TP)[TP]
        assert (found, found.min_isr, found.version) == (wanted, 2, state.version)
    state = zk.write_partition_states({TP: replace(state, last_known=())}, version)[TP]
    assert states_beside(zk, TP) == {TP: STATE}, "what was written beside an older state counts no more"


def test_who_is_eligible_is_disbelieved_when_kafkas_controller_has_changed_the_state(zk):
    version = controller_of(zk)
    zk.write_partition_states({TP: replace(STATE, eligible=(2,))}, version)
    path = znodes.partition_state_path(TP)
    zk._client.set(path, znodes.encode_partition_state(STATE))
    assert states_beside(zk, TP) == {TP: STATE}


def test_a_conflict_leaves_what_stands_beside_the_state_as_it_is(zk):
    version = controller_of(zk)
    state = zk.write_partition_states({TP: replace(STATE, eligible=(2,))}, version)[TP]
    assert zk.write_partition_states({TP: replace(state, version=7, eligible=(3,))}, version) == {}
    assert states_beside(zk, TP)[TP].eligible == (2,)


def test_who_is_eligible_is_written_over_what_another_controller_wrote_and_goes_with_the_topic(connect):
    (old, _), (new, _) = connect(), connect()
    version = controller_of(old)
    old.write_partition_states({TP: replace(STATE, eligible=(2,))}, version)
    state = new.partition_states([TP])[TP]
    assert new.write_partition_states({TP: replace(state, eligible=(3,))}, version)
    assert states_beside(old, TP)[TP].eligible == (3,)
    new.forget_topic("t", version)
    new.create_topic(TopicAssignment("t", {0: (1,)}), {})
    assert old.write_partition_states({TP: STATE}, version)
    assert states_beside(old, TP) == {TP: STATE}
    old.forget_topic("t", version)
    new.create_topic(TopicAssignment("t", {0: (1,)}), {})
    assert new.write_partition_states({TP: replace(STATE, eligible=(2,))}, version), (
        "of the former topic it knew another"
    )
    assert states_beside(old, TP)[TP].eligible == (2,)


def test_what_cannot_be_read_beside_a_state_makes_nobody_eligible(zk):
    version = controller_of(zk)
    zk.write_partition_states({TP: replace(STATE, eligible=(2,))}, version)
    for data in (b"", b"{}", b'{"state_version":0,"min_isr":1,"eligible":["x"],"last_known":[]}'):
        zk._client.set(znodes.eligible_path(TP), data)
        assert states_beside(zk, TP) == {TP: STATE}


def test_the_epochs_of_kafkas_controllers_are_known(zk):
    assert zk.foreign_terms(1) == range(0), "nothing is known of who was in office before the first of ours"
    for epoch, foreign in ((1, []), (2, []), (6, [3, 4, 5]), (7, [])):
        if epoch > 1:
            zk._client.set(znodes.CONTROLLER_EPOCH, str(epoch - 1).encode())
        assert zk.try_become_controller(1, 0)[0] == epoch
        assert list(zk.foreign_terms(epoch)) == foreign
        assert list(zk.foreign_terms(epoch + 1)) == [], "of another term nothing is told"
        assert zk.give_up_controller()
    zk._client.set(znodes.TERMS, b"[]")
    assert zk.try_become_controller(1, 0)[0] == 8
    assert list(zk.foreign_terms(8)) == []


def test_lives_are_noted_by_the_controller_in_office(zk):
    version = controller_of(zk)
    assert zk.lives() == {}
    zk.write_lives({2: 70, 1: 5}, version)
    assert zk.lives() == {1: 5, 2: 70}
    with pytest.raises(CoordinationError, match="epoch is stale"):
        zk.write_lives({1: 6}, version + 1)
    zk._client.set(znodes.LIVES, b"[]")
    assert zk.lives() == {}


def test_the_settings_of_many_topics_are_read_at_once(zk):
    zk.create_topic(TopicAssignment("t", {0: (1,)}), {"retention.ms": "7"})
    zk.create_topic(TopicAssignment("bad", {0: (1,)}), {})
    zk._client.set(znodes.topic_config_path("bad"), b"{")
    assert zk.topic_configs(["t", "bad", "none"]) == {"t": {"retention.ms": "7"}, "none": {}}


def test_one_partitions_conflict_does_not_hold_up_the_others(zk):
    version = controller_of(zk)
    zk.write_partition_states({TP: STATE}, version)
    others = [TopicPartition("t", number) for number in (1, 2)]
    written = zk.write_partition_states({TP: STATE} | dict.fromkeys(others, STATE), version)
    assert sorted(written) == others


def test_states_are_written_together(zk, monkeypatch):
    version = controller_of(zk)
    states = {TopicPartition("t", number): STATE for number in range(250)}
    commit, committed = TransactionRequest.commit_async, []

    def counted(self):
        committed.append(len(self.operations))
        return commit(self)

    written = zk.write_partition_states(states, version)
    monkeypatch.setattr(TransactionRequest, "commit_async", counted)
    stale = {TopicPartition("t", 7): replace(STATE, version=7)}
    assert set(zk.write_partition_states(written | stale, version)) == set(states) - set(stale)
    assert sorted(committed) == [*[2] * 100, 51, 101, 101], (
        "of one that does not stand as expected, each again by itself"
    )


def test_a_stale_controller_is_refused(connect):
    (old, _), (new, _) = connect(), connect()
    old_version = controller_of(old)
    old._client.delete("/controller")
    assert new.try_become_controller(2, 6)
    with pytest.raises(CoordinationError, match="epoch is stale"):
        old.write_partition_states({TP: STATE}, old_version)
    assert new.partition_states([TP]) == {}


def test_many_states_at_once(zk):
    _, version = zk.try_become_controller(1, 5)
    zk.create_topic(TopicAssignment("t", {0: (1,)}), {})
    states = {TopicPartition("t", number): STATE for number in range(1200)}
    assert len(zk.write_partition_states(states, version)) == 1200
    assert len(zk.partition_states(states)) == 1200
    zk.forget_topic("t", version)
    assert (zk.topics(), zk.partition_states(states)) == ([], {})


def test_a_deposed_controller_writes_nothing_at_all(connect):
    (old, _), (new, _) = connect(), connect()
    old_version = controller_of(old)
    old.write_partition_states({TP: STATE}, old_version)
    new.request_topic_deletion("t")
    new.request_topic_deletion("never")
    new.report_log_dir_failure(1)
    assert old.give_up_controller()
    assert new.try_become_controller(2, 6)
    tree = new._below("")
    for write in (
        lambda: old.forget_topic("t", old_version),
        lambda: old.forget_deletion("never", old_version),
        lambda: old.forget_log_dir_events(old.log_dir_events(), old_version),
        lambda: old.write_partition_states(
            {TopicPartition("t", 1): STATE, TopicPartition("gone", 0): STATE}, old_version
        ),
        lambda: old.add_partitions(TopicAssignment("t", dict.fromkeys(range(5), (1,))), old_version),
    ):
        with pytest.raises(CoordinationError, match="another controller"):
            write()
    assert not old.give_up_controller()
    assert new._below("") == tree


def test_a_topic_that_is_gone_is_not_brought_back_by_its_states(zk):
    version = controller_of(zk)
    assert zk.write_partition_states({TopicPartition("gone", 0): STATE}, version) == {}
    assert zk.topics() == ["t"]


def test_a_request_to_delete_what_was_never_there_is_dropped_and_a_topic_made_since_kept(zk):
    version = controller_of(zk)
    for name in ("never", "t"):
        zk.request_topic_deletion(name)
        zk.forget_deletion(name, version)
    assert zk.topics_to_delete() == {"t": None}
    assert zk.topics() == ["t"]


def test_a_request_to_delete_by_id_is_of_that_topic_alone(zk):
    version = controller_of(zk)
    assert zk.create_topic(TopicAssignment("u", {0: (1,)}, UUID(int=5)), {})
    zk.request_topic_deletion("u", UUID(int=5))
    zk.forget_deletion("u", version)
    assert zk.topics_to_delete() == {"u": UUID(int=5)}
    zk.forget_topic("u", version)
    assert zk.create_topic(TopicAssignment("u", {0: (1,)}, UUID(int=6)), {})
    zk.request_topic_deletion("u", UUID(int=5))
    zk.forget_deletion("u", version)
    assert zk.topics_to_delete() == {}
    zk.request_topic_deletion("u", UUID(int=5))
    zk.request_topic_deletion("u")
    assert zk.topics_to_delete() == {"u": None}, "whichever it is"


def test_a_request_to_delete_as_kafka_makes_it_has_no_data_at_all(zk):
    zk._client.create(delete_topic_path("t"), None, makepath=True)
    assert zk._client.get(delete_topic_path("t"))[0] is None
    assert zk.topics_to_delete() == {"t": None}
    zk.forget_deletion("t", controller_of(zk))
    assert zk.topics_to_delete() == {"t": None}


@pytest.mark.parametrize("read", ["topics", "settings"])
def test_a_znode_without_any_data_is_malformed(zk, read):
    topic = "without"
    path = topic_path(topic) if read == "topics" else topic_config_path(topic)
    zk._client.create(path, None, makepath=True)
    with pytest.raises(MalformedZnode, match=path):
        zk.assignment(topic) if read == "topics" else zk.config(topic_entity(topic))


def test_the_office_is_told_with_its_epoch(connect):
    (one, _), (two, _) = connect(), connect()
    assert two.office() == Office(-1, -1)
    for epoch in (1, 2):
        one.try_become_controller(7, 5)
        assert two.office() == Office(7, epoch)
        one.give_up_controller()
        assert two.office() == Office(-1, epoch)


def test_of_many_who_make_a_topic_one_does_and_its_settings_are_in_force(connect):
    clients = [connect()[0] for _ in range(4)]
    for round_ in range(5):
        name, start, made = f"t{round_}", threading.Barrier(4), {}

        def make(number, name=name, start=start, made=made):
            topic = TopicAssignment(name, {0: (number,)}, UUID(int=number + 1))
            start.wait()
            made[number] = clients[number].create_topic(topic, {"retention.ms": str(number)})

        threads = [threading.Thread(target=make, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        [winner] = [number for number, done in made.items() if done]
        assert clients[0].assignment(name).partitions == {0: (winner,)}
        assert clients[0].topic_config(name) == {"retention.ms": str(winner)}


def test_settings_that_are_left_of_another_topic_are_replaced(zk):
    zk.change_config("topics/t", lambda _: {"retention.ms": "1"})
    assert zk.create_topic(TopicAssignment("t", {0: (1,)}), {})
    assert zk.topic_config("t") == {}


def test_a_failed_log_directory_is_reported_until_a_controller_has_taken_it_up(connect):
    (broker, _), (controller, _) = connect(), connect()
    version = controller_of(controller)
    told = threading.Event()
    assert controller.log_dir_events(told.set) == {}
    broker.report_log_dir_failure(7)
    assert told.wait(60)
    broker._client.create("/log_dir_event_notification/log_dir_event_x", b"?")
    events = controller.log_dir_events()
    assert sorted(events.values()) == [-1, 7]
    controller.forget_log_dir_events(events, version)
    assert controller.log_dir_events() == {}


def test_a_watch_set_again_is_told_once(zk):
    told = queue.Queue()

    def changed():
        told.put("changed")

    for _ in range(3):
        zk.topics(changed)
    zk.topics_to_delete(lambda: told.put("last"))
    zk.create_topic(TopicAssignment("t", {0: (1,)}), {})
    zk.request_topic_deletion("t")
    assert [told.get(timeout=60) for _ in range(2)] == ["changed", "last"]


def test_producer_ids_are_given_once(connect):
    (one, _), (two, _) = connect(), connect()
    blocks = [client.take_producer_ids(1, 100) for client in (one, two, one)]
    assert [(block.start, block.stop) for block in blocks] == [(0, 100), (100, 200), (200, 300)]


def test_a_failure_of_zookeeper_is_a_coordination_error(zk):
    zk._client.create("/brokers/topics/bad", b"{}")
    with pytest.raises(CoordinationError, match="/brokers/topics/bad"):
        zk.assignment("bad")
    zk.close()
    with pytest.raises(CoordinationError, match="ZooKeeper: "):
        zk.guarded(zk.topics)


def test_a_lost_connection_is_found_again(connect, zookeeper):
    zk, events = connect()
    zk._client._connection._socket.shutdown(2)
    seen = []
    eventually(lambda: seen.append(events.get(timeout=60)) or seen[-2:] == ["suspended", "connected"])
    assert zk.topics() == []


def test_a_changed_setting_is_kept_with_the_others_and_told_of(zk):
    fired = queue.Queue()
    assert config_changes(zk).numbers(lambda: fired.put("told")) == []
    zk.change_config("topics/t", lambda stored: stored | {"a": "1"})
    assert fired.get(timeout=60) == "told"
    zk.change_config("topics/t", lambda stored: stored | {"b": "2"})
    zk.change_config("brokers/<default>", lambda stored: {})
    assert zk.config("topics/t") == zk.topic_config("t") == {"a": "1", "b": "2"}
    assert zk.config("brokers/<default>") == zk.config("brokers/7") == {}
    numbers = config_changes(zk).numbers()
    assert [config_changes(zk).name(number) for number in numbers] == ["topics/t", "topics/t", "brokers/<default>"]
    config_changes(zk).forget(3_600_000)
    assert config_changes(zk).numbers() == numbers
    config_changes(zk).forget(-1)
    assert (config_changes(zk).numbers(), config_changes(zk).name(numbers[0])) == ([], None)
    zk.change_config("topics/t", lambda stored: stored)
    assert config_changes(zk).numbers() == [numbers[-1] + 1]
    config_changes(zk).forget(-1)
    config_changes(zk).forget(-1)  # there is none


def test_settings_of_users_clients_and_addresses_are_read_together(zk):
    for entity in ("users/a", "users/<default>", "users/b/clients/c", "users/<default>/clients/<default>", "ips/::1"):
        zk.change_entity_config(entity, {"x": entity})
    zk._client.create("/config/users/bad", b"{")
    users = zk.entity_configs("users")
    assert users.pop("users/bad") is None
    assert users.pop("users/b") == {}  # it stands there for its client id alone
    assert users == {
        entity: {"x": entity}
        for entity in ("users/a", "users/<default>", "users/b/clients/c", "users/<default>/clients/<default>")
    }
    assert zk.entity_configs("clients") == {}
    assert zk.entity_configs("ips") == {"ips/::1": {"x": "ips/::1"}}
    assert zk.config("users/b") == {}


def test_a_change_of_some_settings_leaves_those_of_others_and_tells_of_itself(zk):
    zk.change_entity_config("users/a", {"x": "1", "y": "2"})
    zk.change_entity_config("users/a", {"x": None, "z": "3", "none": None})
    assert zk.config("users/a") == {"y": "2", "z": "3"}
    assert json.loads(zk.data("/config/users/a")) == {"version": 1, "config": {"y": "2", "z": "3"}}
    numbers = config_changes(zk).numbers()
    assert len(numbers) == 2
    assert json.loads(zk.data(f"/config/changes/config_change_{numbers[1]:010d}")) == {
        "version": 2,
        "entity_path": "users/a",
    }


def test_administrators_of_one_user_do_not_lose_each_others_settings(connect):
    clients = [connect()[0] for _ in range(4)]

    def change(client, number):
        for _ in range(10):
            client.change_entity_config("users/a", {f"x{number}": "1"})
            client.change_entity_config("users/a", {f"x{number}": None, f"y{number}": "2"})

    threads = [threading.Thread(target=change, args=(each, number)) for number, each in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clients[0].config("users/a") == {f"y{number}": "2" for number in range(4)}


def test_an_entity_without_settings_goes_with_what_stood_there_for_it_alone(zk):
    zk.change_entity_config("users/a", {"x": "1"})
    zk.change_entity_config("users/a/clients/c", {"x": "1"})
    zk.change_entity_config("users/a", {"x": None})
    assert json.loads(zk.data("/config/users/a")) == {"version": 1, "config": {}}
    zk.change_entity_config("users/a/clients/c", {"x": None})
    assert zk.names("/config/users") == []
    zk.change_entity_config("users/b", {"x": "1"})
    zk.change_entity_config("users/b/clients/c", {"x": "1"})
    zk.change_entity_config("users/b/clients/c", {"x": None})
    assert (zk.names("/config/users"), zk.names("/config/users/b")) == (["b"], [])
    numbers = config_changes(zk).numbers()
    zk.change_entity_config("users/none", {"x": None})
    assert config_changes(zk).numbers() == numbers
    assert len(numbers) == 7


def test_what_strangers_put_beside_what_was_told_does_no_harm(zk):
    for name in (
        "garbage",
        "config_change_",
        "config_change_5",
        "config_change_-000000000",
        "config_change_x000000001",
    ):
        zk._client.create(f"/config/changes/{name}")
    zk._client.create("/config/changes/config_change_2147483647")
    zk.change_config("topics/t", lambda stored: stored)
    numbers = config_changes(zk).numbers()
    assert len(numbers) == 2
    config_changes(zk).forget(-1)
    assert config_changes(zk).numbers() == []


def test_a_path_that_cannot_be_is_malformed(zk):
    for entity in ("users/../x", "users/.", "users//x", "", "/", "topics/a\0b", "users/\ud800", "a/b/"):
        told = znodes.encode_config_change(entity)
        path = zk._client.create("/config/changes/config_change_", told, sequence=True)
        with pytest.raises(MalformedZnode):
            config_changes(zk).name(int(path[-10:]))


def test_a_znode_that_is_anothers_is_one_that_cannot_be_read(zk):
    nobodys = [make_acl("ip", "192.0.2.1", all=True)]
    for path in ("/config/users/alice", "/config/changes/config_change_0000000000", "/kafka-acl/Topic/t"):
        zk.ensure([path.rpartition("/")[0]])
        zk._client.create(path, b"{}", nobodys)
    zk.change_config("users/bob", lambda stored: {"a": "1"})
    for read in (
        lambda: zk.config("users/alice"),
        lambda: config_changes(zk).name(0),
        lambda: zk.stored("/kafka-acl/Topic/t"),
    ):
        with pytest.raises(MalformedZnode, match="another's"):
            zk.guarded(read)
    assert zk.entity_configs("users") == {"users/alice": None, "users/bob": {"a": "1"}}
    (found,) = zk.stored_each(["/kafka-acl/Topic/t"])
    with pytest.raises(MalformedZnode):
        decode_list("/kafka-acl/Topic/t", found.data)


def test_what_was_told_of_settings_ages_by_zookeepers_clock_alone(zk, monkeypatch):
    for _ in range(4):
        zk.change_config("topics/t", lambda stored: stored)
    numbers = config_changes(zk).numbers()
    told_ms = dict(
        zip((f"/config/changes/config_change_{each:010d}" for each in numbers), (5000, 10, 11, 1011), strict=True)
    )  # in 1970, and set back once
    exists = zk._client.exists
    monkeypatch.setattr(zk._client, "exists", lambda path: exists(path)._replace(ctime=told_ms[path]))
    config_changes(zk).forget(1000)
    assert config_changes(zk).numbers() == [numbers[0], *numbers[2:]]


@pytest.mark.parametrize("there_before", [True, False])
def test_a_setting_changed_by_another_meanwhile_is_not_lost(connect, there_before):
    (one, _), (two, _) = connect(), connect()
    if there_before:
        one.change_config("topics/t", lambda stored: {"a": "1"})
    others = [{"theirs": "2"}]

    def change(stored):
        if others:
            theirs = others.pop()
            two.change_config("topics/t", lambda stored: stored | theirs)
        return stored | {"ours": "3"}

    one.change_config("topics/t", change)
    assert one.config("topics/t") == ({"a": "1"} if there_before else {}) | {"theirs": "2", "ours": "3"}
    numbers = config_changes(one).numbers()
    assert numbers == [*range(len(numbers))], "a number that is missing would mean a change that was missed"


def test_a_change_that_is_refused_leaves_no_trace(zk):
    def refuse(stored):
        raise CoordinationError("no")

    with pytest.raises(CoordinationError):
        zk.change_config("topics/t", refuse)
    assert (zk.config("topics/t"), config_changes(zk).numbers()) == ({}, [])


def test_partitions_are_added_beside_all_else_that_the_topic_has(zk):
    version = controller_of(zk)
    path = topic_path("t")
    raw = json.loads(zk._client.get(path)[0])
    zk._client.set(path, json.dumps(raw | {"topic_id": "AAAAAAAAAAAAAAAAAAAABQ", "foreign": 1}).encode())
    zk.add_partitions(TopicAssignment("t", dict.fromkeys(range(5), (1,))), version)
    grown = json.loads(zk._client.get(path)[0])
    assert grown == raw | {
        "topic_id": "AAAAAAAAAAAAAAAAAAAABQ",
        "foreign": 1,
        "partitions": {str(number): [1] for number in range(5)},
    }


def test_partitions_are_added_by_the_controller_only_and_never_in_place_of_others(zk):
    version = controller_of(zk)
    grown = TopicAssignment("t", dict.fromkeys(range(5), (1,)))
    with pytest.raises(CoordinationError, match="another controller"):
        zk.add_partitions(grown, version + 1)
    for other in ({0: (1,)}, dict.fromkeys(range(5), (2,))):
        with pytest.raises(CoordinationError, match="changed meanwhile"):
            zk.add_partitions(TopicAssignment("t", other), version)
    assert len(zk.assignment("t").partitions) == 3


def test_no_level_of_logging_writes_what_znodes_hold(connect, caplog):
    caplog.set_level(1, "kazoo.client")
    zk, _ = connect()
    zk.change_config("users/alice", lambda _: {"SCRAM-SHA-256": "stored_key=secret"})
    assert zk.config("users/alice") == {"SCRAM-SHA-256": "stored_key=secret"}
    assert "GetData" in caplog.text
    assert "secret" not in caplog.text
    assert zk._client.client_id[1].hex() not in caplog.text
