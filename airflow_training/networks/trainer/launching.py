"""Starts the several processes of one instance by torchrun: `python -m airflow_training.networks.trainer.launching -m MODULE`.

torchrun itself ends with 1 whatever ended its processes, so that nobody could tell a mistake of the user from a lost peer.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Sequence
from typing import Any

from airflow_training.networks.trainer.mistakes import EXIT_LOST, EXIT_MISTAKE

__all__ = ["exit_code_of", "main"]


def exit_code_of(ends: Iterable[tuple[float, int]]) -> int:
    """Choose the exit code of an instance whose processes failed.

    That of the first one; but a mistake counts wherever it is found, as its peers may have lost that process before they met it.

    Args:
        ends: when each process failed, and its exit code; of one that a signal ended minus its number.
    """
    codes = [code for _, code in sorted(ends)]
    if EXIT_MISTAKE in codes:
        return EXIT_MISTAKE
    first = next((code for code in codes if code), EXIT_LOST)
    return 128 - first if first < 0 else first


def main(words: Sequence[str]) -> None:
    """Run a program in as many processes as torchrun's variables (`PET_*`) say, and end with what ended the first that failed.

    Args:
        words: as torchrun takes them.
    """
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    torchrun: Any = run  # without types
    try:
        torchrun.run(torchrun.parse_args([*words]))
    except ChildFailedError as error:
        sys.exit(exit_code_of((each.timestamp, each.exitcode) for each in error.failures.values()))
    except SignalException as error:
        sys.exit(128 + int(error.sigval))
    except Exception:  # noqa: BLE001 - of torchrun's own: peers that do not come together may do so at another start
        traceback.print_exc()
        sys.exit(EXIT_LOST)


if __name__ == "__main__":
    main(sys.argv[1:])
