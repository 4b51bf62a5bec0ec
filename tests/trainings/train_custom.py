"""Parameter averaging over plain sockets: the hub adds up what its peers send, and sends it back.

Peers come back to the hub and the hub to its peers, so that one of them alone may start again.
"""

import json
import os
import socket
import time

from gate import STEPS, finish, passed, restored, save

rank, size = int(os.environ["TRAINING_RANK"]), int(os.environ["TRAINING_WORLD_SIZE"])
host, port = os.environ["HUB"].split(":")


def hub() -> None:
    """Average one value of each peer and step; whoever asks for a step again gets the same answer."""
    step, content = restored()
    weight = float(content or 0)
    answers: dict[int, float] = {step: weight}
    waiting: dict[int, socket.socket] = {}
    listener = socket.create_server((host, int(port)))
    finished = set()
    while len(finished) < size - 1:
        peer, _ = listener.accept()
        asked = json.loads(peer.makefile().readline() or "{}")
        if not asked:
            continue
        if asked["step"] > STEPS:
            finished.add(asked["rank"])
        if asked["step"] in answers or asked["step"] > STEPS:
            peer.sendall(f"{answers.get(asked['step'], weight)}\n".encode())
            peer.close()
            continue
        waiting[asked["rank"]] = peer
        if len(waiting) == size - 1:
            step = asked["step"]
            weight += 0.2 * (3 - weight)
            answers[step] = weight
            save(step, str(weight))
            passed(step, rank)
            for other in waiting.values():
                with other:
                    try:
                        other.sendall(f"{weight}\n".encode())
                    except OSError:
                        continue  # it asks again
            waiting.clear()
    finish(rank, str(weight))


def peer() -> None:
    step = restored()[0]
    while step <= STEPS:
        try:
            with socket.create_connection((host, int(port)), timeout=5) as asking:
                asking.sendall(json.dumps({"rank": rank, "step": step + 1}).encode() + b"\n")
                if asking.makefile().readline():
                    step += 1
                    print(f"rank {rank} step {step}", flush=True)
                    continue
        except OSError:
            pass
        time.sleep(0.05)


hub() if rank == 0 else peer()
