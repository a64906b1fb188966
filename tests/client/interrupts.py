"""Interrupts where CPython lets a signal handler run: where a function begins, and behind a call."""

import asyncio
import dis
import functools
import gc
import sys
from itertools import count, pairwise
from pathlib import Path

import sparklog

_SOURCES = tuple(str(Path(each).parent) for each in (sparklog.__file__, asyncio.__file__, __file__))


@functools.cache
def _behind_calls(code):
    """The offsets of the instructions that follow a call."""
    steps = list(dis.get_instructions(code))
    return {behind.offset for step, behind in pairwise(steps) if step.opname.startswith("CALL")}


def _is_interrupted(work, step):
    """Do ``work`` with an interrupt at the place of this number in it, if there is one; whether there was."""
    places = count()

    def trace(frame, event, _):
        if not frame.f_code.co_filename.startswith(_SOURCES):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        is_place = event == "call" or (event == "opcode" and frame.f_lasti in _behind_calls(frame.f_code))
        if is_place and next(places) == step:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    gc.disable()  # a collection comes when it comes, and an interrupt in a finalizer would reach nobody
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
        gc.enable()
    return False


def interruptions(prepare):
    """What ``prepare`` makes, once for each place where the work that it gives as well can be interrupted, with that
    work begun and interrupted there."""
    for step in count():
        made, work = prepare()
        if not _is_interrupted(work, step):
            assert step
            return
        yield made
