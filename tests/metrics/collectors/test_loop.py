"""How late the loop is, by times that the test gives."""

from metrics.pages import collected

from sparklog.metrics.collectors.loop import LoopLag


def test_the_latest_of_the_last_minute():
    lag = LoopLag()
    for now, late in ((0.0, 0.5), (10.0, 2.0), (20.0, 0.1), (65.0, 0.3)):
        lag.note(now, late)
    assert collected(lag).value("sparklog_loop_lag_max_seconds") == 2.0
    lag.note(71.0, 0.2)
    assert collected(lag).value("sparklog_loop_lag_max_seconds") == 0.3
    assert collected(lag).value("sparklog_loop_lag_seconds_count") == 5


def test_what_is_kept_does_not_grow_while_it_is_never_late():
    lag = LoopLag()
    for number in range(10_000):
        lag.note(number / 10, 0.0)
    assert len(lag._latest) == 1
    assert collected(lag).value("sparklog_loop_lag_max_seconds") == 0


def test_before_the_first_try_nothing_is_late():
    assert collected(LoopLag()).value("sparklog_loop_lag_max_seconds") == 0


def test_what_the_loop_does_not_use_of_a_minute_is_idle():
    told = LoopLag()
    assert told.idle == 1.0
    for second in range(0, 100, 5):
        told.use(float(second), second * (0.5 if second < 30 else 0.25))
    page = collected(told)
    assert page.value("kafka_network_socketserver_networkprocessoravgidlepercent") == 0.75
    assert page.value("kafka_network_socketserver_networkprocessoravgidle_percent") == 0.75
    assert page.value("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent") == 0.75
    assert page.value("sparklog_loop_cpu_seconds_total") == 95 * 0.25
