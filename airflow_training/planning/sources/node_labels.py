"""Which device a Kubernetes node carries: resource names, and the labels of device plugins and clouds."""

from __future__ import annotations

import re
from collections.abc import Mapping

from airflow_training.errors import InputError
from airflow_training.planning.view import catalogue
from airflow_training.planning.view.cluster import Device

__all__ = ["RESOURCES", "count_of", "device_of"]

RESOURCES: tuple[str, ...] = (
    "nvidia.com/gpu",
    "amd.com/gpu",
    "google.com/tpu",
    "huawei.com/Ascend910",
    "habana.ai/gaudi",
)
"""Resources whose unit is one device."""

_PRODUCT_LABELS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "beta.amd.com/gpu.product-name",
    "cloud.google.com/gke-tpu-accelerator",
    "cloud.google.com/gke-accelerator",
    "node.kubernetes.io/npu.chip.name",
    "accelerator",
)
"""Of the GPU operator, AMD's node labeller, Google and Huawei; the most exact ones first."""

_SHORT_NAMES = {"nvidia-tesla-a100": "A100-SXM4-40GB"}
"""Where a cloud's name is shorter than it should be."""


def count_of(resources: Mapping[str, float]) -> int:
    """Return how many devices an amount of resources is; 0: none."""
    return int(sum(resources.get(name, 0) for name in RESOURCES))


def device_of(labels: Mapping[str, str]) -> Device | str | None:
    """Return the device that labels name, a name the catalogue does not have, or None.

    A slice of a device (MIG) is not in the catalogue: nothing is known of what it reaches.
    """
    unknown = None
    for key in _PRODUCT_LABELS:
        name = labels.get(key)
        if name is None:
            continue
        # time-slicing offers each device several times; it stays one device
        name = _SHORT_NAMES.get(name, name.removesuffix("-SHARED"))
        try:
            return catalogue.device(re.sub("[-_ ]OAM.*$", "", name))
        except InputError:
            unknown = unknown or name
    return unknown
