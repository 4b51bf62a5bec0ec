"""`python -m airflow_training.cloud.service`: the service of this machine, see `serving.main`."""

from __future__ import annotations

import gc
import sys

__all__ = ["main"]


def main() -> None:
    """Serve. What is imported until then stays: the collector need not look at it, now or later."""
    gc.disable()
    try:
        from airflow_training.cloud.service.serving import main as serve
    except ModuleNotFoundError as error:
        sys.exit(f"airflow-training: {error}")  # who started it says what to install

    gc.freeze()
    gc.enable()
    serve()


if __name__ == "__main__":
    main()
