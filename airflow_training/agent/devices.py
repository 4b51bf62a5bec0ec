r"""GPUs and NPUs of an instance, asked in a child: a driver that hangs must not hold up the agent.

A plug-in is a callable without arguments that returns one dictionary per device: `id` and, as far
as known, `name`, `used_bytes`, `bytes`, `busy_percent`, `celsius`, `divided` (given out in parts)
and `error`. A device with an `error`, and one that is not there any more, is lost. NVIDIA's library
is asked where it is installed; `$TRAINING_DEVICE_COMMAND` (words for a shell) prints the same as a
JSON list for others.
"""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path

from airflow_training.agent.child_calls import LONGEST_TEXT, ChildCall

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    Devices = list[dict[str, Any]]
    Plugin = Callable[[], Devices]

__all__ = ["COMMAND", "DeviceWatch", "device_plugin", "device_watch", "devices_of", "visible"]

COMMAND = "TRAINING_DEVICE_COMMAND"
_PATIENCE_SECONDS = 30.0
_MOST_BYTES = 1 << 16
_MOST_DEVICES = 16
_NVIDIA = Path("/dev/nvidiactl")


def device_plugin(environment: Mapping[str, str]) -> Plugin | None:
    """The plug-in that lists the devices of an instance; None where the environment names none."""
    command = environment.get(COMMAND)
    if command:
        return lambda: _ask_command(command, environment)
    return (lambda: visible(_ask_nvidia(), environment)) if _NVIDIA.exists() else None


def device_watch(
    environment: Mapping[str, str], known: Sequence[dict[str, Any]] = ()
) -> DeviceWatch | None:
    """The watch over the devices of an instance; None where there is nothing to ask.

    `known`: what they said before the start.
    """
    plugin = device_plugin(environment)
    return None if plugin is None else DeviceWatch(plugin, known)


class DeviceWatch:
    """Asks a plug-in again and again; never waits for it."""

    def __init__(self, ask: Plugin, known: Sequence[dict[str, Any]] = ()) -> None:
        self._question = ChildCall(ask, on_error=_all_lost)
        self._devices: Devices = [*known]

    def newest(self) -> Devices:
        """The last answer of the plug-in; a question without an answer counts as one after a while."""
        self._collect(0.0)
        if self._question.waiting and self._question.age > _PATIENCE_SECONDS:
            self._devices = _all_lost(f"no answer in {_PATIENCE_SECONDS:g} s")
            self._question.give_up()
        return self._devices

    def finish(self, seconds: float) -> Devices:
        """A fresh answer, if the plug-in gives it within `seconds`; nothing of it lives on."""
        self.ask()
        self._collect(seconds)
        self._question.give_up()
        return self._devices

    def ask(self) -> None:
        """Put the question, if none waits for its answer."""
        self._question.put()

    def _collect(self, seconds: float) -> None:
        answer = self._question.answer(within=seconds)
        if answer is not None:
            self._devices = devices_of(answer)


def _all_lost(error: str) -> Devices:
    return [{"id": "all", "error": error}]


def devices_of(answer: bytes) -> Devices:
    """The devices in a plug-in's answer, without entries that are no list of devices."""
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        return _all_lost("the device plug-in answered no list of devices")
    return [
        {
            str(name)[:LONGEST_TEXT]: value[:LONGEST_TEXT] if isinstance(value, str) else value
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
class _MemoryInfo(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]  # fmt: skip


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


_UNCORRECTED, _SINCE_BOOT, _CELSIUS = 1, 0, 0


def visible(devices: Devices, environment: Mapping[str, str]) -> Devices:
    """Return those that CUDA shows the instance: the others are no business of it.

    Only where it is sure which are meant: UUIDs, or numbers in the order of the bus, as NVML's are.
    """
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return devices
    numbered = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    known = {str(each["id"]): each for each in devices}
    if numbered:
        known.update({str(number): each for number, each in enumerate(devices)})
    words = [word.strip() for word in named.split(",") if word.strip()]
    if not all(word in known or (numbered and word.isdigit()) for word in words):
        return devices
    return [known[word] for word in words if word in known]


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
    memory, busy = _MemoryInfo(), _Utilization()
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
        if _is_divided(nvml, handle):
            found["divided"] = True
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


def _is_divided(nvml: Any, handle: Any) -> bool:
    """Return whether the GPU is given out in parts (MIG); old drivers know of none."""
    ask = getattr(nvml, "nvmlDeviceGetMigMode", None)
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    return bool(
        ask is not None
        and ask(handle, ctypes.byref(current), ctypes.byref(pending)) == 0
        and current.value
    )


def _check(nvml: Any, status: int) -> None:
    if status:
        nvml.nvmlErrorString.restype = ctypes.c_char_p
        raise OSError(f"NVML: {nvml.nvmlErrorString(status).decode()}")
