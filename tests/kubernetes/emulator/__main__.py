"""A cluster as a process: writes a kubeconfig, prints a ready line, runs until TERM or INT."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from pathlib import Path

import yaml

from tests.kubernetes.emulator import kinds
from tests.kubernetes.emulator.cluster import kubeconfig
from tests.kubernetes.emulator.kubelet import AS_REAL_ONES, AT_ONCE
from tests.kubernetes.emulator.nodes import Node
from tests.kubernetes.emulator.parts import ADMIN_TOKEN, Parts


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.kubernetes.emulator", description=__doc__
    )
    parser.add_argument("--kubeconfig", type=Path, required=True, help="file to write")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--kubelet", choices=("scripted", "processes"), default="scripted")
    parser.add_argument("--install", action="append", choices=tuple(kinds.CUSTOM), default=[])
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--cpu", default="64", help="of each node")
    parser.add_argument("--memory", default="256Gi", help="of each node")
    parser.add_argument("--gpus", type=int, default=0, help="of each node")
    parser.add_argument("--pods", type=int, default=110, help="of each node")
    parser.add_argument(
        "--slow", action="store_true", help="kubelets take about as long as real ones"
    )
    parser.add_argument(
        "--offline", action="store_true", help="no registry answers: pull policy Always fails"
    )
    parser.add_argument("--bookmark-seconds", type=float, default=60.0)
    return parser.parse_args()


async def _serve(options: argparse.Namespace, folder: Path) -> None:
    parts = Parts(
        folder=folder, kubelet=options.kubelet, installed=options.install, port=options.port,
        bookmark_seconds=options.bookmark_seconds, offline=options.offline,
        pace=AS_REAL_ONES if options.slow else AT_ONCE,
    )  # fmt: skip
    machines = [
        Node(
            name=f"node-{n}", cpu=options.cpu, memory=options.memory, gpus=options.gpus,
            pods=options.pods,
        )
        for n in range(1, options.nodes + 1)
    ]  # fmt: skip
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    await parts.start(machines)
    url = f"http://127.0.0.1:{parts.server.port}"
    document = kubeconfig(url, token=ADMIN_TOKEN, namespace="default")
    options.kubeconfig.write_text(yaml.safe_dump(document))
    print(f"ready {url}", flush=True)
    await over.wait()
    await parts.stop()


def main() -> int:
    options = _arguments()
    with tempfile.TemporaryDirectory(prefix="emulator-", ignore_cleanup_errors=True) as folder:
        asyncio.run(_serve(options, Path(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
