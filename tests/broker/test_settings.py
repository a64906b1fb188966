"""Settings that change while a broker runs: taken over in order, none missed, whatever else goes wrong."""

import asyncio

import pytest
from broker.fake_notifications import FakeNotifications

from sparklog.broker.settings import Settings
from sparklog.config.broker import parse_broker_config
from sparklog.errors import CoordinationError, MalformedZnode


class FakeZk:
    """What ZooKeeper holds; ``tell`` writes a change, and fires the watch unless it is ``lost``."""

    def __init__(self):
        self.configs = self
        self.stored = {}
        self.changes = FakeNotifications()
        self.failures = 0
        self.malformed = set()

    def of(self, entity):
        if self.failures:
            self.failures -= 1
            raise CoordinationError("ZooKeeper: ConnectionLoss")
        if entity in self.malformed:
            raise MalformedZnode(f"znode /config/{entity} does not hold JSON")
        return self.stored.get(entity, {})

    def of_topic(self, topic):
        return self.of(f"topics/{topic}")

    def of_kind(self, kind):
        found = [entity for entity in self.stored if entity.startswith(f"{kind}/")]
        return {entity: None if entity in self.malformed else self.stored[entity] for entity in found}

    def of_topics(self, topics):
        return {each: self.of_topic(each) for each in topics if f"topics/{each}" not in self.malformed}

    def tell(self, entity, *, lost=False, **properties):
        self.stored[entity] = {name.replace("_", "."): value for name, value in properties.items()}
        self.changes.tell(entity, lost=lost)


class FakeReplicas:
    def __init__(self, *topics):
        self.configs = dict.fromkeys(topics)
        self.changed = []
        """What the broker's controller is told: topics, None for all of them."""

    def topics(self):
        return set(self.configs)

    def configure(self, topic, config):
        self.configs[topic] = config

    def remember_producers(self, expiration_ms):
        self.remembered_ms = expiration_ms


@pytest.fixture
def following():
    """Runs ``test(zk, replicas, settings)`` with settings that follow ``zk``."""

    def run(test):
        async def main():
            zk, replicas = FakeZk(), FakeReplicas("t", "u")

            async def run_zk(call, *args):
                await asyncio.sleep(0)
                return call(*args)

            config = parse_broker_config({"broker.id": "1", "log.retention.ms": "100"})
            settings = Settings(config, zk, zk.changes, run_zk)
            await settings.load()
            settings.follow(replicas, on_topic_change=replicas.changed.append)
            try:
                await test(zk, replicas, settings)
            finally:
                await settings.close()

        asyncio.run(main())

    return run


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def test_a_number_that_a_stranger_chose_hides_no_change(following):
    async def test(zk, replicas, settings):
        zk.changes.told[(1 << 31) - 1] = "users/eve"
        told = []
        settings.tell_of_entities(lambda entity, properties: told.append((entity, dict(properties))))
        zk.tell("users/eve", a="1")
        await until(lambda: ("users/eve", {"a": "1"}) in told)
        zk.tell("users/eve")
        await until(lambda: ("users/eve", {}) in told)

    following(test)


def test_what_is_told_is_taken_over_by_those_it_concerns(following):
    async def test(zk, replicas, settings):
        await until(lambda: zk.changes.watch)
        zk.tell("topics/t", retention_ms="5")
        await until(lambda: replicas.configs["t"])
        assert replicas.configs["t"].retention_ms == 5
        assert replicas.configs.get("u") is None
        zk.tell("brokers/2", log_retention_ms="7")
        zk.tell("brokers/<default>", log_retention_ms="6", log_roll_ms="60")
        await until(lambda: replicas.configs["u"])
        await until(lambda: replicas.configs["t"].segment_ms == 60)
        assert (replicas.configs["t"].retention_ms, replicas.configs["u"].retention_ms) == (5, 6)
        zk.tell("brokers/1", log_retention_ms="8")
        await until(lambda: replicas.configs["u"].retention_ms == 8)
        assert settings.topic_defaults.retention_ms == 8
        assert settings.topic_defaults.segment_ms == 60
        zk.tell("brokers/1", producer_id_expiration_ms="9")
        await until(lambda: replicas.remembered_ms == 9)

    following(test)


def test_the_controller_hears_which_topics_have_other_settings(following):
    """Also of a topic that is not here: a partition of it may wait for a setting that lets it have a leader."""

    async def test(zk, replicas, settings):
        await until(lambda: zk.changes.watch)
        told = replicas.changed
        told.clear()  # what it was told at the start
        zk.tell("topics/elsewhere", unclean_leader_election_enable="true")
        await until(lambda: told == ["elsewhere"])
        zk.tell("users/eve", a="1")
        zk.tell("brokers/2", unclean_leader_election_enable="true")
        zk.tell("brokers/<default>", unclean_leader_election_enable="true")
        await until(lambda: told == ["elsewhere", None])

    following(test)


def test_old_notifications_are_forgotten_after_a_quarter_of_an_hour(following):
    async def test(zk, replicas, settings):
        await until(lambda: zk.changes.watch)
        zk.tell("topics/t", retention_ms="5")
        await until(lambda: zk.changes.kept_ms is not None)
        assert zk.changes.kept_ms == 900_000

    following(test)


def test_a_watch_that_was_lost_is_made_up_for_by_the_next(following):
    async def test(zk, replicas, settings):
        await until(lambda: zk.changes.watch)
        woken = zk.changes.watch
        zk.tell("topics/t", lost=True, retention_ms="5")
        zk.tell("topics/u", lost=True, retention_ms="6")
        woken()
        await until(lambda: replicas.configs["t"] and replicas.configs["u"])
        assert (replicas.configs["t"].retention_ms, replicas.configs["u"].retention_ms) == (5, 6)

    following(test)


@pytest.mark.parametrize("listed", [False, True], ids=["before the look", "between the look and the reading"])
def test_what_was_forgotten_before_it_was_read_is_taken_over_all_the_same(following, listed):
    async def test(zk, replicas, settings):
        await until(lambda: zk.changes.watch)
        woken = zk.changes.watch
        zk.tell("brokers/1", lost=True, log_roll_ms="7")
        zk.tell("topics/t", lost=True, retention_ms="5")
        zk.tell("topics/u", lost=True, retention_ms="6")
        for number in (0, 1):
            del zk.changes.told[number]
        if listed:
            zk.changes.numbers = lambda _: [0, 1, 2]
        woken()
        await until(lambda: settings.topic_defaults.segment_ms == 7 and all(replicas.configs.values()))
        both = [replicas.configs[topic] for topic in ("t", "u")]
        assert [(each.retention_ms, each.segment_ms) for each in both] == [(5, 7), (6, 7)]
        assert settings.topic_defaults.segment_ms == 7

    following(test)


def test_what_could_not_be_read_is_read_again(following):
    async def test(zk, replicas, settings):
        await until(lambda: zk.changes.watch)
        zk.failures = 1
        zk.tell("topics/t", retention_ms="5")
        await until(lambda: not zk.failures)
        zk.tell("topics/u", retention_ms="6")
        await until(lambda: replicas.configs["t"] and replicas.configs["u"])
        assert replicas.configs["t"].retention_ms == 5

    following(test)


@pytest.mark.parametrize("bad", ["topics/t", "topics/u", "brokers/1"])
def test_a_malformed_znode_is_named_once_and_keeps_no_other_from_being_taken_over(following, caplog, bad):
    async def test(zk, replicas, settings):
        await until(lambda: zk.changes.watch)
        zk.malformed.add(bad)
        zk.tell("topics/v", retention_ms="4")
        zk.tell("brokers/<default>", log_roll_ms="60")
        await until(lambda: zk.changes.kept_ms is not None)
        good = {"t", "u"} - {bad.removeprefix("topics/")}
        assert {topic: replicas.configs[topic].segment_ms for topic in good} == dict.fromkeys(good, 60)
        assert settings.topic_defaults.segment_ms == 60
        named = sum(f"/config/{bad} " in line for line in caplog.messages)
        assert named == (bad == "brokers/1"), "ZkClient names a topic's"

    following(test)


def test_what_was_told_before_the_start_is_known_without_being_taken_over():
    async def main():
        zk = FakeZk()
        zk.tell("brokers/1", log_retention_ms="5")

        async def run_zk(call, *args):
            return call(*args)

        settings = Settings(parse_broker_config({"broker.id": "1"}), zk, zk.changes, run_zk)
        await settings.load()
        assert settings.topic_defaults.retention_ms == 5
        assert (await settings.topic("t")).retention_ms == 5
        await settings.close()

    asyncio.run(main())


async def taking_over_by_hand(settings):
    """Let the settings take over what they are told to, and follow nothing."""
    replicas = FakeReplicas("t")
    settings.follow(replicas)
    await settings.close()
    return replicas


def test_a_slow_reading_of_older_settings_does_not_come_back_over_newer_ones():
    """A request and a notification take over at once: one has read the cluster's settings when they change."""

    async def main():
        zk, read, going_on = FakeZk(), asyncio.Event(), asyncio.Event()
        zk.tell("brokers/<default>", log_roll_ms="60")

        async def run_zk(call, *args):
            found = call(*args)
            if args == ("brokers/<default>",) and slow:
                slow.pop()
                read.set()
                await going_on.wait()
            return found

        slow = []
        settings = Settings(parse_broker_config({"broker.id": "1"}), zk, zk.changes, run_zk)
        await settings.load()
        replicas = await taking_over_by_hand(settings)
        slow.append(True)
        first = asyncio.create_task(settings.take_over("brokers/1"))
        await read.wait()
        zk.tell("brokers/<default>", log_roll_ms="70")
        second = asyncio.create_task(settings.take_over("brokers/<default>"))
        for _ in range(20):
            await asyncio.sleep(0)
        going_on.set()
        await asyncio.gather(first, second)
        assert settings.topic_defaults.segment_ms == 70
        assert replicas.configs["t"].segment_ms == 70

    asyncio.run(main())


@pytest.mark.parametrize("entity", ["topics/new", "brokers/1", "brokers/<default>"])
def test_a_partition_made_while_a_change_goes_round_has_either_seen_it_or_sees_the_count(entity):
    """A topic's settings are read at any turn of a taking over; the partition comes when it has ended."""

    async def main(turns):
        zk = FakeZk()

        async def run_zk(call, *args):
            await asyncio.sleep(0)
            return call(*args)

        settings = Settings(parse_broker_config({"broker.id": "1"}), zk, zk.changes, run_zk)
        await settings.load()
        replicas = await taking_over_by_hand(settings)
        key = "retention_ms" if entity.startswith("topics") else "log_retention_ms"
        zk.tell(entity, **{key: "5"})
        change = asyncio.create_task(settings.take_over(entity))
        for _ in range(turns):
            await asyncio.sleep(0)
        count, config = settings.changes_taken_over, await settings.topic("new")
        await change
        replicas.configs["new"] = config
        return config.retention_ms == 5 or settings.changes_taken_over != count

    for turns in range(12):
        assert asyncio.run(main(turns)), turns


def test_doubted_settings_are_read_again_until_they_can_be_read(following):
    async def test(zk, replicas, settings):
        await until(lambda: zk.changes.watch)
        zk.stored["topics/t"] = {"retention.ms": "5"}
        zk.failures = 1
        settings.look_again_at({"t"})
        await until(lambda: not zk.failures)
        settings.look_again_at({"u"})
        await until(lambda: replicas.configs["t"] and replicas.configs["u"])
        assert replicas.configs["t"].retention_ms == 5

    following(test)


def test_users_clients_and_addresses_are_told_of_at_first_and_when_they_change(following):
    async def test(zk, replicas, settings):
        told = []
        settings.tell_of_entities(lambda entity, properties: told.append((entity, dict(properties))))
        await until(lambda: zk.changes.watch)
        zk.tell("users/a", x="1")
        await until(lambda: told)
        zk.tell("users/a")
        zk.tell("clients/<default>", y="2")
        zk.tell("users/a/clients/c", z="3")
        await until(lambda: len(told) == 4)
        assert told[0] == ("users/a", {"x": "1"})
        assert told[1:3] == [("users/a", {}), ("clients/<default>", {"y": "2"})]
        late = []
        settings.tell_of_entities(lambda entity, properties: late.append((entity, dict(properties))))
        assert late == told[2:]

    following(test)


def test_entities_whose_notification_was_missed_are_told_of_as_they_are_now(following):
    async def test(zk, replicas, settings):
        told = []
        settings.tell_of_entities(lambda entity, properties: told.append((entity, dict(properties))))
        await until(lambda: zk.changes.watch)
        zk.tell("users/gone", x="1")
        zk.tell("users/kept", x="1")
        zk.tell("users/bad", x="1")
        await until(lambda: len(told) == 3)
        del told[:]
        del zk.stored["users/gone"]
        zk.malformed.add("users/bad")
        zk.changes.next_number += 5
        zk.tell("ips/1.2.3.4", y="2")
        await until(lambda: len(told) == 2)
        assert sorted(told) == [("ips/1.2.3.4", {"y": "2"}), ("users/gone", {})]

    following(test)


def test_an_entity_that_cannot_be_read_keeps_what_it_had(following, caplog):
    async def test(zk, replicas, settings):
        told = []
        settings.tell_of_entities(lambda entity, properties: told.append((entity, dict(properties))))
        await until(lambda: zk.changes.watch)
        zk.tell("users/a", x="1")
        await until(lambda: told)
        zk.malformed.add("users/a")
        zk.tell("users/a", x="2")
        zk.tell("users/b", x="3")
        await until(lambda: len(told) == 2)
        assert told == [("users/a", {"x": "1"}), ("users/b", {"x": "3"})]
        assert "/config/users/a " in caplog.text

    following(test)
