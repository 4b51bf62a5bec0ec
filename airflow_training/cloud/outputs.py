"""Which of the files that a run wrote are its model: by kind, as known savers write them. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Sequence

__all__ = ["model_files"]

MODEL_SUFFIXES = frozenset(
    [
        ".pt",
        ".pth",
        ".ckpt",
        ".safetensors",
        ".onnx",
        ".keras",
        ".h5",
        ".hdf5",
        ".pdparams",
        ".pdopt",
        ".joblib",
        ".pkl",
        ".pickle",
        ".ubj",
        ".gguf",
        ".tflite",
        ".pb",
        ".msgpack",
    ]
)
"""Of torch.save, safetensors, ONNX, Keras, Paddle, scikit-learn, XGBoost and others."""
_MODEL_NAMES = frozenset(
    {"pytorch_model.bin", "adapter_model.bin", "model.json", "model.txt", "lightgbm.txt"}
)
_BESIDE_SUFFIXES = frozenset({".json", ".model", ".txt", ".jinja", ".safetensors", ".bin"})
"""Of what `save_pretrained` writes beside a model: configuration, tokenizer, shards and their index."""


def model_files(written: Collection[str], *, path: str = "") -> Sequence[str]:
    """The files that come back, sorted. `written`: all that are new or changed.

    `path`: a file or folder that was named instead; with it, what known savers write does not matter.
    A folder with `config.json` beside a model is one model with all that describes it.
    """
    if path:
        named = posixpath.normpath(path)
        return sorted(each for each in written if each == named or each.startswith(f"{named}/"))
    models = {each for each in written if _is_model(each)}
    whole = {
        folder
        for folder in map(posixpath.dirname, models)
        if posixpath.join(folder, "config.json") in written
    }
    beside = {
        each
        for each in written
        if posixpath.dirname(each) in whole and posixpath.splitext(each)[1] in _BESIDE_SUFFIXES
    }
    return sorted(models | beside)


def _is_model(path: str) -> bool:
    name = posixpath.basename(path)
    suffix = posixpath.splitext(name)[1]
    return suffix in MODEL_SUFFIXES or name in _MODEL_NAMES or name.startswith("pytorch_model-")
