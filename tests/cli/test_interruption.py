"""Signals that end a long command."""

import signal

import pytest

from sparklog.cli.interruption import SIGNALS, interruptible


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_interrupts_and_no_other_cuts_short(number):
    before = [signal.getsignal(each) for each in SIGNALS]
    orderly = []
    with pytest.raises(KeyboardInterrupt), interruptible():
        try:
            signal.raise_signal(number)
        finally:
            for each in SIGNALS:
                signal.raise_signal(each)
            orderly.append("stopped")
    assert orderly == ["stopped"]
    assert [signal.getsignal(each) for each in SIGNALS] == before
