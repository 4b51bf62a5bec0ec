"""Which files are code, data or models: by name and size, as no content is read for it. Pure."""

from __future__ import annotations

from airflow_training.capture.model import OmissionKind

__all__ = ["LARGEST_BYTES", "LARGEST_OTHER_BYTES", "on_demand", "size_text"]

LARGEST_BYTES = 50 << 20
"""Nothing larger travels before the start, whatever it is."""
LARGEST_OTHER_BYTES = 1 << 20
"""What is neither code nor known data travels up to this size: configuration, vocabularies, prompts."""

_CODE_SUFFIXES = (
    "py pyi pyx pxd pyw ipynb so pyd dylib dll c cc cpp cxx cu cuh h hh hpp hip m mm rs go java js mjs ts"
    " f f90 jl r sh bash zsh fish ps1 bat cmd mk cmake toml cfg ini conf yaml yml md rst tex proto thrift"
    " fbs jinja jinja2 j2 tmpl template lock whl sql pth typed in am ac dockerfile gitignore gitattributes"
    " gitmodules trainingignore"
)
_DATA_SUFFIXES = (
    "csv tsv jsonl ndjson parquet feather arrow orc avro npy npz mat h5 hdf5 hdf he5 nc zarr lmdb mdb db"
    " sqlite sqlite3 tfrecord tfrecords record recordio rec idx bin dat data mds beton pkl pickle joblib"
    " dta xls xlsx jpg jpeg png gif bmp tif tiff webp ppm pgm exr dcm nii mha svs wav mp3 flac ogg m4a"
    " opus mp4 avi mov mkv webm las laz ply pcd obj stl root zip tar gz tgz bz2 xz zst 7z rar sqfs"
)
_MODELS_SUFFIXES = (
    "pt pth ckpt safetensors onnx keras gguf ggml tflite pb mar engine trt caffemodel params pdparams"
    " pdmodel mlmodel ubj cbm bst distcp"
)


_CODE = frozenset(_CODE_SUFFIXES.split())
_DATA = frozenset(_DATA_SUFFIXES.split())
_MODELS = frozenset(_MODELS_SUFFIXES.split())


def on_demand(path: str, size: int, *, in_package: bool) -> tuple[OmissionKind, str] | None:
    """Of what kind a file that need not be there at the start is, with the reason in words, or None if it travels.

    `in_package` is whether it lies beside an `__init__.py`: such data belongs to the code, up to 1 MiB.
    """
    if size > LARGEST_BYTES:
        return "large", f"larger than {size_text(LARGEST_BYTES)}: read on demand"
    name = path.rpartition("/")[2].lower()
    suffix = name.rpartition(".")[2] if "." in name else ""
    if suffix in _CODE:
        return None
    if in_package and size <= LARGEST_OTHER_BYTES:
        return None
    if suffix in _MODELS:
        return "model", "a model that no argument names: read on demand"
    if suffix in _DATA:
        return "data", "data: read on demand"
    if size > LARGEST_OTHER_BYTES:
        return "data", f"no code, and larger than {size_text(LARGEST_OTHER_BYTES)}: read on demand"
    return None


def size_text(size: float) -> str:
    """A size in bytes as people read it: 999 B, 1.5 KiB, 50 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    text = f"{size:.1f}".removesuffix(".0") if size < 100 else f"{size:.0f}"
    return f"{text} {unit}"
