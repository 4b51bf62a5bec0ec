"""What runs inside an allocation: `keep` starts steps as files ask for them, `step` is one, `enter` runs something beside one.

    python allocation_program.py AGENT.pyz keep ALLOCATION
    python allocation_program.py AGENT.pyz step ALLOCATION ATTEMPT
    python allocation_program.py AGENT.pyz enter JOB COMPONENT NODE COMMAND...

Copied beside the packed agent. Standard library only, on Python 3.8 too. In the folder of an allocation:

    job            id of the one Slurm job that may use it
    started.json   its nodes, and the node of each instance; written by `keep`, again where one moves to a spare node
    start/         a file for each step that is asked for; whoever renames it has decided about it
    steps/         the files of steps that were started, and how they ended
    cancelled/     the files of those that were given up before they started
    given-up.json  why `keep` has ended it before its time: a node is lost, and no spare one is left
    ended.json     the last word of `keep`: nothing of the allocation lives
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

TYPE_CHECKING = False  # `typing` costs 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from typing import Any, BinaryIO

__all__ = ["counts_of", "enter_words", "host_name", "named_instances", "place_order"]

_LOOK_SECONDS = 0.2
_PEER_LOOK_SECONDS = 0.5
_PEER_SECONDS = 600.0
"""How long a step waits for the nodes of those that its order names."""
_LOCK_SECONDS = 150.0
"""How long it waits for an agent of an earlier attempt; file systems forget a lost node's locks after some 90 s."""
_PORT_LOOK_SECONDS = 0.5
_LEFTOVERS_SECONDS = 60.0
_TROUBLE_SECONDS = 5.0
"""Until it is tried again where the shared folder cannot be written."""
_DEAF_SECONDS = 60.0
"""After an attempt has ended: until its `srun`, which may have missed that on a busy machine, is waited for no more."""
_DEAF_LOOK_SECONDS = 10.0
_ADDRESS_TRIES = 3
_NODES_LOOK_SECONDS = 5.0
"""Between two questions for the nodes that are left, while Slurm does not answer."""
_LOST_NODE = re.compile(r"DOWN|FAIL|NOT_RESPONDING|\*")
_OF_STEP = re.compile(
    r"SLURM_|SLURMD_NODENAME$|CUDA_VISIBLE_DEVICES$|ROCR_VISIBLE_DEVICES$|GPU_DEVICE_ORDINAL$|ZE_AFFINITY_MASK$"
)
"""Variables that only Slurm knows, on the node."""
_MPI_WITHOUT_SLURM = {"OMPI_MCA_ras": "^slurm", "PRTE_MCA_ras": "^slurm"}
"""Open MPI 4 and 5: `mpirun` would take the one task of its step for all that it may use."""
_DOMAIN = "slurm"
_JOB = "SLURM_JOB_ID"


# names of instances, which become nodes -------------------------------------------------------------
def host_name(role: str, index: int, run: str) -> str:
    """The name of an instance until its node is known."""
    return f"{role}-{index}.{run}.{_DOMAIN}"


def _names(run: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.-])([A-Za-z0-9_-]+-\d+)\.{re.escape(run)}\.{_DOMAIN}(?![\w-])")


def named_instances(order: Mapping[str, Any], run: str) -> set[str]:
    """The instances (`<role>-<index>`) whose names an order has somewhere."""
    return set(_names(run).findall(json.dumps(order)))


def place_order(
    order: Mapping[str, Any], *, run: str, hosts: Mapping[str, str], env: Mapping[str, str]
) -> dict[str, Any]:
    """The order with addresses of nodes in the place of names, and what only its step knows.

    `hosts`: instance -> address. Names of others stay as they are.
    """
    names = _names(run)

    def put(value: Any) -> Any:
        if isinstance(value, str):
            return names.sub(lambda found: hosts.get(found[1], found[0]), value)
        if isinstance(value, dict):
            return {put(key): put(each) for key, each in value.items()}
        if isinstance(value, list):
            return [put(each) for each in value]
        return value

    placed: dict[str, Any] = put(dict(order))
    placed["env"] = {**_MPI_WITHOUT_SLURM, **env, **placed["env"]}
    for name, value in env.items():  # what Slurm gives goes before what its creator has
        if not name.startswith("SLURM_"):
            placed["env"][name] = value
    return placed


def counts_of(text: str) -> list[int]:
    """Tasks of each node, from `SLURM_TASKS_PER_NODE` as `2(x3),1`."""
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if match:
            counts += [int(match[1])] * int(match[2] or 1)
    return counts


# the allocation -------------------------------------------------------------------------------------
def keep(folder: Path, program: str, agent: str) -> int:
    """Start steps until nobody needs the allocation any more."""
    from airflow_training.agent.files import read_json, write_json

    # a site's default, which slurmrestd overrules in newer versions only
    if os.environ.get("SLURM_RESTART_COUNT", "0") != "0":
        sys.stderr.write("Slurm has queued this job again: its run has gone on without it\n")
        return 3
    job = os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ["SLURM_JOB_ID"]
    if not _claim(folder / "job", job):
        sys.stderr.write("another job has this allocation: sbatch was repeated\n")
        return 3
    request = read_json(folder.parent / "request.json") or {}
    members = request["elements"][int(folder.name)]
    started = {"job": job, "at": time.time(), "members": _place(request["components"], members)}
    if request.get("spare_nodes"):  # Slurm goes on without us where our node is lost
        started["keeper"] = os.environ["SLURMD_NODENAME"]
    write_json(folder / "started.json", started)
    keeper = _Keeper(folder, request, program, agent)
    signal.signal(signal.SIGTERM, lambda *_: None)  # steps get their own; we tell how they ended
    keeper.run()
    if keeper.homeless:
        message = f"no other node is left for {', '.join(keeper.homeless)}"
        write_json(folder / "given-up.json", {"message": message}, durable=True)
        return 4  # Slurm ends the steps that still run
    write_json(folder / "ended.json", {"at": time.time()}, durable=True)
    return 0


def _claim(path: Path, job: str) -> bool:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text() == job
    with os.fdopen(descriptor, "w") as file:
        file.write(job)
    return True


def _place(
    components: Sequence[Mapping[str, Any]], members: Sequence[Sequence[str]]
) -> dict[str, dict[str, Any]]:
    """Instance -> its component, node and address. A component's tasks are given out in order."""
    placed: dict[str, dict[str, Any]] = {}
    for number, names in enumerate(members):
        more = f"_HET_GROUP_{number}" if len(components) > 1 else ""
        nodes = _host_names(os.environ[f"SLURM_JOB_NODELIST{more}"])
        counts = counts_of(os.environ.get(f"SLURM_TASKS_PER_NODE{more}", "1"))
        pairs = zip(nodes, counts)  # noqa: B905  # `strict` is not there on Python 3.8
        slots = [node for node, count in pairs for _ in range(count)]
        for name, node in zip(names, slots or nodes):  # noqa: B905  # as above
            placed[name] = {"component": number, "node": node, "address": node}
    addresses = _addresses(sorted({each["node"] for each in placed.values()}))
    for each in placed.values():
        each["address"] = addresses.get(each["node"], each["node"])
    return placed


def _host_names(listed: str) -> list[str]:
    return subprocess.run(
        ["scontrol", "show", "hostnames", listed], stdout=subprocess.PIPE, check=True
    ).stdout.decode().split()  # fmt: skip


def _addresses(nodes: Sequence[str]) -> dict[str, str]:
    """Node -> where it is reached; one request. A node that is not told is reached by its name."""
    for attempt in range(_ADDRESS_TRIES):
        states = _states(",".join(nodes))
        if states is not None:
            return {node: address for node, (_, address) in states.items()}
        time.sleep(attempt + 1)
    return {}


def _states(nodes: str) -> Mapping[str, tuple[str, str]] | None:
    """Node -> its state and where it is reached; None where Slurm does not answer."""
    done = subprocess.run(
        ["scontrol", "show", "node", "--oneliner", nodes], stdout=subprocess.PIPE, check=False
    )
    if done.returncode != 0:
        return None
    found = re.findall(
        r"^NodeName=(\S+).* NodeAddr=(\S+).* State=(\S+)", done.stdout.decode(), re.M
    )
    return {name: (state, address) for name, address, state in found}


def nodes_left(job: str) -> Mapping[str, str] | None:
    """The nodes that a job still has and that answer, in its order, and where each is reached; None where Slurm does not say."""
    done = subprocess.run(
        ["squeue", "--noheader", f"--jobs={job}", "--format=%N"],
        stdout=subprocess.PIPE,
        check=False,
    )
    listed = done.stdout.decode().strip()
    states = _states(listed) if done.returncode == 0 and listed else None
    if not states:
        return None
    return {
        node: states[node][1]
        for node in _host_names(listed)
        if node in states and not _LOST_NODE.search(states[node][0])
    }


def move_from_lost(
    members: Mapping[str, Mapping[str, Any]],
    left: Mapping[str, str],
    tasks_per_node: int,
    completed: Collection[str] = (),
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Places after all whose node is lost have moved to free ones, and the instances for which there is none.

    `left`: node -> address. Who has a node keeps it. Those that are `completed` get what the others leave, and need none.
    """
    free = {
        node: tasks_per_node - sum(place["node"] == node for place in members.values())
        for node in left
    }
    slots = [node for node, count in free.items() for _ in range(count)]
    moved = {name: dict(place) for name, place in members.items()}
    lost = [name for name, place in moved.items() if place["node"] not in left]
    lost.sort(key=lambda name: name in completed)
    for name, node in zip(lost, slots):  # noqa: B905  # of unlike lengths; Python 3.8 has no `strict`
        moved[name].update(node=node, address=left[node])
    return moved, [name for name in lost[len(slots) :] if name not in completed]


class _Keeper:
    """Steps of one allocation."""

    def __init__(self, folder: Path, request: Mapping[str, Any], program: str, agent: str) -> None:
        from airflow_training.agent.files import read_json

        self._folder = folder
        self._run = folder.parent.parent.parent
        self._request = request
        self._command = [sys.executable, "-I", "-S", program, agent]
        self._steps: dict[str, subprocess.Popen[bytes]] = {}
        self._members = (read_json(folder / "started.json") or {})["members"]
        self._completed = True
        """Every step so far has ended with success: none of them will be started again."""
        self._began: set[str] = set()
        """Instances of which there was a step."""
        self._done: set[str] = set()
        """Instances whose last step ended with success."""
        self._over_since: dict[str, float] = {}
        """Step -> since when its attempt is over, although its `srun` is not."""
        self._deaf_look_at = 0.0
        self._nodes_look_at = 0.0
        self.homeless: list[str] = []
        """Instances whose node is lost, and for which there is no other."""

    def run(self) -> None:
        """Return when the allocation is needed no more, and nothing of it lives."""
        quiet_since = time.monotonic()
        while True:
            try:
                self._start_asked()
                self._note_ended()
                if self.homeless:
                    with contextlib.suppress(FileNotFoundError):  # somebody has deleted the folder
                        (self._folder / "start").rename(self._folder / "closed")
                    return
                self._end_deaf()
                if self._steps:
                    quiet_since = time.monotonic()
                elif self._is_needless(time.monotonic() - quiet_since) and self._close():
                    return
            except OSError as error:
                # a full or absent file system: what runs is not to end with us
                with contextlib.suppress(OSError):
                    sys.stderr.write(f"{error}\n")
                    sys.stderr.flush()
                self._forget_ended()
                time.sleep(_TROUBLE_SECONDS)
            time.sleep(_LOOK_SECONDS)

    def _is_needless(self, quiet_seconds: float) -> bool:
        if (self._run / "tombstone.json").exists() or not self._run.exists():
            return True
        if self._completed and self._began == set(self._members):
            return True
        return quiet_seconds > float(self._request["idle_seconds"])

    def _close(self) -> bool:
        """Take no more steps; False where one was asked for just then."""
        start, closed = self._folder / "start", self._folder / "closed"
        try:
            start.rename(closed)
        except FileNotFoundError:
            return True  # somebody has deleted the folder
        if not any(closed.iterdir()) or (self._run / "tombstone.json").exists():
            return True
        closed.rename(start)
        return False

    def _start_asked(self) -> None:
        from airflow_training.agent.files import read_json

        try:
            names = sorted(each.name for each in (self._folder / "start").iterdir())
        except FileNotFoundError:
            return
        for name in names:
            asked = self._folder / "start" / name
            if name.startswith("."):
                continue
            order = read_json(asked)
            step = self._folder / "steps" / name
            with (self._folder / f"{name}.log").open("ab") as log:  # first: a disk may be full
                try:
                    asked.rename(step)
                except FileNotFoundError:  # it was given up
                    continue
                if order is not None:
                    try:
                        self._start(name, order, log)
                    except OSError:
                        step.rename(asked)
                        raise

    def _start(self, name: str, order: Mapping[str, Any], log: BinaryIO) -> None:
        self._began.add(order["instance"])
        self._done.discard(order["instance"])
        place = self._members[order["instance"]]
        component = self._request["components"][place["component"]]
        words = [
            "srun", "--exact", "--nodes=1", "--ntasks=1", "--input=none", "--kill-on-bad-exit=0",
            f"--nodelist={place['node']}", f"--cpus-per-task={component['cpus']}",
            f"--job-name={order['instance']}",
        ]  # fmt: skip
        if len(self._request["components"]) > 1:
            words.append(f"--het-group={place['component']}")
        if component["memory_mb_per_cpu"]:
            words.append(f"--mem-per-cpu={component['memory_mb_per_cpu']}M")
        if component["gpus"]:
            words.append(f"--gpus-per-task={component['gpus']}")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_MEM_PER")}
        self._steps[name] = subprocess.Popen(
            [*words, *self._command, "step", str(self._folder), order["folder"]],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
        )

    def _note_ended(self) -> None:
        from airflow_training.agent.files import read_json, write_json

        for name, step in list(self._steps.items()):
            code = step.poll()
            if code is None:
                continue
            path = self._folder / "steps" / name
            order = read_json(path) or {}
            # before its end is known: what follows is told where it begins
            if not self._newest_end(order) and not self._move_from_lost():
                continue
            end = read_json(Path(order.get("folder", "")) / ".agent" / "exit.json") or {}
            completed = end.get("uid") == order.get("uid") and end.get("reason") == "Completed"
            if not completed:
                following = self._newest_end(order)
                completed = following.get("reason") == "Completed"
            self._completed = self._completed and completed
            if completed:
                self._done.add(order["instance"])
            text = (self._folder / f"{name}.log").read_bytes()[-2000:].decode(errors="replace")
            write_json(path, {**order, "ended_at": time.time(), "code": code, "text": text})
            del self._steps[name]

    def _move_from_lost(self) -> bool:
        """Let spare nodes take the place of lost ones; False where it is not known yet which those are."""
        from airflow_training.agent.files import read_json, write_json

        if not self._request.get("spare_nodes"):
            return True
        if time.monotonic() < self._nodes_look_at:
            return False
        left = nodes_left(os.environ["SLURM_JOB_ID"])
        if left is None:
            self._nodes_look_at = time.monotonic() + _NODES_LOOK_SECONDS
            return False
        moved, self.homeless = move_from_lost(
            self._members, left, self._request["tasks_per_node"], self._done
        )
        if os.environ["SLURMD_NODENAME"] not in left:  # who drives the run looks for us there
            self.homeless = ["what keeps the allocation"]
            return True
        if moved != self._members:
            started = read_json(self._folder / "started.json") or {}
            write_json(self._folder / "started.json", {**started, "members": moved})
            self._members = moved
        return True

    def _end_deaf(self) -> None:
        """End each `srun` that has not heard of the end of its step: it would keep the allocation for ever."""
        from airflow_training.agent.files import read_json

        now = time.monotonic()
        if now < self._deaf_look_at:
            return
        self._deaf_look_at = now + _DEAF_LOOK_SECONDS
        over = {}
        for name, step in self._steps.items():
            end = self._newest_end(read_json(self._folder / "steps" / name) or {})
            if end and not end.get("in_place") and not end.get("stays"):
                over[name] = self._over_since.get(name, now)
                if now - over[name] > _DEAF_SECONDS:
                    step.kill()
        self._over_since = over

    def _forget_ended(self) -> None:
        """Drop what has ended where its run was deleted: there is nowhere left to say so."""
        try:
            self._run.stat()
        except FileNotFoundError:
            pass
        except OSError:
            return
        else:
            return
        self._steps = {name: step for name, step in self._steps.items() if step.poll() is None}

    def _newest_end(self, order: Mapping[str, Any]) -> Mapping[str, Any]:
        """How the last attempt ended that began in the place of the step's own."""
        from airflow_training.agent.files import read_json

        instance = Path(order.get("folder", "")).parent
        return read_json(instance / "current" / ".agent" / "exit.json") or {}


# a step ---------------------------------------------------------------------------------------------
def step(agent: str, allocation: Path, attempt: Path) -> None:
    """Be the agent of an attempt, on its node; never returns."""
    from airflow_training.agent.files import AttemptFolder, read_json, write_json
    from airflow_training.agent.main import main

    folder = AttemptFolder(attempt)
    env = {name: value for name, value in os.environ.items() if _OF_STEP.match(name)}
    order = read_json(folder.spec)
    if order is None:
        raise SystemExit("the folder of the attempt was deleted")
    run = folder.run.name
    hosts = _wait_for_hosts(folder, named_instances(order, run))
    machine = _machine(agent, allocation, str(order["role"]), int(order["index"]))
    write_json(folder.control / "machine.json", machine)
    write_json(folder.control / "step.json", {"env": env, "allocation": str(allocation)})
    write_json(folder.spec, place_order(order, run=run, hosts=hosts, env=env))
    if _wait_for_lock(folder.lock):
        if order.get("container"):
            _end_earlier(folder)
        if order.get("ports") or order.get("container"):
            _watch_agent(folder.instance, {_mark(order)})
    raise SystemExit(main(["live", str(attempt)]))


def _machine(agent: str, allocation: Path, role: str, index: int) -> dict[str, Any]:
    """Where this step is, and the words before a command that is run there: for `agent.remote_shell`."""
    from airflow_training.agent.files import read_json

    request = read_json(allocation.parent / "request.json") or {}
    members = (read_json(allocation / "started.json") or {}).get("members", {})
    component = members.get(f"{role}-{index}", {}).get("component", 0)
    group = str(component) if len(request.get("components", ())) > 1 else ""
    node, job = os.environ["SLURMD_NODENAME"], os.environ["SLURM_JOB_ID"]
    python = [sys.executable, "-I", "-S"]
    program = [*python, str(Path(__file__).resolve()), agent]
    return {
        "name": node,
        "enter": [*program, "enter", job, group, node],
        "job": job,
        "group": group,
        "agent": [*python, agent],
    }


def enter_words(job: str, group: str, node: str, *, terminal: bool = False) -> list[str]:
    """The words before a command that is run on a node of a job, beside the steps there and with none of their resources.

    `group`: number of the component of a heterogeneous job, else nothing. `terminal`: it gets one of its own.
    """
    words = [
        "srun", f"--jobid={job}", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}",
        "--mpi=none", "--quiet", "--kill-on-bad-exit=0", "--pty" if terminal else "--unbuffered",
    ]  # fmt: skip
    return [*words, f"--het-group={group}"] if group else words


def enter(job: str, group: str, node: str, command: Sequence[str]) -> None:
    """Become a command on a node of a job."""
    # what describes the step that asks are options of another one to srun
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SLURM_") or name == "SLURM_CONF"
    }
    words = [*enter_words(job, group, node), *command]
    os.execvpe(words[0], words, environment)  # noqa: S606  # ends as that one ends


def _wait_for_lock(lock: Path) -> bool:
    """Wait until no agent of an earlier attempt lives: on a node that failed it ends itself, but not at once.

    False where one lives on.
    """
    import fcntl

    until = time.monotonic() + _LOCK_SECONDS
    while time.monotonic() < until:
        with lock.open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                time.sleep(_PEER_LOOK_SECONDS)
            else:
                return True
    return False


def _mark(order: Mapping[str, Any]) -> str:
    """What each process of an attempt has in its environment."""
    return f"TRAINING_INSTANCE_UID={order['uid']}"


def _end_earlier(folder: Any) -> None:
    """End on this node what is left of earlier attempts in the place of one."""
    from airflow_training.agent.files import AttemptFolder, read_json

    marks, jobs = set(), set()
    for each in map(AttemptFolder, folder.instance.glob("attempt-*")):
        order = read_json(each.spec)
        if order and each.path != folder.path:
            marks.add(_mark(order))
            jobs.add((read_json(each.control / "step.json") or {}).get("env", {}).get(_JOB, ""))
    _end_marked(marks, jobs - {""})


def _end_marked(marks: set[str], jobs: set[str]) -> None:
    """End what is left of attempts on this node: the kernel does not end what has entered a container with other rights.

    `jobs`: theirs; a job that one of them has queued inherits its marks.
    """
    from airflow_training.agent import proc

    def of_jobs(pid: int) -> bool:
        environment = proc.arguments_of(pid, "environ")
        return any(f"{_JOB}={job}".encode() in environment for job in jobs)

    until = time.monotonic() + _LEFTOVERS_SECONDS
    while time.monotonic() < until:
        left = {pid: at for pid, at in proc.marked_processes(marks).items() if of_jobs(pid)}
        if not left:
            return
        proc.signal_processes(left, signal.SIGKILL)
        time.sleep(_PEER_LOOK_SECONDS)


def _watch_agent(instance: Path, marks: set[str]) -> None:
    """Leave a process that notes when somebody listens on the first port of the attempt that lives.

    Who asks for it may be on another machine, and is not to connect. Once the agent is gone, it ends what is left of
    its attempts; `marks`: of the first.
    """
    from airflow_training.agent import proc
    from airflow_training.agent.files import AttemptFolder, read_json, write_json

    agent = os.getpid()
    began = proc.start_time(agent)
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    if os.fork():  # else the agent would take it for a part of the command
        os._exit(0)
    try:
        os.setsid()
        for stream in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), stream)
        noted = ""
        while proc.start_time(agent) == began:
            folder = AttemptFolder(instance / "current")
            order = read_json(folder.spec) or {}
            state = read_json(folder.state) or {}
            living = state.get("agent") or {}
            if living.get("pid") == agent:  # else one of another node, or the next
                marks.add(_mark(state))
            port = next(iter((order.get("ports") or {}).values()), None)
            if order.get("uid") != noted and port in _listening():
                with contextlib.suppress(OSError):  # a full disk: it is asked for again
                    write_json(folder.control / "port-open.json", {"uid": str(order["uid"])})
                    noted = str(order["uid"])
            time.sleep(_PORT_LOOK_SECONDS)
        _end_marked(marks, {os.environ[_JOB]})
    finally:
        os._exit(0)


def _listening() -> set[int]:
    """The TCP ports of this node that somebody listens on."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A":
                found.add(int(fields[1].rpartition(":")[2], 16))
    return found


def _wait_for_hosts(folder: Any, named: set[str]) -> Mapping[str, str]:
    """Instance -> address; waits for those that were created and whose allocation has not begun."""
    from airflow_training.agent.files import read_json

    until = time.monotonic() + _PEER_SECONDS
    while True:
        hosts = hosts_of(folder.run, read_json, named)
        missing = {
            name for name in named - set(hosts) if (folder.run / name / "current").is_symlink()
        }
        if not missing or folder.delete.exists() or folder.tombstone.exists():
            return hosts
        if time.monotonic() > until:
            sys.stderr.write(f"goes on without the nodes of {', '.join(sorted(missing))}\n")
            return hosts
        time.sleep(_PEER_LOOK_SECONDS)


def hosts_of(
    run: Path, read_json: Callable[[Path], Mapping[str, Any] | None], named: Iterable[str]
) -> Mapping[str, str]:
    """Instance -> address of its node, of those that are named and whose node is known.

    That of the newest attempt: one that waits for a new allocation has no node, though an older attempt had.
    """
    found: dict[str, str] = {}
    # names of allocations grow; clocks of nodes differ
    for path in sorted(run.glob("allocations/*/*/started.json")):
        started = read_json(path)
        if started is not None:
            found.update((name, str(at["address"])) for name, at in started["members"].items())
    hosts = {}
    for name in named:
        current = run / name / "current" / ".agent"
        order = read_json(current / "spec.json")
        if order is None:  # not created: it will be in the allocation of its gang
            address = found.get(name)
        else:
            placement = read_json(current / "placement.json") or {}
            key = placement.get("allocation") if placement.get("uid") == order.get("uid") else None
            started = read_json(run / "allocations" / key / "started.json") if key else None
            place = ((started or {}).get("members") or {}).get(name) or {}
            address = place.get("address")
        if address:
            hosts[name] = str(address)
    return hosts


def _main(words: list[str]) -> int:
    agent, what = words[:2]
    if what == "enter":
        enter(words[2], words[3], words[4], words[5:])
    folder = Path(words[2])
    sys.path.insert(0, agent)
    if what == "keep":
        return keep(folder, str(Path(__file__).resolve()), agent)
    step(agent, folder, Path(words[3]))
    return 1


if __name__ == "__main__":
    raise SystemExit(_main(sys.argv[1:]))
