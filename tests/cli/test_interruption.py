"""Signals that end a long command."""

import signal

import pytest

from sparklog.cli.interruption import SIGNALS, Interruption, interruptible


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_interrupts_and_no_other_cuts_short(number):
    before = [signal.getsignal(each) for each in SIGNALS]
    with interruptible():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        for each in SIGNALS:
            signal.raise_signal(each)
    assert [signal.getsignal(each) for each in SIGNALS] == before


class _Raises:
    """Its finalizer is where the signal comes."""

    def __del__(self):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_python_drops_is_remembered():
    with Interruption().listening() as interruption:
        interruption.check()
        _Raises()
        with pytest.raises(KeyboardInterrupt):
            interruption.check()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_is_raised_at_once_too():
    with Interruption().listening(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_that_is_ignored_stays_so():
    """As under nohup."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interruption().listening() as interruption:
            signal.raise_signal(signal.SIGINT)
            interruption.check()
    finally:
        signal.signal(signal.SIGINT, before)
