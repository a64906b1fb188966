"""Signals that end a long command."""

import signal
import threading

import pytest

from sparklog.cli.interruption import SIGNALS, interruptible


@pytest.fixture(autouse=True)
def as_in_a_terminal():
    """Whatever this run was started under ignores no signal here."""
    before = [(each, signal.signal(each, signal.SIG_DFL)) for each in SIGNALS]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for each, handler in before:
        signal.signal(each, handler)


class _Raises:
    """Its finalizer is where the signal comes."""

    def __del__(self):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_interrupts_and_no_other_cuts_short(number):
    before = [signal.getsignal(each) for each in SIGNALS]
    with interruptible():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        for each in SIGNALS:
            signal.raise_signal(each)
    assert [signal.getsignal(each) for each in SIGNALS] == before


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("ask", ["check", "wait"])
def test_an_interrupt_that_python_drops_is_remembered(ask):
    with interruptible() as interruption:
        interruption.check()
        _Raises()
        with pytest.raises(KeyboardInterrupt):
            getattr(interruption, ask)()


def test_a_signal_that_is_ignored_stays_so():
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible() as interruption:
            signal.raise_signal(signal.SIGHUP)
            interruption.check()
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_only_the_signals_that_are_named_are_heard():
    before = signal.getsignal(signal.SIGTERM)
    with interruptible((signal.SIGINT,)):
        assert signal.getsignal(signal.SIGTERM) is before


def test_a_thread_hears_no_signal():
    before = signal.getsignal(signal.SIGINT)
    heard = []

    def command():
        with interruptible() as interruption:
            heard.append(signal.getsignal(signal.SIGINT))
            interruption.check()

    thread = threading.Thread(target=command)
    thread.start()
    thread.join()
    assert heard == [before]
