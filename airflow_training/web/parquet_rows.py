"""A program of its own: turns the Parquet file on stdin into JSON lines on stdout, as many as are wanted.

A file that is broken on purpose costs this process its limits of memory and time, and no server. Exit
codes: 0; 1: stderr says why; 3: pyarrow is not installed; 4: there are more rows.
"""

from __future__ import annotations

import json
import resource
import sys

__all__ = ["CUT", "MISSING"]

MISSING = 3
CUT = 4
_MOST_BYTES = 2 << 20
_MOST_COLUMNS = 50
_MOST_MEMORY = 2 << 30
_MOST_SECONDS = 15
_MOST_CHARACTERS = 200


def _main() -> int:
    sys.path.pop(0)  # the modules beside this one are no others' libraries
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_MOST_SECONDS, _MOST_SECONDS))
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return MISSING
    try:
        file = pq.ParquetFile(pa.PythonFile(sys.stdin.buffer, mode="r"), pre_buffer=False)
        columns = file.schema_arrow.names[:_MOST_COLUMNS]
        room = _MOST_BYTES
        for batch in file.iter_batches(batch_size=256, columns=columns, use_threads=False):
            for row in batch.to_pylist():
                line = json.dumps(row, default=lambda value: str(value)[:_MOST_CHARACTERS]) + "\n"
                room -= len(line)
                if room < 0:
                    return CUT
                sys.stdout.write(line)
    except Exception as error:  # noqa: BLE001 - whatever a broken file brings about
        sys.stderr.write(str(error)[:_MOST_CHARACTERS] or repr(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
