"""Images without the Python that our agent needs: how that shows, and what to do. Pure."""

from __future__ import annotations

from airflow_training.runtimes.kubernetes import names
from airflow_training.runtimes.kubernetes.pod_view import PodView

__all__ = ["lacks_python", "python_advice"]

_NEEDS_PYTHON = (
    "the image of container '{container}' has no python3, which the agent needs to {what}:"
    " use an image with Python 3.8 or newer, or do without {without}"
)


def lacks_python(message: str) -> bool:
    """Return whether a container runtime says that our `python3` is not in the image."""
    text = message.lower()
    return "python3" in text and (
        "not found" in text or "no such file" in text or "executable file" in text
    )


def python_advice(pod: PodView) -> str:
    """Return which image needs it, and what it would be used for."""
    for each in pod.init_containers:
        held_up = each.waiting or each.end
        if each.name == names.AGENT_CONTAINER and held_up and lacks_python(held_up.message):
            return _NEEDS_PYTHON.format(
                container=each.name,
                what="hold an instance and to write its files",
                without="createAllHold; [training] agent_image names the image",
            )
    return _NEEDS_PYTHON.format(
        container=pod.annotations.get(names.CONTAINER, ""),
        what="lay out the code, upload the output and report progress",
        without="spec.code, spec.output and [training] callback_url",
    )
