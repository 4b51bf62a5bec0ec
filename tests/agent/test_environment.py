"""What the agent records around an instance: from both versions of cgroups, within 8 KiB, at the exit too."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_training.agent.devices import COMMAND, DeviceWatch, device_watch, visible
from airflow_training.agent.environment import MOST_BYTES, Cgroup, Recorder
from airflow_training.agent.parameters import ParametersFile
from airflow_training.agent.software import MOST_BYTES as MOST_SOFTWARE_BYTES
from airflow_training.agent.software import SoftwareWatch, _line_of
from tests.waiting import wait_until


def a_recorder(tmp_path: Path, **more) -> Recorder:
    return Recorder(
        tmp_path / "environment.jsonl",
        progress=tmp_path / "progress.jsonl",
        own_cgroup=more.pop("own_cgroup", False),
        **more,
    )


def records(tmp_path: Path, *, software: bool = False) -> list[dict[str, Any]]:
    """What was recorded; with that of the Python, which comes when its child has answered, if wanted."""
    found = map(json.loads, (tmp_path / "environment.jsonl").read_text().splitlines())
    return [each for each in found if software or each["on"] != "software"]


def test_the_last_ten_records_are_kept(tmp_path):
    recorder = a_recorder(tmp_path)
    line = ""
    for _ in range(13):
        line = recorder.record("interval")
    kept = records(tmp_path)
    assert [each["number"] for each in kept] == [*range(3, 13)]
    assert json.loads(line) == kept[-1]


@pytest.mark.e2e
def test_a_record_says_what_is_around(tmp_path):
    (tmp_path / "progress.jsonl").write_text('{"step": 4}\n{"section": "eval"}\n{"step": 9')
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        record = json.loads(a_recorder(tmp_path).record("start", phase="running"))
    finally:
        child.kill()
        child.wait()
    assert (record["on"], record["phase"], record["step"]) == ("start", "running", 4)
    assert abs(record["at"] - time.time()) < 60
    assert record["node"]["host"]
    assert record["disk"]["free_bytes"] > 0
    assert child.pid in [each["pid"] for each in record["processes"]["tree"]]
    assert record["processes"]["count"] >= 1


@pytest.mark.e2e
def test_the_python_that_runs_is_asked_what_it_finds(tmp_path):
    """A virtual environment, called by name, with packages on a path of its own."""
    link, packages = tmp_path / "bin" / "python3", tmp_path / "packages"
    (packages / "Ham_Eggs-2.0.dist-info").mkdir(parents=True)
    (packages / "spam-1.5-py3.11.egg-info").mkdir()
    (packages / "no version.dist-info").mkdir()
    (packages / "nvidia_cudnn_cu12-9.1.0.70.dist-info").mkdir()
    (packages / "torch").mkdir()
    (packages / "torch" / "version.py").write_text("cuda: Optional[str] = '12.6'\n")
    link.parent.mkdir()
    link.symlink_to(Path(sys.executable).resolve())
    (tmp_path / "pyvenv.cfg").write_text(
        f"home = {Path(sys.executable).resolve().parent}\ninclude-system-site-packages = false\n"
    )
    shell = subprocess.Popen(
        ["sh", "-c", "python3 -c 'import time; time.sleep(600)'; exit"],
        env={"PATH": f"{link.parent}:{os.defpath}", "PYTHONPATH": "packages"},
        cwd=tmp_path,
        start_new_session=True,
    )
    recorder = a_recorder(tmp_path, root=shell.pid)
    try:
        wait_until(lambda: (recorder.record("interval"), recorder.software)[1])
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
    software = json.loads(recorder.software)
    assert software["on"] == "software"
    assert software["python"] == sys.version.split()[0]
    assert software["executable"] == str(link)
    cudnn = {"nvidia-cudnn-cu12": "9.1.0.70"}
    assert software["packages"] == {"ham-eggs": "2.0", "spam": "1.5", **cudnn}
    told = {name: text for name, text in software["gpu"].items() if name != "driver"}
    assert told == {"CUDA": "12.6 (torch)", "cuDNN": "9.1.0.70 (package)"}
    assert "torch" not in software
    recorder.record("exit")
    assert records(tmp_path, software=True)[0] == software
    assert [each["on"] for each in records(tmp_path)[1:]][-1] == "exit"


@pytest.mark.e2e
def test_what_runs_no_python_is_not_asked(tmp_path):
    shell = subprocess.Popen(["sh", "-c", "sleep 600; exit"], start_new_session=True)
    recorder = a_recorder(tmp_path, root=shell.pid)
    try:
        recorder.record("start")
        recorder.record("exit")
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
    assert recorder.software == ""


def test_what_a_training_was_set_to_is_told_with_its_software(tmp_path):
    watch, parameters = SoftwareWatch(), ParametersFile(tmp_path / "progress.jsonl")
    assert watch.record(parameters) == ""
    told = {"from": "argparse", "values": {"lr": 0.1}}
    (tmp_path / "parameters.jsonl").write_text(json.dumps(told) + "\n")
    set_to = {"argparse": {"lr": 0.1}}
    assert json.loads(watch.record(parameters)) == {"on": "software", "parameters": set_to}
    watch.line = _line_of(b'{"python": "3.11.1", "packages": {}}')
    found = json.loads(watch.record(parameters))
    assert (found["python"], found["parameters"]) == ("3.11.1", set_to)


def test_more_packages_than_there_is_room_for_are_counted():
    packages = {f"package-{number:05}": "1.0" for number in range(5000)}
    line = _line_of(json.dumps({"python": "3.11.1", "packages": packages}).encode())
    assert len(line) <= MOST_SOFTWARE_BYTES
    said = json.loads(line)
    assert len(said["packages"]) + said["left_out"] == 5000
    assert _line_of(b"[]") == _line_of(b"{") == _line_of(b'{"packages": 3}') == ""


WORKS = """
import sys, time
held = bytearray(64 << 20)
while time.process_time() < 0.5: pass
print("worked", flush=True)
time.sleep(600)
"""


@pytest.mark.e2e
def test_the_usage_is_that_of_the_instance_whatever_else_its_group_and_machine_do(tmp_path):
    """Two instances of one group: what one uses does not show in the record of the other."""
    idle = [sys.executable, "-c", "print('idle', flush=True); import time; time.sleep(600)"]
    parents = [
        subprocess.Popen(
            # a parent as the agent is one: what it starts is the instance
            [sys.executable, "-c", f"import subprocess; subprocess.run({command!r})"],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        for command in ([sys.executable, "-c", WORKS], idle)
    ]
    try:
        for each in parents:
            assert each.stdout is not None
            each.stdout.readline()
        busy, other = (
            json.loads(a_recorder(tmp_path, root=each.pid).record("interval")) for each in parents
        )
    finally:
        for each in parents:
            os.killpg(each.pid, signal.SIGKILL)
            each.communicate()
    assert busy["cgroup"] == other["cgroup"] == "shared"
    assert 0.4 < busy["usage"]["cpu_seconds"] < 30
    assert other["usage"]["cpu_seconds"] < busy["usage"]["cpu_seconds"]
    assert 64 << 20 < busy["usage"]["rss_bytes"] < 256 << 20
    assert other["usage"]["rss_bytes"] < 64 << 20
    assert busy["usage"]["processes"] == other["usage"]["processes"] == 1
    assert busy["usage"]["threads"] >= 1


@pytest.mark.e2e
def test_processes_that_have_ended_are_in_the_usage(tmp_path):
    work = "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", work], check=True)
    usage = json.loads(a_recorder(tmp_path, own_cgroup=True).record("exit"))["usage"]
    assert usage["cpu_seconds"] >= 0.4


def test_the_exit_is_recorded_with_what_ended_it(tmp_path):
    recorder = a_recorder(tmp_path)
    recorder.record("start")
    recorder.record("exit", exit={"exit_code": None, "signal": 9, "reason": "OOMKilled"})
    assert records(tmp_path)[-1]["exit"]["reason"] == "OOMKilled"


@pytest.mark.parametrize("size", [1, 100, 20_000])
def test_no_record_is_longer_than_8_kib(tmp_path, size, monkeypatch):
    from airflow_training.agent import environment

    def crowd(_: int) -> list[dict[str, Any]]:
        one = {"name": "x" * 60, "rss_bytes": 1, "threads": 1, "cpu_seconds": 0.5}
        return [{"pid": n, **one} for n in range(size)]

    monkeypatch.setattr(environment, "_living", crowd)
    devices = DeviceWatch(list)
    monkeypatch.setattr(
        devices, "newest", lambda: [{"id": str(n), "error": "e" * 120} for n in range(size)]
    )
    monkeypatch.setattr(devices, "ask", lambda: None)
    line = a_recorder(tmp_path, devices=devices).record("interval")
    assert len(line.encode()) <= MOST_BYTES
    assert json.loads(line)["processes"]["count"] == size
    assert json.loads(line)["usage"]["rss_bytes"] == size


def test_a_disk_that_takes_nothing_ends_nothing(tmp_path):
    (tmp_path / "environment.jsonl").mkdir()
    assert json.loads(a_recorder(tmp_path).record("start"))["on"] == "start"


# cgroups -----------------------------------------------------------------------------------------
def files(folder: Path, **contents: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name.replace("__", ".")).write_text(content)
    return folder


def test_counters_of_version_2(tmp_path):
    group = files(
        tmp_path / "ours",
        cpu__stat="usage_usec 2500000\nnr_throttled 3\nthrottled_usec 40000\n",
        cpu__max="150000 100000\n",
        memory__current="1000\n",
        memory__max="4096\n",
        memory__peak="2000\n",
        memory__stat="anon 5\ninactive_file 200\n",
        memory__events="low 0\noom 1\noom_kill 2\n",
        memory__pressure="some avg10=1.50 avg60=0.00\nfull avg10=0.25 avg60=0.00\n",
        pids__current="7\n",
        pids__max="max\n",
    )
    found = Cgroup(group, mount=tmp_path)
    assert found.cpu() == {
        "used_seconds": 2.5,
        "limit_cores": 1.5,
        "throttled_periods": 3,
        "throttled_seconds": 0.04,
    }
    assert found.memory() == {
        "used_bytes": 800,
        "limit_bytes": 4096,
        "peak_bytes": 2000,
        "oom_kills": 2,
    }
    assert found.pids() == {"current": 7}
    assert found.pressure()["memory"] == {"some10": 1.5, "full10": 0.25}


def test_counters_of_version_1(tmp_path):
    files(tmp_path / "cpuacct", cpuacct__usage="2500000000\n")
    files(
        tmp_path / "cpu",
        cpu__stat="nr_throttled 3\nthrottled_time 40000000\n",
        cpu__cfs_quota_us="-1\n",
        cpu__cfs_period_us="100000\n",
    )
    files(
        tmp_path / "memory",
        memory__usage_in_bytes="1000\n",
        memory__limit_in_bytes="9223372036854771712\n",
        memory__max_usage_in_bytes="2000\n",
        memory__stat="total_inactive_file 200\n",
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    )
    found = Cgroup(mount=tmp_path)
    assert found.cpu() == {
        "used_seconds": 2.5,
        "throttled_periods": 3,
        "throttled_seconds": 0.04,
    }
    assert found.memory() == {"used_bytes": 800, "peak_bytes": 2000, "oom_kills": 2}


def test_a_kernel_that_says_nothing_is_no_error(tmp_path):
    found = Cgroup(mount=tmp_path)
    assert (found.cpu(), found.memory(), found.pids()) == ({}, {}, {})


# devices -----------------------------------------------------------------------------------------
def asked(watch: DeviceWatch) -> list[dict[str, Any]]:
    return watch.finish(20.0)


@pytest.mark.e2e
def test_a_plug_in_says_what_devices_there_are():
    assert asked(DeviceWatch(lambda: [{"id": "0", "busy_percent": 5}])) == [
        {"id": "0", "busy_percent": 5}
    ]


@pytest.mark.e2e
def test_any_command_may_be_the_plug_in(tmp_path):
    script = 'echo \'[{"id": "npu0", "error": "gone"}]\''
    watch = device_watch({COMMAND: script, "PATH": os.environ["PATH"]})
    assert watch is not None
    assert asked(watch) == [{"id": "npu0", "error": "gone"}]


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("command", "error"),
    [
        pytest.param("exit 3", "failed", id="it-fails"),
        pytest.param("echo nonsense", "JSONDecodeError", id="no-json"),
        pytest.param("echo 7", "no list of devices", id="no-list"),
    ],
)
def test_a_plug_in_that_fails_is_an_error_of_all_devices(command, error):
    watch = device_watch({COMMAND: command, "PATH": os.environ["PATH"]})
    assert watch is not None
    [found] = asked(watch)
    assert found["id"] == "all"
    assert error in found["error"]


@pytest.mark.e2e
def test_a_plug_in_that_hangs_holds_up_nobody_and_is_ended(tmp_path):
    pid_file = tmp_path / "pid"
    command = f"echo $$ > {pid_file}; sleep 600"
    watch = device_watch({COMMAND: command, "PATH": os.environ["PATH"]})
    assert watch is not None
    watch.ask()
    wait_until(lambda: pid_file.exists() and pid_file.read_text().strip())
    hanging = Path(f"/proc/{pid_file.read_text().strip()}")
    assert watch.newest() == []
    watch.ask()
    assert "\nState:\tS" in (hanging / "status").read_text(), "nobody waited for its end"
    assert watch.finish(0.05) == []
    wait_until(lambda: not hanging.exists() or "\nState:\tZ" in (hanging / "status").read_text())


def test_a_machine_without_devices_is_not_asked(monkeypatch):
    from airflow_training.agent import devices

    monkeypatch.setattr(devices, "_NVIDIA", Path("/nowhere"))
    assert device_watch({}) is None


NVML = """
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned int gpu, memory; } use;
int nvmlInit_v2(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : "?"; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int i, void **h) { *h = (void *)(4294967296 + i); return 0; }
int nvmlDeviceGetUUID(void *h, char *to, unsigned int n) {
    strncpy(to, h == (void *)4294967296 ? "GPU-a" : "GPU-b", n); return 0; }
int nvmlDeviceGetName(void *h, char *to, unsigned int n) { strncpy(to, "H100", n); return 0; }
int nvmlDeviceGetMemoryInfo(void *h, memory *m) {
    if (h != (void *)4294967296) return 15;
    m->total = 80; m->free = 30; m->used = 50; return 0; }
int nvmlDeviceGetUtilizationRates(void *h, use *u) { u->gpu = 97; return 0; }
int nvmlDeviceGetTemperature(void *h, int sensor, unsigned int *c) { *c = 61; return 0; }
int nvmlDeviceGetTotalEccErrors(void *h, int kind, int counter, unsigned long long *n) {
    *n = 0; return kind == 1 && counter == 0 ? 0 : 3; }
"""


MIG = """
int nvmlDeviceGetMigMode(void *h, unsigned int *current, unsigned int *pending) {
    *current = *pending = 1; return 0; }
"""


@pytest.mark.e2e
@pytest.mark.skipif(shutil.which("cc") is None, reason="makes a stand-in for NVIDIA's library")
@pytest.mark.parametrize(
    ("more", "divided"), [("", {}), (MIG, {"divided": True})], ids=["old-driver", "divided"]
)
def test_nvidia_gpus_are_asked_through_the_drivers_library(tmp_path, more, divided):
    (tmp_path / "nvml.c").write_text(NVML + more)
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "nvml.c"], check=True)
    program = (
        "import json; from airflow_training.agent.devices import _ask_nvidia;"
        "print(json.dumps(_ask_nvidia()))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        check=True,
        capture_output=True,
    )
    assert json.loads(answer.stdout) == [
        {
            "id": "GPU-a",
            "name": "H100",
            "used_bytes": 50,
            "bytes": 80,
            "busy_percent": 97,
            "celsius": 61,
            **divided,
            "uncorrected_errors": 0,
        },
        {"id": "GPU-b", "name": "H100", "error": "NVML: GPU is lost"},
    ]


GPUS = [{"id": "GPU-a"}, {"id": "GPU-b"}, {"id": "GPU-c"}]
BY_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@pytest.mark.parametrize(
    ("environment", "seen"),
    [
        pytest.param({}, "abc", id="all"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "2,0", **BY_BUS}, "ca", id="by-number"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "1, 7", **BY_BUS}, "b", id="one-is-not-there"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "1"}, "abc", id="numbers-of-another-order"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "GPU-b"}, "b", id="by-uuid"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "MIG-b"}, "abc", id="by-a-name-we-do-not-know"),
        pytest.param({"CUDA_VISIBLE_DEVICES": ""}, "", id="none"),
    ],
)
def test_only_the_gpus_that_an_instance_sees_are_its_own(environment, seen):
    assert "".join(each["id"][-1] for each in visible(GPUS, environment)) == seen
