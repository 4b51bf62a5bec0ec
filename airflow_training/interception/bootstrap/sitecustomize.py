"""Installs the hook while Python starts, then lets the user's own `sitecustomize` run. Python 3.8 and newer.

This folder stands on PYTHONPATH, so that every Python process of a training has the hook: spawned
workers, launchers, and scripts started by scripts. Nothing of it stays importable.
"""

import os
import sys


def _install() -> None:
    """Import the hook from beside this folder; what is called `airflow_training` later is the user's business."""
    from types import ModuleType

    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100,PTH120  # may lie in a zip
    names = [name for name in sys.modules if name.split(".")[0] == "airflow_training"]
    others = {name: sys.modules.pop(name) for name in names}
    package = ModuleType("airflow_training")
    package.__path__ = [os.path.dirname(os.path.dirname(here))]  # noqa: PTH120
    sys.modules["airflow_training"] = package
    try:
        from airflow_training.interception.starting import start

        start(os.environ)
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "airflow_training"]:
            del sys.modules[name]
        sys.modules.update(others)


def _run_the_next() -> None:
    """Run the `sitecustomize` that Python would have found without us, under its own name."""
    from importlib.machinery import PathFinder

    # the other one of us, of an agent or of who fetches data, would do nothing, and costs as much as a start
    sys.path[:] = [each for each in sys.path if not os.path.abspath(each).endswith(_US)]  # noqa: PTH100
    own = sys.modules.pop("sitecustomize", None)
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        if own is not None:
            sys.modules["sitecustomize"] = own  # `import` looks for what it has just run
        return
    from importlib.util import module_from_spec  # where there is one: that import costs 2 ms

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_US = os.path.join("airflow_training", "interception", "bootstrap")  # noqa: PTH118
_WANTED = ("TRAINING_LOADS_FILE", "TRAINING_DATA_SOCKET", "TRAINING_PARAMETERS")
_MARK = "_training_hook"
"""Of `sys`: this is run once in a process, also where somebody imports it again."""

try:
    if any(os.environ.get(each) for each in _WANTED) and not hasattr(sys, _MARK):
        setattr(sys, _MARK, True)
        _install()
except Exception as error:  # noqa: BLE001  # a training runs without the hook; its data is guarded all the same
    sys.stderr.write(f"airflow-training: no interception in this process: {error!r}\n")
_run_the_next()
