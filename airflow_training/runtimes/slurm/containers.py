"""Instances in containers: the words that bring a command into the image of its role. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from airflow_training.agent.order import Order, replace
from airflow_training.runtimes.folders.environment import expand, gpu_count
from airflow_training.runtimes.port import InstanceSpec
from airflow_training.runtimes.slurm.allocation_options import AllocationOptions

__all__ = ["order_in_container"]

_OF_IMAGE = ("PATH", "LD_LIBRARY_PATH")
"""Variables that an image has its own of, unless it is told by others of these names."""


def order_in_container(
    order: Order,
    spec: InstanceSpec,
    options: AllocationOptions,
    *,
    folders: Sequence[str],
    host: Mapping[str, str],
) -> Order:
    """Return the order with its command in a container.

    `folders`: what it finds at the same path there. `host`: an environment in which the program is found. Raises ValueError for a folder that cannot be mounted.
    """
    program = options.container_runtime
    left_out = ("VIRTUAL_ENV", *_OF_IMAGE)
    env = {name: value for name, value in order.env.items() if name not in left_out}
    env |= {name: host[name] for name in _OF_IMAGE if name in host}
    env |= {
        f"{program.upper()}ENV_{name}": order.env[name] for name in _OF_IMAGE if name in spec.env
    }
    for each in folders:
        if re.search("[,:]", each):  # what separates the parts of a bind
            raise ValueError(f"{program} cannot mount {each!r}: a path with ',' or ':'")
    binds = dict.fromkeys([*filter(None, folders), *options.binds])
    words = [program, "exec", "--pwd", order.working_dir]
    words += [f"--bind={each}" for each in binds]
    if gpu_count(spec):
        words.append("--nv")
    return replace(
        order,
        env=env,
        container=[*words, _address(spec.image)],
        command=[expand(word, order.env) for word in (*spec.command, *spec.args)],
    )


def _address(image: str) -> str:
    """Return an image as the program wants it named; a file or an address with its scheme is one already."""
    return image if image.startswith("/") or "://" in image else f"docker://{image}"
