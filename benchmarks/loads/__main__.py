"""One load, by name, with its arguments as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from benchmarks.loads import (
    clients,
    confluent_client,
    groups,
    handshakes,
    kafka_python_client,
    many,
    paced,
    raw,
    sparklog_client,
    transactions,
)
from benchmarks.loads.figures import Figures

LOADS: dict[str, Callable[..., Figures]] = {
    load.__name__: load
    for load in (
        clients.produce,
        clients.consume,
        clients.round_trip,
        clients.paced_round_trips,
        clients.end_to_end,
        raw.raw_produce,
        raw.raw_round_trip,
        raw.raw_fetch,
        many.produce_together,
        many.consume_together,
        paced.paced,
        groups.rebalance,
        handshakes.handshakes,
        transactions.commit,
        sparklog_client.sparklog_send,
        sparklog_client.sparklog_send_async,
        sparklog_client.sparklog_send_arrow,
        sparklog_client.sparklog_round_trip,
        sparklog_client.sparklog_round_trip_async,
        sparklog_client.sparklog_poll,
        sparklog_client.sparklog_iterate,
        sparklog_client.sparklog_poll_arrow,
        confluent_client.confluent_send,
        confluent_client.confluent_round_trip,
        confluent_client.confluent_consume,
        confluent_client.confluent_poll,
        kafka_python_client.kafka_python_send,
        kafka_python_client.kafka_python_round_trip,
        kafka_python_client.kafka_python_poll,
        kafka_python_client.kafka_python_iterate,
    )
}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(LOADS[sys.argv[1]](**json.loads(sys.argv[2]))) + "\n")
