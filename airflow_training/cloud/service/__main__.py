"""`python -m airflow_training.cloud.service`: the service of this machine, see `serving.main`."""

from __future__ import annotations

import gc

__all__ = ["main"]


def main() -> None:
    """Serve. What is imported until then stays: the collector need not look at it, now or later."""
    gc.disable()
    from airflow_training.cloud.service.serving import main as serve

    gc.freeze()
    gc.enable()
    serve()


if __name__ == "__main__":
    main()
