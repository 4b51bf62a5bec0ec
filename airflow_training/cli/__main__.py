"""`python -m airflow_training.cli`, and the command `airflow-training`: clean at a Ctrl-C from the first import on."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run one command."""
    try:
        from airflow_training.cli.main import main as command
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; nothing was started\n")
        sys.exit(2)
    command()


if __name__ == "__main__":
    main()
