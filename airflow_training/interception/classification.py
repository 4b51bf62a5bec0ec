"""What a path is to a training: program, dependency, model, data, output or secret. Pure: it looks at no file.

Python 3.8 and newer, standard library only.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # `typing` costs the training's start
if TYPE_CHECKING:
    from collections.abc import Container, Sequence

__all__ = [
    "CLASSES",
    "Places",
    "classify",
    "is_dependency",
    "is_secret_like",
    "name_api",
    "writes",
]

CLASSES = ("program", "dependency", "model", "data", "output", "secret")

_NAMES_OF_SECRETS = (
    r"^(?:\.env(?:\.(?!example$|sample$|template$|dist$).+)?|\.netrc|_netrc|\.pgpass|\.pypirc|\.npmrc"
    r"|\.git-credentials|\.htpasswd|\.boto|\.s3cfg|id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?|kubeconfig"
    r"|credentials(?:\.(?:json|ya?ml|toml|ini|csv))?|client_secrets?.*\.json|service[-_]?account.*\.json"
    r"|secrets?\.(?:json|ya?ml|toml|ini|env|txt)|.*\.(?:pem|key|p12|pfx|jks|kdbx|ppk|keytab|ovpn))$"
)
_SECRET_FOLDERS = frozenset({".ssh", ".gnupg", ".aws", ".azure", ".kube", ".password-store"})
_SECRET_ENDS = ((".docker", "config.json"), (".config", "gcloud"), ("huggingface", "token"))

_CODE = (".py", ".pyc", ".pyi", ".pyx", ".so", ".pyd", ".dylib", ".pth.py", ".sh", ".ipynb")
_SETTINGS = (".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf")
_MODELS = (
    ".safetensors", ".ckpt", ".pth", ".onnx", ".gguf", ".ggml", ".tflite", ".keras", ".mar", ".ptl",
    ".torchscript", ".caffemodel", ".pdparams", ".mlmodel", ".ubj",
)  # fmt: skip
_SOMETIMES_MODELS = (".pt", ".bin", ".pkl", ".pickle", ".joblib", ".h5", ".hdf5", ".npz", ".pb", ".msgpack", ".model")  # fmt: skip
_MODEL_APIS = (
    "torch.serialization.", "torch.jit.", "torch.export.", "torch.hub.", "safetensors.", "transformers.", "tokenizers.",
    "diffusers.", "timm.", "peft.", "keras.", "tensorflow.python.saved_model", "onnx.", "onnxruntime.", "sentence_transformers.",
    "joblib.", "accelerate.", "huggingface_hub.", "xgboost.", "lightgbm.", "catboost.", "sentencepiece.", "flax.", "orbax.",
)  # fmt: skip
_DATA_CALLERS = ("torch.utils.data", "datasets.", "torchvision.datasets", "webdataset.")
_MODEL_FUNCTIONS = frozenset(
    {"from_pretrained", "load_model", "load_state_dict", "load_checkpoint", "load_weights", "load_from_checkpoint"}
)  # fmt: skip

_O_CREATES = os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Places:
    """Where on this machine the program and what it is built on lie: absolute paths."""

    __slots__ = ("code_roots", "dependencies")

    def __init__(self, *, code_roots: Sequence[str], dependencies: Sequence[str]) -> None:
        """`dependencies`: of the standard library, of installed distributions, of the system."""
        self.code_roots = tuple(_folder(each) for each in code_roots)
        self.dependencies = tuple(_folder(each) for each in dependencies)


def _folder(path: str) -> str:
    return path.rstrip(os.sep) + os.sep


def writes(flags: int) -> bool:
    """Return whether an open with these flags makes or replaces a file.

    Neither for reading nor for changing one that is there: `np.memmap` asks for that where it only reads.
    """
    if flags & os.O_ACCMODE == os.O_RDONLY:
        return False
    return bool(flags & os.O_ACCMODE == os.O_WRONLY or flags & _O_CREATES)


def is_secret_like(path: str) -> bool:
    """Return whether a path looks like a key, a password or a token."""
    parts = [part for part in path.replace("\\", "/").split("/") if part]
    if not parts:
        return False
    import re  # when it is needed: it keeps what it compiles

    if re.match(_NAMES_OF_SECRETS, parts[-1], re.IGNORECASE) or not _SECRET_FOLDERS.isdisjoint(
        parts
    ):
        return True
    return any(f"/{folder}/{name}" in "/" + "/".join(parts[-3:]) for folder, name in _SECRET_ENDS)


def is_dependency(path: str, places: Places) -> bool:
    """Return whether it belongs to Python, an installed distribution or the system."""
    if path.startswith(places.dependencies):
        return True
    return f"{os.sep}site-packages{os.sep}" in path or f"{os.sep}dist-packages{os.sep}" in path


def classify(
    path: str, *, places: Places, flags: int = 0, api: str = "", callers: Sequence[str] = ()
) -> str:
    """Return the class of an absolute path, one of `CLASSES`.

    Args:
        path: absolute, links followed.
        places: where program and dependencies lie.
        flags: of `open`, as in `os.open`.
        api: which function opened it, `torch.serialization.load`.
        callers: all functions on the way there, as `api`.
    """
    if is_secret_like(path):
        return "secret"
    if is_dependency(path, places):
        return "dependency"
    if writes(flags):
        return "output"
    lower = path.lower()
    in_program = path.startswith(places.code_roots)
    if lower.endswith(_CODE):
        return "program" if in_program else "dependency"
    if _is_model(lower, api, callers):
        return "model"
    if in_program and lower.endswith(_SETTINGS):
        return "program"
    return "data"


def _is_model(path: str, api: str, callers: Sequence[str]) -> bool:
    read_by_data = api.startswith(_DATA_CALLERS) or any(
        each.startswith(_DATA_CALLERS) for each in callers
    )
    if path.endswith(_MODELS):
        return not read_by_data
    if read_by_data:
        return False
    if any(each.rpartition(".")[2] in _MODEL_FUNCTIONS for each in (api, *callers)):
        return True
    if api.startswith("torch.jit."):
        return True
    if path.endswith(_SOMETIMES_MODELS):
        return api.startswith(_MODEL_APIS)
    return api.startswith(("transformers.", "tokenizers.", "sentencepiece."))


def name_api(callers: Sequence[tuple[str, str]], *, standard: Container[str]) -> str:
    """Return the function by which the program opened a file: `PIL.Image.open`, `gzip.open`; `open` itself.

    Args:
        callers: (module, function) from the open outwards, up to the program.
        standard: names of the modules that come with Python.

    The innermost library decides, by the outermost of its functions: what a program calls, not what does the work.
    """
    top: str = ""
    name = "open"
    for module, function in callers:
        package = module.partition(".")[0]
        if package in standard:
            if not top and function != "<module>":
                name = f"{module}.{function}"
            elif top:
                break
            continue
        if top and package != top:
            break
        top = package
        name = f"{module}.{function}"
    return name
