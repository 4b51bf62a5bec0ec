"""`python3 -I -S environment.pyz ORDER`: has the environment of an order ready, on this machine or in a volume of a pod.

ORDER is JSON: `environment` (see `provided.EnvironmentOrder`), `cache` (the folder to keep it in) and, for a volume,
`link` (a name to give it there). Prints `{"python", "digest", "cached", "seconds"}`, or `{"problem"}` and exits with
2 for what will not be otherwise at the next try, 75 for what may.
"""

from __future__ import annotations

import json
import os
import sys
import time

from airflow_training.environments.interpreters import interpreter_identity
from airflow_training.environments.marks import find_unchanged

TYPE_CHECKING = False  # `typing` and others are waited for at the start of each instance
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from airflow_training.environments.orders import EnvironmentOrder
    from airflow_training.environments.preparing import PreparedEnvironment
    from airflow_training.environments.provided import Opener

__all__ = ["main"]

_PERMANENT, _MAY_PASS = 2, 75
"""75 is EX_TEMPFAIL of sysexits.h."""


def main(text: str, open_storage: Opener) -> int:
    """Have it ready; returns the exit code. `open_storage` opens the storage at an address."""
    began = time.monotonic()
    document = json.loads(text)
    if found := _unchanged(document):
        _say({**found, "seconds": round(time.monotonic() - began, 3)})
        return 0
    return _have(document, open_storage)


def _unchanged(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the answer where the environment is there, untouched, for this interpreter: most starts import no more."""
    order = document["environment"]
    cache = os.path.abspath(document["cache"])  # noqa: PTH100 - pathlib is waited for at each start
    source = order.get("source")
    minor = "{}.{}".format(*sys.version_info[:2])
    python = source["python"] if source else sys.executable
    if python != sys.executable or document.get("link"):
        return None
    if not source and order["python"].split(".")[:2] not in ([""], minor.split(".")):
        return None
    name = find_unchanged(cache, order["digest"], interpreter_identity(python))
    if not name:
        return None
    return {"python": f"{cache}/{name}/bin/python", "digest": name, "cached": True}


def _have(document: Mapping[str, Any], open_storage: Opener) -> int:
    """Have what is missing, or may be damaged."""
    import site
    import subprocess
    from pathlib import Path

    from airflow_training.environments.cache import EnvironmentInUse
    from airflow_training.environments.orders import EnvironmentOrder
    from airflow_training.errors import InputError, TrainingError

    cache = Path(document["cache"])
    order = EnvironmentOrder.from_json(document["environment"])
    try:
        found = _find(order, cache)
        if found is None:
            site.main()  # most starts need no installed package: the interpreter is started without
            from airflow_training.environments.provided import have_environment

            found = have_environment(order, open_storage, cache)
        if link := document.get("link"):
            new = cache / f".{link}"
            new.unlink(missing_ok=True)
            new.symlink_to(found.digest)
            new.replace(cache / link)
    except InputError as error:
        return _fail("; ".join(map(str, error.problems)), _PERMANENT)
    except (EnvironmentInUse, OSError) as error:
        return _fail(str(error) or repr(error), _MAY_PASS)
    except subprocess.SubprocessError as error:  # an interpreter that was killed, or had no room
        words = getattr(error, "stderr", None) or ""
        words = words if isinstance(words, str) else words.decode(errors="replace")
        return _fail(f"{error}: {words.strip()}" if words.strip() else str(error), _MAY_PASS)
    except TrainingError as error:
        return _fail(str(error), _PERMANENT)
    said = {"python": str(found.python), "digest": found.digest, "cached": found.cached}
    _say({**said, "seconds": round(found.seconds, 3)})
    return 0


def _find(order: EnvironmentOrder, cache: Path) -> PreparedEnvironment | None:
    """Return it where it is there: most starts import no more than this needs."""
    from airflow_training.environments.interpreters import find_python
    from airflow_training.environments.orders import minor_version
    from airflow_training.environments.ready import find_ready

    python = order.source.python if order.source else find_python(minor_version(order.python))
    return find_ready(cache, order.digest, python)


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")


def _fail(problem: str, code: int) -> int:
    _say({"problem": problem})
    sys.stderr.write(f"airflow-training: {problem}\n")
    return code
