"""What `airflow_training` is inside the packed agent, where training scripts import parts of it.

Packed as `airflow_training.py`. The path of the pack comes before installed packages; what
is not in it is taken from an installation, where there is one.
"""

import sys

__path__ += [  # type: ignore[name-defined]  # noqa: F821  # packages have one
    f"{folder}/airflow_training" for folder in sys.path if not folder.endswith(".pyz")
]


def __getattr__(name):  # type: ignore[no-untyped-def]  # `typing` costs the agent 4 ms
    """Hand a name to an installed package of the same name: its own front door takes over."""
    for folder in __path__[1:]:  # type: ignore[name-defined]  # as above
        try:
            with open(f"{folder}/__init__.py", "rb") as file:  # noqa: PTH123  # pathlib costs as much
                source = file.read()
        except OSError:
            continue
        exec(compile(source, file.name, "exec"), globals())  # noqa: S102  # as its import would
        return globals()[name] if name in globals() else globals()["__getattr__"](name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
