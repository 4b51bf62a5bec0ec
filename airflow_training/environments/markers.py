"""Where a package is needed: PEP 508 markers, judged for a Python that is only known by its record. Pure."""

from __future__ import annotations

from airflow_training.environments.model import PythonEnvironment

__all__ = ["holds"]

_SYSTEMS = {"linux": "Linux", "darwin": "Darwin", "win32": "Windows"}
_IMPLEMENTATIONS = {"cpython": "CPython", "pypy": "PyPy"}


def holds(marker: str, record: PythonEnvironment) -> bool:
    """Say whether a marker is true there; no marker is, and one that cannot be judged (of an extra) is not."""
    if not marker:
        return True
    # when it is needed: most distributions have no marker
    from packaging.markers import InvalidMarker, Marker, UndefinedEnvironmentName

    environment = {
        "implementation_name": record.implementation,
        "implementation_version": record.python,
        "os_name": "nt" if record.system == "win32" else "posix",
        "platform_machine": record.machine,
        "platform_python_implementation": _IMPLEMENTATIONS.get(record.implementation, ""),
        "platform_release": "",
        "platform_system": _SYSTEMS.get(record.system, record.system),
        "platform_version": "",
        "python_full_version": record.python,
        "python_version": record.minor,
        "sys_platform": record.system,
        "extra": "",
    }
    try:
        return Marker(marker).evaluate(environment)
    except (InvalidMarker, UndefinedEnvironmentName):
        return False
