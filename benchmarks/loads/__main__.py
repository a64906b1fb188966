"""One load, by name, with its arguments as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from benchmarks.loads import clients, groups, many, paced, raw, transactions
from benchmarks.loads.figures import Figures

LOADS: dict[str, Callable[..., Figures]] = {
    load.__name__: load
    for load in (
        clients.produce,
        clients.consume,
        clients.round_trip,
        clients.end_to_end,
        raw.raw_produce,
        raw.raw_round_trip,
        raw.raw_fetch,
        many.produce_together,
        many.consume_together,
        paced.paced,
        groups.rebalance,
        transactions.commit,
    )
}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(LOADS[sys.argv[1]](**json.loads(sys.argv[2]))) + "\n")
