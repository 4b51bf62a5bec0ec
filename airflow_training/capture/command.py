"""The command line of a script as it is run elsewhere: arguments, working directory, chosen variables, paths. Reads no content."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from airflow_training.capture.model import CapturedCommand
from airflow_training.capture.secret_values import is_secret_name, looks_secret
from airflow_training.capture.secrets import secret_text
from airflow_training.errors import InputError, Problem

__all__ = ["capture_command", "path_value", "storage_addresses", "tree_path"]

_VARIABLES = re.compile(
    r"(?:OMP|MKL|OPENBLAS|NUMBA|NUMEXPR)_NUM_THREADS|PYTHON(?:HASHSEED|UNBUFFERED|WARNINGS|UTF8|OPTIMIZE|FAULTHANDLER)"
    r"|TOKENIZERS_PARALLELISM|(?:TORCH|PYTORCH|NCCL|GLOO|XLA|JAX|TF|KERAS|CUBLAS|CUDNN|TRITON|ACCELERATE|HYDRA|DATASETS)_\w+"
    r"|(?:HF|TRANSFORMERS)_(?:HUB_OFFLINE|DATASETS_OFFLINE|OFFLINE|ENDPOINT|HUB_DISABLE_\w+)"
    r"|WANDB_(?:PROJECT|ENTITY|MODE|NAME|TAGS|RUN_GROUP|DISABLED)|MLFLOW_(?:EXPERIMENT_NAME|RUN_NAME)|TZ|LANG|LC_ALL"
)
"""Variables that change what a training computes, and never hold a secret or a path of this machine."""
_OF_THIS_MACHINE = re.compile(r"\w*(?:HOME|CACHE|DIR|PATH|FILE|ROOT)")
_NO_SECRET = re.compile(r"(?i)true|false|yes|no|none|null|auto|[\d.eE+-]+|")

_INSTEAD = "let the script read it from a variable, and fill that from a cluster secret or an Airflow connection"


_STORAGE = re.compile(
    r"(?:[-+~]*[\w.-]+=)?((?:s3[an]?|gs|gcs|az|adl|abfss?|wasbs?|hdfs|webhdfs|hf|oss|obs|cos|swift|r2|b2|minio)://\S+)"
)
"""Addresses of storages that a run reads by itself."""


def storage_addresses(args: Sequence[str]) -> Sequence[str]:
    """The addresses of storages that arguments name, each once: what lies there neither travels nor is fetched from here."""
    found = (_STORAGE.fullmatch(each) for each in args)
    return [*dict.fromkeys(each[1] for each in found if each)]


def tree_path(path: Path, root: Path) -> str | None:
    """A path of the project as it is in the tree, or None outside of it."""
    for one, other in ((path, root), (path.resolve(), root.resolve())):
        if one == other:
            return "project"
        if other in one.parents:
            return f"project/{one.relative_to(other).as_posix()}"
    return None


def capture_command(
    argv: Sequence[str],
    *,
    root: Path,
    working_dir: Path,
    environ: Mapping[str, str],
    env: Sequence[str] = (),
) -> CapturedCommand:
    """Read `SCRIPT ARGS` or `-m MODULE ARGS`, with `env` as NAME or NAME=VALUE.

    Raises:
        InputError: there is no such script, or a secret stands in an argument or a variable.
    """
    kind: Literal["script", "module"]
    if argv and argv[0] == "-m":
        kind, entry, args = "module", "".join(argv[1:2]), list(argv[2:])
    else:
        kind, entry, args = "script", "".join(argv[:1]), list(argv[1:])
    if not entry:
        raise InputError.of(
            code="missing", field="SCRIPT", message="there is no script", hint="cloud run train.py"
        )
    if kind == "script":
        entry = _script(entry, root, working_dir)
    problems = [*_argument_problems(args), *_variable_problems(env, environ)]
    if problems:
        raise InputError(problems=problems)
    start = tree_path(working_dir, root)
    here = working_dir if start is not None else root
    paths: dict[int, str] = {}
    for index, text in enumerate(args):
        value = path_value(text)
        path = Path(os.path.normpath(working_dir / value))
        if not value or len(value) > 1000 or "\0" in value:
            continue
        if os.path.lexists(path):
            paths[index] = str(path)
        if value.startswith(os.sep) and tree_path(path, root) is not None:
            inside = os.path.relpath(path, here)
            args[index] = text.removesuffix(value) + inside
    return CapturedCommand(
        kind=kind,
        entry=entry,
        args=args,
        working_dir=start or "project",
        env=_chosen(environ, env),
        paths=paths,
    )


def _script(text: str, root: Path, working_dir: Path) -> str:
    path = Path(os.path.normpath(working_dir / text))
    if not path.is_file():
        names = [each.name for each in path.parent.glob("*.py")] if path.parent.is_dir() else []
        near = difflib.get_close_matches(path.name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there is no such file in {path.parent}"
        if path.is_dir():
            hint = f"a folder is started as a module: cloud run -m {path.name}"
        raise InputError.of(
            code="not-found",
            field="SCRIPT",
            message=f"{text!r} is no file here",
            value=text,
            hint=hint,
        )
    inside = tree_path(path, root)
    if inside is None:
        raise InputError.of(
            code="outside",
            field="SCRIPT",
            message=f"it does not lie in the project's root, {root}",
            value=text,
            hint=f"--root {os.path.commonpath([path, root])}",
        )
    return inside.removeprefix("project/")


def path_value(text: str) -> str:
    """What of an argument can be a path: all of it, or what follows `=` or `@`."""
    if "://" in text:
        return ""
    if text.startswith("-") or re.match(r"[\w.+~-]+=", text):
        return text.partition("=")[2]
    return text.removeprefix("@")


def _named_values(args: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """What each argument is called, as typed and as a name, with its value."""
    for index, text in enumerate(args):
        name, equals, value = text.partition("=")
        if equals and re.fullmatch(r"[-+~]*[\w.-]+", name):
            yield name, name.rpartition(".")[2], value
        elif _is_option(text) and index + 1 < len(args) and not _is_option(args[index + 1]):
            yield text, text, args[index + 1]


def _is_option(text: str) -> bool:
    return re.fullmatch(r"--?[A-Za-z][\w.-]*", text) is not None


def _argument_problems(args: Sequence[str]) -> Iterator[Problem]:
    told = set()
    for shown, name, value in _named_values(args):
        if _is_secret(name.lstrip("-+~"), value):
            told.add(value)
            yield Problem(
                code="secret",
                field=shown,
                message="its value is a secret, and arguments are recorded with the run",
                hint=_INSTEAD,
            )
    for index, text in enumerate(args):
        what = secret_text(text)
        if what and text not in told and text.partition("=")[2] not in told:
            yield Problem(
                code="secret",
                field=f"argument {index + 1}",
                message=f"it is {what}, and arguments are recorded with the run",
                hint=_INSTEAD,
            )


def _is_secret(name: str, value: str) -> bool:
    if _NO_SECRET.fullmatch(value) and "pass" not in name:
        return False
    if value.startswith("$") or not value:
        return False
    strength = is_secret_name(name)
    if strength == "weak" and not name.lower().endswith("token"):
        return looks_secret(name, value)
    return bool(strength)


def _variable_problems(env: Sequence[str], environ: Mapping[str, str]) -> Iterator[Problem]:
    for text in env:
        name, equals, value = text.partition("=")
        value = value if equals else environ.get(name, "")
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            yield Problem(
                code="invalid",
                field="--env",
                message="it is neither NAME nor NAME=VALUE",
                hint="--env NAME",
            )
        elif is_secret_name(name) or secret_text(value):
            yield Problem(
                code="secret",
                field=f"--env {name}",
                message="it holds a secret, and variables are recorded with the run",
                hint=_INSTEAD,
            )


def _chosen(environ: Mapping[str, str], env: Sequence[str]) -> Mapping[str, str]:
    chosen = {
        name: value
        for name, value in environ.items()
        if _VARIABLES.fullmatch(name)
        and not _OF_THIS_MACHINE.fullmatch(name)
        and not is_secret_name(name)
        and not secret_text(value)
    }
    for text in env:
        name, equals, value = text.partition("=")
        if equals or name in environ:
            chosen[name] = value if equals else environ[name]
    return dict(sorted(chosen.items()))
