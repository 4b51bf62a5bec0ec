"""Command lines that start several processes: `torchrun`, `accelerate launch`, `deepspeed`, `mpirun`.

Each becomes what an instance of ours runs. What such a line says about hosts, ranks and rendezvous is the framework's; how
many there are of both becomes `replicas` and a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from airflow_training.interchange.deepspeed_launcher import read_deepspeed
from airflow_training.interchange.launch import Launch, LaunchSite
from airflow_training.interchange.mpirun import read_mpirun
from airflow_training.interchange.options import Argument
from airflow_training.interchange.torch_launchers import read_accelerate, read_torchrun

__all__ = ["launcher_of", "read_launch"]


def launcher_of(words: Sequence[str]) -> str:
    """Return which launcher a command line calls; empty: none."""
    if not words:
        return ""
    name = words[0].rsplit("/", 1)[-1]
    if name in ("torchrun", "deepspeed"):
        return name
    if name in ("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"):
        return "mpirun"
    if name in ("accelerate", "accelerate-launch"):
        return "accelerate" if name != "accelerate" or words[1:2] == ["launch"] else ""
    if name.startswith("python"):
        for i, word in enumerate(words[1:], start=1):
            if word == "-m":
                module = words[i + 1] if i + 1 < len(words) else ""
                return _MODULES.get(module, "")
            if not word.startswith("-"):
                return ""
    return ""


_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
    "deepspeed": "deepspeed",
}


def read_launch(words: Sequence[Argument], site: LaunchSite) -> Launch:
    """Read a command line of a known launcher."""
    launcher = launcher_of([word.text for word in words])
    begin = 1
    if words[0].text.rsplit("/", 1)[-1].startswith("python"):
        begin = next(i for i, word in enumerate(words) if word.text == "-m") + 2
    elif words[0].text.endswith("accelerate"):
        begin = 2
    return _READERS[launcher](words[:begin], words[begin:], site)


_READERS: Mapping[str, Callable[[Sequence[Argument], Sequence[Argument], LaunchSite], Launch]] = {
    "torchrun": read_torchrun,
    "accelerate": read_accelerate,
    "deepspeed": read_deepspeed,
    "mpirun": read_mpirun,
}
