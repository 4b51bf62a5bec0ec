"""A training as a folder that runs without us: network, script, requirements, and what is said about it."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import InputError
from airflow_training.networks.trainer.mistakes import public_address

__all__ = ["packed_archive", "packed_files"]

_PACKAGE = "airflow_training.networks.trainer"
_LEFT_OUT = frozenset({"__main__.py", "launching.py", "planned.py"})
_SCRIPT = '''\
"""Train the network of this folder on this machine: python train.py --help"""

import argparse
import os
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = {data}

parser = argparse.ArgumentParser(description="Train the network of net.py; go on where it was stopped.")
parser.add_argument("--data", default=DATA, required=not DATA, help="folder or address of the files")
parser.add_argument("--files", nargs="+", help="their names, instead of those of the job")
parser.add_argument("--initial-model", default="", help="weights to start from")
parser.add_argument("--epochs", type=int)
parser.add_argument("--batch-size", type=int)
parser.add_argument("--to", default=str(HERE / "model"), help="folder for the model")
given = parser.parse_args()

os.environ.update(
    TRAINER_ALONE="1",
    TRAINER_FILE=str(HERE / "trainer.json"),
    TRAINING_DATA_URI=str(Path(given.data).resolve()) if given.data and "://" not in given.data else given.data,
    TRAINING_INITIAL_MODEL_URI=given.initial_model,
    TRAINING_OUTPUT_DIR=str(Path(given.to).resolve()),
)
os.environ.setdefault("TRAINING_PREDICTIONS_DIR", str(HERE / "predictions"))
os.chdir(HERE)  # checkpoint.pt lies here

from trainer.program import main  # noqa: E402
from trainer.settings import read_settings  # noqa: E402

settings = replace(read_settings(), module=(HERE / "net.py").read_text(encoding="utf-8"))
main(
    replace(
        settings,
        epochs=given.epochs or settings.epochs,
        batch_size=given.batch_size or settings.batch_size,
        data=replace(settings.data, files=tuple(given.files or settings.data.files)),
    )
)
'''
_README = """\
# {name}

The network `{network}` and all that trains it. Nothing but Python and what `requirements.txt` names is needed.

```sh
python -m venv .venv && .venv/bin/pip install -r requirements.txt
.venv/bin/python train.py
```

| file | what it is |
|---|---|
| `train.py` | trains on this machine; `--help` shows what can be changed. Several processes: `torchrun --nproc-per-node 2 train.py` |
| `net.py` | the training net and the test net, plain PyTorch; yours to change |
| `network.yaml` | the network it was generated from |
| `trainer.json` | settings, and how files become inputs |
| `trainer/` | the trainer, under the Apache License 2.0 |
| `requirements.txt` | the versions that the training was made with |

It leaves `model/` (weights, nets, a card), `predictions/`, and `checkpoint.pt`, from which it goes on where it was stopped; remove that file
to begin anew. Data: {data}.
"""


def packed_files(job: ResolvedJob) -> Mapping[str, str]:
    """Return the files of a folder that trains a job's network on one machine: name -> content.

    Raises InputError where the job trains no network.
    """
    if job.trainer is None:
        raise InputError.of(
            code="not_supported",
            field="spec.trainer",
            value=job.name,
            message="the job trains no network: it has no trainer",
            hint="what its command starts is a script of your own",
        )
    settings = _settings(job)
    data = _data(job)
    readme = _README.format(
        name=job.name,
        network=job.trainer.network.document["metadata"]["name"],
        data=f"`{data}`" if data else "give it with `--data`",
    )
    return {
        "README.md": readme,
        "net.py": settings["module"],
        "network.yaml": settings["networkText"],
        "requirements.txt": "".join(f"{each}\n" for each in _requirements(settings, data)),
        "train.py": _SCRIPT.format(data=repr(data)),
        "trainer.json": json.dumps(settings, indent=1) + "\n",
        **dict(_sources()),
    }


def packed_archive(job: ResolvedJob) -> bytes:
    """Pack these files as a zip with one folder, named as the job. Equal jobs give equal bytes.

    Raises InputError where the job trains no network.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in packed_files(job).items():
            entry = zipfile.ZipInfo(f"{job.name}/{name}")  # with the oldest time that there is
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _settings(job: ResolvedJob) -> dict[str, Any]:
    for role in job.roles:
        for file in role.files:
            if file.path.endswith("trainer/trainer.json"):
                found: dict[str, Any] = json.loads(file.content)
                return found
    raise AssertionError("an admitted trainer is in every role that has ranks")


def _data(job: ResolvedJob) -> str:
    """Return where the data is, seen from anywhere on this machine; "" where only a run knows."""
    uri = job.data.uri
    if (
        "{{" in uri or public_address(uri) != uri
    ):  # a secret of the job is not for whoever gets the folder
        return ""
    return str(Path(job.base_dir) / uri) if uri and "://" not in uri and job.base_dir else uri


def _sources() -> Iterator[tuple[str, str]]:
    """Yield the modules of the trainer, which import each other by their place in the folder."""
    for each in importlib.resources.files(_PACKAGE).iterdir():
        if each.name.endswith(".py") and each.name not in _LEFT_OUT:
            text = each.read_text(encoding="utf-8")
            yield f"trainer/{each.name}", text.replace(_PACKAGE, "trainer")


def _requirements(settings: Mapping[str, Any], data: str) -> Iterator[str]:
    """Yield lines of a requirements file: with the version that is installed here, where one is."""
    wanted = ["numpy", "safetensors", "torch"]
    wanted += {"parquet": ["pyarrow"], "images": ["pillow"]}.get(settings["data"]["format"], [])
    wanted += ["scikit-learn"] if data == "sample://digits" else []
    wanted += ["fsspec"] if "://" in data and not data.startswith("sample://") else []
    yield from map(_pinned, sorted(wanted))


def _pinned(name: str) -> str:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return name
    return f"{name}=={version.partition('+')[0]}"  # not the build for one kind of device
