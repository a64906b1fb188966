"""How a driver keeps its tasks' token good: by given clocks, and by the rules that brokers follow."""

import logging
import random
import threading
from unittest.mock import MagicMock

import pytest

from sparklog.client.admin.admin import DelegationToken
from sparklog.client.cluster.config import ClientConfig
from sparklog.errors import ApiError, ClientClosed, ConnectionFailed, ErrorCode
from sparklog.security.delegation.token import TokenRules, has_ended
from sparklog.security.principal import Principal
from sparklog.spark.options.task_login import BrokerTokens, KeptLogin, OwnLogin, TaskLogin, kept_login, task_login
from sparklog.testing.clock import ManualClock

ALICE = Principal("User", "alice")
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
CONFIG = ClientConfig.from_properties(
    {
        "bootstrap.servers": "localhost:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "secret",
    }
)


class RuledTokens:
    """Tokens of a cluster whose clock is another one by a minute; ``fails`` is what it answers."""

    def __init__(self, clock, most_ms=7 * DAY_MS):
        self.clock = clock
        self.rules = TokenRules(most_ms, DAY_MS)
        self.held = {}
        self.renewals = 0
        self.fails = None

    @property
    def now_ms(self):
        return self.clock.now_ms() + MINUTE_MS

    def create(self, period_ms, most_ms):
        self._check()
        name = str(len(self.held))
        token = self.rules.issued(name, ALICE, ALICE, (), most_ms, self.now_ms)
        self.held[name] = token = self.rules.renewed(token, ALICE, period_ms, self.now_ms)
        owner = str(ALICE)
        times = token.issued_ms, token.ends_ms, token.max_ms
        return DelegationToken(name, b"hmac", owner, owner, (), *times)

    def renew(self, token, period_ms):
        self._check()
        self.renewals += 1
        self.held[token.token_id] = self.rules.renewed(self._found(token), ALICE, period_ms, self.now_ms)

    def end(self, tokens):
        self._check()
        for each in tokens:
            self._found(each)
            self.held[each.token_id] = None

    def _found(self, token):
        if self.held[token.token_id] is None:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "gone")
        return self.held[token.token_id]

    def _check(self):
        if self.fails is not None:
            raise self.fails

    def left_ms(self, name):
        """How long the token lets its bearer in still."""
        token = self.held[name]
        return 0 if token is None or has_ended(token, self.now_ms) else token.ends_ms - self.now_ms

    @property
    def standing(self):
        return [name for name in self.held if self.left_ms(name)]


class Never:
    """A thread's pause that does not end before the test does: the test tends the token itself."""

    def __init__(self):
        self.over = threading.Event()

    def __call__(self, _):
        self.over.wait()
        return True


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def never():
    found = Never()
    yield found
    found.over.set()


@pytest.fixture
def kept(clock, never):
    def made(period_ms=HOUR_MS, most_ms=7 * DAY_MS):
        tokens = RuledTokens(clock, most_ms)
        return KeptLogin(CONFIG, period_ms, tokens, clock, never), tokens

    return made


def test_a_token_of_a_plan_lasts_as_long_as_is_asked_for_and_is_used_again_for_half_of_that(clock):
    tokens = RuledTokens(clock)
    login = TaskLogin(CONFIG, HOUR_MS, tokens, clock)
    first = login.client()
    clock.advance(1799)
    assert login.client() is first
    clock.advance(1)
    assert login.client().token_id == "1"
    assert tokens.held["0"].max_ms == tokens.held["0"].issued_ms + HOUR_MS


def test_without_a_time_tasks_come_as_the_driver_does():
    for login in (task_login(CONFIG, None), kept_login(CONFIG, None)):
        assert isinstance(login, OwnLogin)
        assert login.client() is CONFIG
        login.settle()
        login.close()


def test_a_batch_that_takes_days_has_one_token_which_is_renewed_by_the_hour(kept, clock):
    login, tokens = kept()
    name = login.client().token_id
    for _ in range(2 * 24 * 2):
        clock.advance(login.tend())
        login.tend()
        assert HOUR_MS / 2 < tokens.left_ms(name) <= HOUR_MS
    assert login.client().token_id == name
    assert tokens.renewals == 2 * 24 * 2


def test_before_brokers_refuse_to_renew_it_the_next_batch_has_another_one(kept, clock):
    login, tokens = kept(most_ms=8 * HOUR_MS)
    assert login.client().token_id == "0"
    names = set()
    for _ in range(40):
        clock.advance(login.tend())
        login.tend()
        names.add(login.client().token_id)
        login.settle()
        assert tokens.left_ms(login.client().token_id) >= HOUR_MS / 2
    assert len(names) == 40 // 8 + 1
    assert len(tokens.standing) == 1


def test_a_token_of_the_batch_before_is_ended_when_all_batches_before_the_last_are_over(kept, clock):
    login, tokens = kept(most_ms=HOUR_MS)
    login.client()
    login.settle()
    assert tokens.standing == ["0"]
    clock.advance(1800)
    assert login.client().token_id == "1"
    assert tokens.standing == ["0", "1"]
    login.settle()
    assert tokens.standing == ["1"]
    login.close()
    assert tokens.standing == []


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_times_a_task_has_a_token_and_none_outlasts_its_driver_by_more_than_the_period(seed, kept, clock):
    drawn = random.Random(seed)
    period_ms = drawn.choice([MINUTE_MS, HOUR_MS, 3 * DAY_MS])
    login, tokens = kept(period_ms, drawn.choice([HOUR_MS, DAY_MS, 7 * DAY_MS]))
    for _ in range(200):
        name = login.client().token_id
        least = min(period_ms, tokens.held[name].max_ms - tokens.held[name].issued_ms) / 2
        assert tokens.left_ms(name) >= least - 1
        most_s = (tokens.held[name].max_ms - tokens.now_ms) / 1000
        lasts_s = drawn.random() * min(most_s, 3 * period_ms / 1000)
        while lasts_s > 0:
            step_s = min(lasts_s, login.tend())
            clock.advance(step_s)
            lasts_s -= step_s
            login.tend()
            assert tokens.left_ms(name) or lasts_s <= 0
        login.settle()
        assert all(tokens.left_ms(each) <= period_ms for each in tokens.standing)
        assert len(tokens.standing) <= 2
    login.close()
    assert tokens.standing == []


def test_brokers_that_do_not_answer_are_asked_again_before_the_token_ends(kept, clock, caplog):
    login, tokens = kept()
    name = login.client().token_id
    clock.advance(login.tend())
    tokens.fails = ConnectionFailed("nobody is there")
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            clock.advance(login.tend())
    assert "is not renewed: nobody is there" in caplog.text
    assert login.client().token_id == name
    tokens.fails = None
    login.tend()
    clock.advance(login.tend())
    login.tend()
    assert tokens.left_ms(name) == HOUR_MS


def test_a_token_that_somebody_has_ended_is_not_handed_out_again(kept, clock, caplog):
    login, tokens = kept()
    login.client()
    tokens.held["0"] = None
    clock.advance(login.tend())
    login.tend()
    assert "delegation token 0 of tasks is not renewed" in caplog.text
    assert login.client().token_id == "1"


def test_a_driver_that_was_asleep_takes_a_new_one(kept, clock):
    login, tokens = kept()
    login.client()
    clock.advance(3601)
    assert login.client().token_id == "1"
    assert tokens.left_ms("1") == HOUR_MS


def test_that_a_token_cannot_be_ended_stops_nothing(kept, clock, caplog):
    login, tokens = kept(most_ms=HOUR_MS)
    login.client()
    clock.advance(1800)
    login.client()
    tokens.fails = ConnectionFailed("nobody is there")
    login.settle()
    login.close()
    assert caplog.text.count("they end by themselves: nobody is there") == 2


def test_a_thread_renews_as_long_as_the_login_is_open(clock):
    tokens, renewed = RuledTokens(clock), threading.Event()

    def pause(seconds):
        clock.advance(seconds)
        if tokens.renewals == 3:
            renewed.set()
        return renewed.is_set()

    login = KeptLogin(CONFIG, HOUR_MS, tokens, clock, pause)
    name = login.client().token_id
    assert renewed.wait(60)
    assert tokens.left_ms(name) >= HOUR_MS / 2
    login.close()


def test_a_login_that_is_closed_takes_no_token_that_nobody_would_end(kept):
    login, tokens = kept()
    login.client()
    login.close()
    with pytest.raises(ClientClosed):
        login.client()
    assert (len(tokens.held), tokens.standing) == (1, [])


def test_a_token_that_not_all_brokers_learn_of_is_ended(monkeypatch):
    token = DelegationToken("t", b"hmac", "User:alice", "User:alice", (), 0, DAY_MS, 7 * DAY_MS)
    admin = MagicMock()
    admin.__enter__.return_value = admin
    admin.create_delegation_token.return_value = token
    admin.wait_for_delegation_token.side_effect = ApiError(ErrorCode.REQUEST_TIMED_OUT, "broker 2 does not know it")
    monkeypatch.setattr("sparklog.client.admin.admin.Admin", lambda _: admin)
    with pytest.raises(ApiError, match="broker 2"):
        BrokerTokens(CONFIG).create(HOUR_MS, -1)
    admin.expire_delegation_token.assert_called_once_with(b"hmac")
