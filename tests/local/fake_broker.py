"""Stands in for ``sparklog broker``: takes the same arguments, holds the port, says it is ready, ends on SIGTERM."""

import argparse
import signal
import socket
import sys
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("command", choices=["broker"])
parser.add_argument("--id", type=int, required=True)
parser.add_argument("--zookeeper", required=True)
parser.add_argument("--data", type=Path, required=True)
parser.add_argument("--host", required=True)
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--set", action="append", default=[])
parser.add_argument("--config", type=Path)
parser.add_argument("--fail")
parser.add_argument("--log", action="append", default=[])
parser.add_argument("--ignore-sigterm", action="store_true")
options = parser.parse_args()

if options.fail:
    sys.stdout.write(options.fail)
    sys.exit(3)
if options.ignore_sigterm:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
options.data.mkdir(parents=True, exist_ok=True)
with socket.create_server((options.host, options.port)), (options.data / "starts").open("a") as starts:
    starts.write(f"{options.zookeeper} {' '.join(options.set)}\n")
    starts.flush()
    for line in options.log:
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(f"sparklog broker {options.id} listening on {options.host}:{options.port}\n")
    signal.pause()
