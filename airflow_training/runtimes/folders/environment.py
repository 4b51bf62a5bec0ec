"""What the command of an instance gets: environment, `$(VAR)` references, memory and threads."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from airflow_training.agent.files import AttemptFolder
from airflow_training.agent.library import library_path
from airflow_training.documents.quantities import parse_quantity
from airflow_training.runtimes.port import InstanceSpec

__all__ = [
    "command_line",
    "environment",
    "expand",
    "gpu_count",
    "inherited",
    "memory_bytes",
    "path_with_our_python",
]

ALWAYS_INHERITED = (
    "PATH", "HOME", "LANG", "LC_*", "TZ", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "CUDA_*",
    "NVIDIA_*",
)  # fmt: skip
"""As the option `local_env` tells the user."""
_NEVER_INHERITED = ("AIRFLOW*", "_AIRFLOW*")
_REFERENCE = re.compile(r"\$(?:\$|\(([A-Za-z_][A-Za-z0-9_.-]*)\))")


def expand(text: str, known: Mapping[str, str]) -> str:
    """Return `text` with `$(VAR)` replaced as Kubernetes does: `$$` is `$`, unknown names stay."""

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$"
        return known.get(match[1], match[0])

    return _REFERENCE.sub(value, text)


def inherited(source: Mapping[str, str], patterns: Sequence[str]) -> dict[str, str]:
    """Variables that an instance inherits from its creator's environment; never Airflow's."""
    allowed = (*ALWAYS_INHERITED, *patterns)
    return {
        name: value
        for name, value in source.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in allowed)
        and not any(fnmatch.fnmatchcase(name, pattern) for pattern in _NEVER_INHERITED)
    }


def path_with_our_python(path: str) -> str:
    """Return PATH with the creator's interpreter in front: `python` is the one that runs us."""
    ours = str(Path(sys.executable).parent)
    rest = [part for part in (path or os.defpath).split(os.pathsep) if part and part != ours]
    return os.pathsep.join([ours, *rest])


def environment(
    spec: InstanceSpec,
    folder: AttemptFolder,
    *,
    uid: str,
    remote_shell: Path,
    library: Path,
    inherit: Sequence[str],
    gpus: Sequence[str] = (),
) -> dict[str, str]:
    """Return the whole environment of the command.

    Later ones win: inherited names, ours, the instance's own, and again the ones only we know.
    `library`: where a script finds `airflow_training.checkpoints`, after what it names itself.
    `gpus`: the devices that are this instance's alone; without any it sees what its creator sees.
    """
    base = inherited(os.environ, inherit)
    base["PATH"] = path_with_our_python(base.get("PATH", ""))
    base["PYTHONUNBUFFERED"] = "1"
    threads = spec.resources.get("cpu")
    if threads is not None:
        base["OMP_NUM_THREADS"] = str(max(1, int(parse_quantity(threads))))
    if gpus:
        base["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        # so that numbers mean what nvidia-smi lists, not the fastest first
        base.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    fixed = {
        "TRAINING_OUTPUT_DIR": str(folder.output),
        "TRAINING_PREDICTIONS_DIR": str(folder.predictions),
        "TRAINING_PROGRESS_FILE": str(folder.progress),
        "TRAINING_INSTANCE_DIR": str(folder.path),
        "TRAINING_REMOTE_SHELL": str(remote_shell),
        # by this mark whatever outlives its agent is found again
        "TRAINING_INSTANCE_UID": uid,
    }
    result = {**base, **fixed}
    for name, value in spec.env.items():
        result[name] = fixed.get(name, expand(value, result))
    # with or without `checkpoint`: a script that can save must also run where the job keeps nothing
    result["PYTHONPATH"] = library_path(str(library), result)
    return result


def command_line(spec: InstanceSpec, env: Mapping[str, str]) -> list[str]:
    """Return the words to execute; raises ValueError where there are none."""
    words = [expand(word, env) for word in (*spec.command, *spec.args)]
    if not spec.command:
        raise ValueError("no command: on this runtime there is no image that brings one")
    # a system Python is often only called python3; one of an environment is there only later
    is_ours = words[0] == "python" and spec.environment is None
    if is_ours and shutil.which("python", path=env.get("PATH")) is None:
        words[0] = sys.executable
    return words


def memory_bytes(spec: InstanceSpec) -> int | None:
    """Return the memory limit, or None."""
    limit = spec.resources.get("memory")
    return None if limit is None else int(parse_quantity(limit))


def gpu_count(spec: InstanceSpec) -> int:
    """Return how many GPUs the instance asks for."""
    return int(parse_quantity(spec.resources.get("nvidia.com/gpu", 0)))
