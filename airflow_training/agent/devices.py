r"""GPUs and NPUs of an instance, asked in a child: a driver that hangs must not hold up the agent.

A plug-in is a callable without arguments that returns one dictionary per device: `id` and, as far
as known, `name`, `used_bytes`, `bytes`, `busy_percent`, `celsius` and `error`. A device with an
`error`, and one that is not there any more, is lost. NVIDIA's library is asked where it is
installed; `$TRAINING_DEVICE_COMMAND` (words for a shell) prints the same as a JSON list for others.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import time
from pathlib import Path

from airflow_training.agent import proc

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Devices = list[dict[str, Any]]
    Plugin = Callable[[], Devices]

__all__ = ["COMMAND", "DeviceWatch", "device_watch"]

COMMAND = "TRAINING_DEVICE_COMMAND"
_PATIENCE_SECONDS = 30.0
_MOST_BYTES = 1 << 16
_MOST_DEVICES = 16
_LONGEST_TEXT = 120
_NVIDIA = Path("/dev/nvidiactl")


def device_watch(environment: Mapping[str, str]) -> DeviceWatch | None:
    """Return what watches the devices of an instance; None where there is nothing to ask."""
    command = environment.get(COMMAND)
    if command:
        return DeviceWatch(lambda: _ask_command(command, environment))
    return DeviceWatch(_ask_nvidia) if _NVIDIA.exists() else None


class DeviceWatch:
    """Asks a plug-in again and again, each time in a child of its own; never waits for it."""

    def __init__(self, ask: Plugin) -> None:
        self._ask = ask
        self._child: int | None = None
        self._unburied: list[int] = []
        self._pipe = -1
        self._asked_at = 0.0
        self._answer = b""
        self._devices: Devices = []

    def newest(self) -> Devices:
        """Return what the plug-in last said."""
        if self._child is not None:
            self._collect()
        return self._devices

    def finish(self, seconds: float) -> Devices:
        """Return what it says now, if it does within `seconds`; nothing of it lives on."""
        until = time.monotonic() + seconds
        self.ask()
        while self._child is not None and time.monotonic() < until:
            select.select([self._pipe], [], [], max(0.0, until - time.monotonic()))
            self._collect()
        if self._child is not None:
            self._give_up()
        return self._devices

    def ask(self) -> None:
        """Put the question, if none waits for its answer."""
        if self._child is not None:
            return
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            self._be_child(read, write)
        os.close(write)
        os.set_blocking(read, False)
        self._child, self._pipe, self._asked_at = child, read, time.monotonic()
        self._answer = b""

    def _be_child(self, read: int, write: int) -> None:
        """Ask, answer, and leave; never returns."""
        try:
            os.setsid()  # whatever it starts ends with it
            with contextlib.suppress(ValueError):  # not in the main thread
                signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            proc.die_with_parent()
            os.close(read)
            try:
                answer = json.dumps(self._ask())
            except Exception as error:  # noqa: BLE001  # whatever a driver or a command does
                answer = json.dumps([{"id": "all", "error": repr(error)[:_LONGEST_TEXT]}])
            with os.fdopen(write, "wb") as pipe:
                pipe.write(answer.encode())
        finally:
            os._exit(0)

    def _collect(self) -> None:
        """Take in what was answered; a question without an answer is one after a while."""
        with contextlib.suppress(BlockingIOError):
            while True:
                block = os.read(self._pipe, _MOST_BYTES)
                self._answer = (self._answer + block)[: _MOST_BYTES + 1]
                if not block:
                    self._devices = _devices(self._answer)
                    self._end()
                    return
        if self._child is not None and time.monotonic() - self._asked_at > _PATIENCE_SECONDS:
            self._devices = [{"id": "all", "error": f"no answer in {_PATIENCE_SECONDS:g} s"}]
            self._give_up()

    def _give_up(self) -> None:
        # somebody of it still holds the pipe: the number of its group is nobody else's
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child, signal.SIGKILL)
        self._end()

    def _end(self) -> None:
        os.close(self._pipe)
        if self._child is not None:
            self._unburied.append(self._child)
        self._child, self._pipe = None, -1
        self._unburied = [pid for pid in self._unburied if _lives(pid)]


def _lives(child: int) -> bool:
    """Return whether it still has to be waited for: in a driver that hangs that may take for ever."""
    try:
        return os.waitpid(child, os.WNOHANG)[0] == 0
    except ChildProcessError:  # the agent waits for all its children
        return False


def _devices(answer: bytes) -> Devices:
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        return [{"id": "all", "error": "the device plug-in answered no list of devices"}]
    return [
        {
            str(name)[:_LONGEST_TEXT]: value[:_LONGEST_TEXT] if isinstance(value, str) else value
            for name, value in each.items()
            if isinstance(value, (str, int, float))
        }
        for each in found[:_MOST_DEVICES]
    ]


def _ask_command(command: str, environment: Mapping[str, str]) -> Devices:
    """Return what the command prints; raises what goes wrong with it."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(write, 1)
            os.execvpe("sh", ["sh", "-c", command], dict(environment))  # noqa: S606  # the user's own
        finally:
            os._exit(127)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        printed = pipe.read(_MOST_BYTES + 1)
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise OSError(f"{COMMAND} failed (status {status})")
    devices: Devices = json.loads(printed)
    return devices


# NVIDIA ------------------------------------------------------------------------------------------
class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]  # fmt: skip


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


_UNCORRECTED, _SINCE_BOOT, _CELSIUS = 1, 0, 0


def _ask_nvidia() -> Devices:
    """Return every GPU that NVML shows; raises OSError where the library is not there or fails."""
    nvml: Any = ctypes.CDLL("libnvidia-ml.so.1")
    _check(nvml, nvml.nvmlInit_v2())
    count = ctypes.c_uint()
    _check(nvml, nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)))
    return [_gpu(nvml, index) for index in range(count.value)]


def _gpu(nvml: Any, index: int) -> dict[str, Any]:
    handle = ctypes.c_void_p()
    name = ctypes.create_string_buffer(96)
    memory, busy = _Memory(), _Utilization()
    errors, celsius = ctypes.c_ulonglong(), ctypes.c_uint()
    found: dict[str, Any] = {"id": str(index)}
    try:
        _check(nvml, nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)))
        _check(nvml, nvml.nvmlDeviceGetUUID(handle, name, len(name)))
        found["id"] = name.value.decode()
        _check(nvml, nvml.nvmlDeviceGetName(handle, name, len(name)))
        found["name"] = name.value.decode()
        _check(nvml, nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)))
        found.update(used_bytes=memory.used, bytes=memory.total)
        if not nvml.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(busy)):
            found["busy_percent"] = busy.gpu
        if not nvml.nvmlDeviceGetTemperature(handle, _CELSIUS, ctypes.byref(celsius)):
            found["celsius"] = celsius.value
        if not nvml.nvmlDeviceGetTotalEccErrors(
            handle, _UNCORRECTED, _SINCE_BOOT, ctypes.byref(errors)
        ):
            found["uncorrected_errors"] = errors.value
            if errors.value:
                found["error"] = (
                    f"{errors.value} uncorrected memory errors since the driver started"
                )
    except OSError as error:
        found["error"] = str(error)
    return found


def _check(nvml: Any, status: int) -> None:
    if status:
        nvml.nvmlErrorString.restype = ctypes.c_char_p
        raise OSError(f"NVML: {nvml.nvmlErrorString(status).decode()}")
