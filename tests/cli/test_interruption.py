"""Signals that end a long command."""

import signal

import pytest

from sparklog.cli.interruption import SIGNALS, interruptible


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_interrupts_and_no_other_cuts_short(number):
    before = [signal.getsignal(each) for each in SIGNALS]
    with interruptible():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        for each in SIGNALS:
            signal.raise_signal(each)
    assert [signal.getsignal(each) for each in SIGNALS] == before
