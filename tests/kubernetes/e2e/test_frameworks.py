"""Jobs whose instances find each other: the environment of a framework, names, ports and order."""

from __future__ import annotations

import json

import pytest

from tests.kubernetes.e2e.job import document, role
from tests.kubernetes.e2e.site import Site, a_namespace

RENDEZVOUS = """
import os, socket, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    server = socket.create_server((socket.gethostname(), address[1]))
    peers = [server.accept()[0] for _ in range(size - 1)]
    print("together:", sorted(peer.recv(9).decode() for peer in peers), flush=True)
    for peer in peers:
        peer.sendall(b"go")
else:
    until = time.time() + 120
    while True:
        try:
            peer = socket.create_connection(address, timeout=5)
            break
        except OSError:
            if time.time() > until:
                raise
            time.sleep(0.2)
    peer.settimeout(120)
    peer.sendall(str(rank).encode())
    assert peer.recv(9) == b"go"
"""

SERVER = """
import os, socket, time
mine = os.environ["TRAINING_ADDRESS"].rpartition(":")
time.sleep(10)  # the port opens later than the pod runs, also for whoever looks every few seconds
server = socket.create_server((socket.gethostname(), int(mine[2])))
while True:
    peer, _ = server.accept()
    peer.sendall(b"parameters")
    peer.close()
"""

CLIENT = """
import json, os, socket
cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
for address in cluster["ps"]:
    host, _, port = address.rpartition(":")
    print(address, socket.create_connection((host, int(port)), timeout=10).recv(99).decode(), flush=True)
"""


def test_pytorch_style_rendezvous(site: Site, jobs):
    command = {"image": site.training_image, "command": ["python3", "-c", RENDEZVOUS]}
    job = jobs(
        document(
            site,
            "rendezvous",
            role("master"),
            role("worker", replicas=2),
            framework="pytorch",
            **command,
        )
    )
    job.succeed()
    assert "together: ['1', '2']" in job.log("master")


@pytest.mark.parametrize("workers", [1, 2])
def test_mpi_hello_across_pods(site: Site, jobs, workers: int):
    # in one write: what two ranks print in pieces mixes within a line
    hello = "import sys; from mpi4py import MPI; w = MPI.COMM_WORLD; sys.stdout.write(f'hello {w.allreduce(w.Get_rank())} {w.Get_size()}\\n')"
    job = jobs(
        document(
            site,
            "hello",
            role("launcher", command=["mpirun", "-n", "2", "python3", "-c", hello]),
            role("worker", replicas=workers),
            framework="mpi",
            image=site.training_image,
            parameters={"slotsPerWorker": 2 // workers},
        )
    )
    job.succeed()
    assert job.log("launcher").count("hello 1 2") == 2


def test_workers_come_when_the_ports_of_their_servers_are_open(site: Site, jobs):
    job = jobs(
        document(
            site,
            "servers",
            role("ps", replicas=2, command=["python3", "-c", SERVER], tracked=False),
            role(
                "worker",
                replicas=2,
                command=["python3", "-c", CLIENT],
                restartPolicy="Never",
                dependsOn=[{"role": "ps", "status": "PortOpen"}],
            ),
            framework="tensorflow",
            image=site.training_image,
        )
    )
    servers = job.until_running("ps", 2)
    assert not site.pods(job.uid, role="worker")
    job.succeed()
    for index in range(2):
        assert job.log("worker", index).count("parameters") == len(servers)


def test_held_instances_wait_inside_and_get_the_addresses(site: Site, jobs):
    # ready only when the workers have surely been placed
    probe = {"exec": {"command": ["true"]}, "initialDelaySeconds": 20, "periodSeconds": 1}
    ready = {"name": "main", "readinessProbe": probe}
    job = jobs(
        document(
            site,
            "held",
            role(
                "ps",
                "sleep 100000",
                tracked=False,
                ports=[{"name": "main", "containerPort": 2222}],
                pod={"terminationGracePeriodSeconds": 1, "containers": [ready]},
            ),
            role(
                "worker",
                "cat /training/addresses.json",
                replicas=2,
                dependsOn=[{"role": "ps", "status": "Ready", "answer": "List"}],
            ),
            schedulingPolicy={"startup": "createAllHold"},
        )
    )

    def held() -> bool:
        states = [
            (each.get("state") or {})
            for pod in site.pods(job.uid, role="worker")
            for each in pod["status"].get("initContainerStatuses") or ()
        ]
        return len(states) == 2 and all("running" in state for state in states)

    site.until("two held workers", held)
    job.succeed()
    (address,) = json.loads(job.log("worker"))["ps"]
    assert address.endswith(":2222")


def test_held_instances_run_where_pod_security_is_restricted(site: Site, jobs):
    unprivileged = {
        "name": "main",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 12345,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    pod = {"terminationGracePeriodSeconds": 1, "containers": [unprivileged]}
    with a_namespace(site, pod_security="restricted") as restricted:
        job = jobs(
            document(
                restricted,
                "restricted",
                role("ps", "sleep 100000", tracked=False, pod=pod),
                role(
                    "worker",
                    "cat /training/addresses.json",
                    dependsOn=[{"role": "ps", "answer": "List"}],
                    pod=pod,
                ),
                schedulingPolicy={"startup": "createAllHold"},
            ),
            site=restricted,
        )
        job.succeed()
        assert list(json.loads(job.log("worker"))) == ["ps"]
