"""Readers written in C, C++ and Rust, of which no audit event tells: their functions say what they read.

Python 3.8 and newer, standard library only.
"""

from __future__ import annotations

from airflow_training.interception.module_changes import watch_modules

TYPE_CHECKING = False  # `typing` costs the training's start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType
    from typing import Any

    Reads = Callable[[Any, str], object]

__all__ = ["READERS", "watch_imports"]

READERS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "safetensors": {"safe_open": ("filename",)},
    "safetensors.torch": {"load_file": ("filename",)},
    "safetensors.numpy": {"load_file": ("filename",)},
    "pyarrow": {"memory_map": ("path",), "OSFile": ("path",), "input_stream": ("source",)},
    "pyarrow.parquet": dict.fromkeys(("read_table", "ParquetFile", "read_metadata", "read_schema", "ParquetDataset"), ("source", "path_or_paths")),
    "pyarrow.parquet.core": dict.fromkeys(("read_table", "ParquetFile", "read_metadata", "read_schema", "ParquetDataset"), ("source", "path_or_paths")),
    "pyarrow.dataset": {"dataset": ("source",)},
    "pyarrow.feather": {"read_table": ("source",), "read_feather": ("source",)},
    "pyarrow.csv": {"read_csv": ("input_file",), "open_csv": ("input_file",)},
    "pyarrow.json": {"read_json": ("input_file",)},
    "pyarrow.orc": {"ORCFile": ("source",), "read_table": ("source",)},
    "h5py": {"File": ("name",)},
    "h5py._hl.files": {"File": ("name",)},
    "lmdb": {"open": ("path",), "Environment": ("path",)},
    "torch": {"from_file": ("filename",)},
    "torch.jit": {"load": ("f",)},
    "torch.jit._serialization": {"load": ("f",)},
    "torchvision.io": dict.fromkeys(("read_image", "read_file", "decode_image"), ("path",)),
    "torchvision.io.image": dict.fromkeys(("read_image", "read_file", "decode_image"), ("path",)),
    "cv2": {"imread": ("filename",), "VideoCapture": ("filename",)},
    "polars": dict.fromkeys(("read_csv", "read_parquet", "read_ipc", "read_ndjson", "scan_csv", "scan_parquet", "scan_ipc", "scan_ndjson"), ("source",)),
    "soundfile": {"SoundFile": ("file",)},
    "netCDF4": {"Dataset": ("filename",)},
    "tokenizers": {},
    "sentencepiece": {},
}  # fmt: skip
"""Module -> function or class -> by which name its first argument can be given too."""


def watch_imports(reads: Reads) -> None:
    """Let `reads(path, api)` be called before one of `READERS` reads, those imported already too."""
    watch_modules(dict.fromkeys(READERS, lambda module: _change_readers(module, reads)))


def _change_readers(module: ModuleType, reads: Reads) -> None:
    """Replace the readers of a module; one that another name has replaced already stays."""
    for name, keywords in READERS.get(module.__name__, {}).items():
        reader = vars(module).get(name)  # what a module loads when it is asked for stays unloaded
        if reader is None or hasattr(reader, "_intercepted"):
            continue
        api = f"{module.__name__}.{name}"
        try:
            if isinstance(reader, type) and _has_own_init(reader):
                reader.__init__ = _told(reader.__init__, reads, api, keywords, 1)  # type: ignore[misc]
                reader._intercepted = True  # type: ignore[attr-defined]
            elif isinstance(reader, type):
                told = _ReportingClass(reader, _told(reader, reads, api, keywords, 0))
                setattr(module, name, told)
            else:
                setattr(module, name, _told(reader, reads, api, keywords, 0))
        except (AttributeError, TypeError):  # of another kind than it used to be
            continue


def _has_own_init(reader: type) -> bool:
    """Return whether a class is written in Python, so that it can stay the class it is."""
    return "__init__" in vars(reader) and hasattr(vars(reader)["__init__"], "__code__")


def _told(function: Any, reads: Reads, api: str, keywords: Sequence[str], position: int) -> Any:
    """Return the function with what it is about to read told before."""
    import functools  # when it is needed: most processes of a training import no such reader

    @functools.wraps(function, updated=())
    def reader(*args: Any, **kwargs: Any) -> Any:
        given = args[position] if len(args) > position else next(
            (kwargs[name] for name in keywords if name in kwargs), None
        )  # fmt: skip
        for path in given if isinstance(given, (list, tuple)) else (given,):
            if path is not None:
                reads(path, api)
        return function(*args, **kwargs)

    reader._intercepted = True  # type: ignore[attr-defined]
    return reader


class _ReportingClass:
    """Stands for a class that is not written in Python: called it tells, and in all else it is that class."""

    _intercepted = True

    def __init__(self, own: type, told: Any) -> None:
        import functools

        functools.update_wrapper(self, own, updated=())
        self._own = own
        self._told = told

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._told(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._own)

    def __subclasscheck__(self, subclass: type) -> bool:
        return issubclass(subclass, self._own)

    def __mro_entries__(self, _bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (self._own,)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._own

    def __hash__(self) -> int:
        return hash(self._own)

    def __or__(self, other: Any) -> Any:
        return self._own | other

    def __ror__(self, other: Any) -> Any:
        return other | self._own

    def __reduce__(self) -> str:
        return str(self._own.__qualname__)
