"""Which seeds of the simulation are lived: some in every run, more in a soak, and those that once found something.

A seed that fails is kept here, in the commit that mends what it found. It is lived in every run from then on, whatever
the ranges are. It draws that history only as long as nothing else is drawn, so what it found has a test of its own too.
"""

import pytest


def seeds(few, many, kept=()):
    """The first ``few``, and those that are ``kept``, in every run; the rest of the first ``many`` in a soak."""
    always = {*range(few), *kept}
    return [
        seed if seed in always else pytest.param(seed, marks=pytest.mark.slow)
        for seed in sorted({*range(many), *always})
    ]
