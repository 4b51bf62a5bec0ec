"""What every `--plot FILE` needs: a figure to draw on, and a file of a kind that pictures have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow_training.cli.output import fail

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["new_figure", "save_figure"]

_SUFFIXES = (".png", ".svg", ".pdf")


def new_figure(path: Path, *, size: tuple[float, float]) -> Figure:
    """Return an empty figure, `size` in inches; raises InputError where `path` cannot become a picture."""
    if path.suffix not in _SUFFIXES:
        raise fail("--plot", "is no picture", value=str(path), allowed=_SUFFIXES)
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise fail(
            "--plot",
            "matplotlib is not installed here",
            code="not_supported",
            hint="pip install 'airflow-training[plots]'",
        ) from None
    return Figure(figsize=size, layout="constrained")


def save_figure(figure: Figure, path: Path, *, dpi: float | None = None) -> None:
    """Write the picture; raises InputError where that cannot be done."""
    try:
        figure.savefig(path, dpi="figure" if dpi is None else dpi)
    except OSError as error:
        raise fail("--plot", f"cannot be written: {error.strerror}", value=str(path)) from error
