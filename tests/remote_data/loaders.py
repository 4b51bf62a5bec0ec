"""How trainings read their data: each way writes something below a folder and reads it again.

python loaders.py write FOLDER            makes what is read; prints {name: ""} or why it cannot
python loaders.py read FOLDER [NAME...]   prints {name: digest of what was read} or why it failed
"""

# ruff: noqa: BLE001, N801, PTH123, PTH208, SIM115, SIM117
# each way is written as the users of its library write it

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

LOADERS: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {}


def loader(write):
    """Enter a class with `write` and `read`, under its name."""
    LOADERS[write.__name__] = (write.write, write.read)
    return write


def _numbers(seed: int, shape=(64, 32)):
    import numpy

    return numpy.random.default_rng(seed).random(shape).astype("float32")


def _table():
    return {"a": list(range(1, 500)), "b": [f"row {i}" for i in range(1, 500)]}


def _picture(path: Path, seed: int):
    from PIL import Image

    pixels = (_numbers(seed, (16, 16, 3)) * 255).astype("uint8")
    Image.fromarray(pixels).save(path)


@loader
class open_binary:
    write = staticmethod(lambda at: (at / "a.bin").write_bytes(os.urandom(5000)))
    read = staticmethod(lambda at: open(at / "a.bin", "rb").read())


@loader
class os_open:
    write = open_binary.write

    @staticmethod
    def read(at):
        descriptor = os.open(at / "a.bin", os.O_RDONLY)
        try:
            return os.read(descriptor, 1 << 20)
        finally:
            os.close(descriptor)


@loader
class mapped:
    write = open_binary.write

    @staticmethod
    def read(at):
        import mmap

        with open(at / "a.bin", "rb") as file:
            return bytes(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


@loader
class csv_rows:
    write = staticmethod(
        lambda at: (at / "a.csv").write_text("\n".join(f"{i},{i * i}" for i in range(500)))
    )

    @staticmethod
    def read(at):
        import csv

        with open(at / "a.csv") as file:
            return list(csv.reader(file))


@loader
class pickled:
    @staticmethod
    def write(at):
        import pickle

        (at / "a.pkl").write_bytes(pickle.dumps(_table()))

    @staticmethod
    def read(at):
        import pickle

        with (at / "a.pkl").open("rb") as file:
            return pickle.load(file)


def _compressed(module: str):
    class compressed:
        @staticmethod
        def write(at):
            with __import__(module).open(at / "a.z", "wb") as file:
                file.write(os.urandom(3000))

        @staticmethod
        def read(at):
            with __import__(module).open(at / "a.z", "rb") as file:
                return file.read()

    compressed.__name__ = module
    return loader(compressed)


for _name in ("gzip", "bz2", "lzma"):
    _compressed(_name)


@loader
class zipped:
    @staticmethod
    def write(at):
        import zipfile

        with zipfile.ZipFile(at / "a.zip", "w") as archive:
            archive.writestr("inside", os.urandom(2000))

    @staticmethod
    def read(at):
        import zipfile

        with zipfile.ZipFile(at / "a.zip") as archive:
            return archive.read("inside")


@loader
class tarred:
    @staticmethod
    def write(at):
        import io
        import tarfile

        with tarfile.open(at / "a.tar", "w") as archive:
            info = tarfile.TarInfo("inside")
            info.size = 2000
            archive.addfile(info, io.BytesIO(os.urandom(2000)))

    @staticmethod
    def read(at):
        import tarfile

        with tarfile.open(at / "a.tar") as archive:
            return archive.extractfile("inside").read()


@loader
class sqlite:
    @staticmethod
    def write(at):
        import sqlite3

        with contextlib.closing(sqlite3.connect(at / "a.db")) as database, database:
            database.execute("create table t (a, b)")
            database.executemany("insert into t values (?, ?)", [(i, str(i)) for i in range(999)])

    @staticmethod
    def read(at):
        import sqlite3

        with contextlib.closing(sqlite3.connect(f"file:{at}/a.db?mode=ro", uri=True)) as database:
            return database.execute("select * from t").fetchall()


@loader
class numpy_load:
    @staticmethod
    def write(at):
        import numpy

        numpy.save(at / "a.npy", _numbers(1))

    @staticmethod
    def read(at):
        import numpy

        return numpy.load(at / "a.npy").tobytes()


@loader
class numpy_load_mapped:
    write = numpy_load.write

    @staticmethod
    def read(at):
        import numpy

        return numpy.load(at / "a.npy", mmap_mode="r").tobytes()


@loader
class numpy_memmap:
    write = staticmethod(lambda at: _numbers(2).tofile(at / "a.raw"))

    @staticmethod
    def read(at):
        import numpy

        return numpy.memmap(at / "a.raw", dtype="float32").tobytes()


@loader
class numpy_fromfile:
    write = numpy_memmap.write

    @staticmethod
    def read(at):
        import numpy

        return numpy.fromfile(at / "a.raw", dtype="float32").tobytes()


@loader
class numpy_loadtxt:
    write = csv_rows.write

    @staticmethod
    def read(at):
        import numpy

        return numpy.loadtxt(at / "a.csv", delimiter=",").tobytes()


@loader
class torch_load:
    @staticmethod
    def write(at):
        import torch

        torch.save({"w": torch.from_numpy(_numbers(3))}, at / "a.pt")

    @staticmethod
    def read(at):
        import torch

        return torch.load(at / "a.pt")["w"].numpy().tobytes()


@loader
class torch_load_mapped:
    write = torch_load.write

    @staticmethod
    def read(at):
        import torch

        return torch.load(at / "a.pt", mmap=True)["w"].numpy().tobytes()


@loader
class torch_from_file:
    write = numpy_memmap.write

    @staticmethod
    def read(at):
        import torch

        return (
            torch.from_file(str(at / "a.raw"), size=64 * 32, dtype=torch.float32).numpy().tobytes()
        )


@loader
class torch_jit:
    @staticmethod
    def write(at):
        import torch

        torch.jit.script(torch.nn.Linear(8, 8)).save(at / "a.ts")

    @staticmethod
    def read(at):
        import torch

        return torch.jit.load(str(at / "a.ts")).weight.detach().numpy().tobytes()


@loader
class safetensors_load_file:
    @staticmethod
    def write(at):
        from safetensors.numpy import save_file

        save_file({"w": _numbers(4)}, at / "a.safetensors")

    @staticmethod
    def read(at):
        from safetensors.torch import load_file

        return load_file(at / "a.safetensors")["w"].numpy().tobytes()


@loader
class safetensors_safe_open:
    write = safetensors_load_file.write

    @staticmethod
    def read(at):
        from safetensors import safe_open

        with safe_open(str(at / "a.safetensors"), framework="np") as file:
            return file.get_tensor("w").tobytes()


@loader
class pillow:
    write = staticmethod(lambda at: _picture(at / "a.png", 5))

    @staticmethod
    def read(at):
        from PIL import Image

        return Image.open(at / "a.png").tobytes()


@loader
class image_folder:
    @staticmethod
    def write(at):
        for number in range(4):
            (at / f"class{number % 2}").mkdir(exist_ok=True)
            _picture(at / f"class{number % 2}" / f"{number}.png", number)

    @staticmethod
    def read(at):
        from PIL import Image

        found = []
        for label in sorted(each.name for each in os.scandir(at) if each.is_dir()):
            for name in sorted(os.listdir(at / label)):
                with Image.open(at / label / name) as image:
                    found.append((image.convert("RGB").tobytes(), label))
        return found


@loader
class torchvision_read_image:
    write = pillow.write

    @staticmethod
    def read(at):
        from torchvision.io import read_image

        return read_image(str(at / "a.png")).numpy().tobytes()


@loader
class opencv:
    write = pillow.write

    @staticmethod
    def read(at):
        import cv2

        return cv2.imread(str(at / "a.png")).tobytes()


@loader
class imageio:
    write = pillow.write

    @staticmethod
    def read(at):
        import imageio.v3

        return imageio.v3.imread(at / "a.png").tobytes()


@loader
class tifffile:
    @staticmethod
    def write(at):
        import tifffile

        tifffile.imwrite(at / "a.tif", _numbers(6))

    @staticmethod
    def read(at):
        import tifffile

        return tifffile.imread(at / "a.tif").tobytes()


@loader
class pandas_csv:
    write = csv_rows.write

    @staticmethod
    def read(at):
        import pandas

        return pandas.read_csv(at / "a.csv", header=None).to_numpy().tolist()


@loader
class pandas_json:
    @staticmethod
    def write(at):
        (at / "a.json").write_text(json.dumps(_table()))

    @staticmethod
    def read(at):
        import pandas

        return pandas.read_json(at / "a.json").to_numpy().tolist()


@loader
class pyarrow_parquet:
    @staticmethod
    def write(at):
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table(_table()), at / "a.parquet")

    @staticmethod
    def read(at):
        import pyarrow.parquet

        return pyarrow.parquet.read_table(at / "a.parquet").to_pydict()


@loader
class pandas_parquet:
    write = pyarrow_parquet.write

    @staticmethod
    def read(at):
        import pandas

        return pandas.read_parquet(at / "a.parquet").to_numpy().tolist()


@loader
class pyarrow_parquet_file:
    write = pyarrow_parquet.write

    @staticmethod
    def read(at):
        import pyarrow.parquet

        return pyarrow.parquet.ParquetFile(at / "a.parquet").read().to_pydict()


@loader
class pyarrow_dataset:
    @staticmethod
    def write(at):
        import pyarrow
        import pyarrow.parquet

        for number in range(3):
            pyarrow.parquet.write_table(pyarrow.table(_table()), at / f"{number}.parquet")

    @staticmethod
    def read(at):
        import pyarrow.dataset

        return pyarrow.dataset.dataset(at).to_table().to_pydict()


@loader
class pyarrow_mapped:
    @staticmethod
    def write(at):
        import pyarrow

        table = pyarrow.table(_table())
        with pyarrow.OSFile(str(at / "a.arrow"), "wb") as sink:
            with pyarrow.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)

    @staticmethod
    def read(at):
        import pyarrow

        with pyarrow.memory_map(str(at / "a.arrow")) as source:
            return pyarrow.ipc.open_file(source).read_all().to_pydict()


@loader
class pyarrow_csv:
    write = csv_rows.write

    @staticmethod
    def read(at):
        import pyarrow.csv

        return pyarrow.csv.read_csv(at / "a.csv").to_pydict()


@loader
class h5py_file:
    @staticmethod
    def write(at):
        import h5py

        with h5py.File(at / "a.h5", "w") as file:
            file["w"] = _numbers(7)

    @staticmethod
    def read(at):
        import h5py

        with h5py.File(at / "a.h5") as file:
            return file["w"][:].tobytes()


@loader
class lmdb_open:
    @staticmethod
    def write(at):
        import lmdb

        with lmdb.open(str(at / "a.lmdb"), map_size=1 << 20) as database:
            with database.begin(write=True) as change:
                for number in range(99):
                    change.put(b"%05d" % number, os.urandom(100))

    @staticmethod
    def read(at):
        import lmdb

        with lmdb.open(str(at / "a.lmdb"), readonly=True, lock=False) as database:
            with database.begin() as look:
                return list(look.cursor())


@loader
class datasets_from_disk:
    @staticmethod
    def write(at):
        import datasets

        datasets.Dataset.from_dict(_table()).save_to_disk(str(at / "set"))

    @staticmethod
    def read(at):
        import datasets

        return datasets.load_from_disk(str(at / "set"))[:]


@loader
class datasets_json:
    @staticmethod
    def write(at):
        rows = [{"a": i, "b": f"row {i}"} for i in range(200)]
        (at / "a.jsonl").write_text("\n".join(json.dumps(row) for row in rows))

    @staticmethod
    def read(at):
        import tempfile

        import datasets

        with tempfile.TemporaryDirectory() as cache:
            return datasets.load_dataset(
                "json", data_files=str(at / "a.jsonl"), cache_dir=cache, split="train"
            )[:]


@loader
class polars_parquet:
    write = pyarrow_parquet.write

    @staticmethod
    def read(at):
        import polars

        return polars.read_parquet(at / "a.parquet").to_dict(as_series=False)


@loader
class polars_scan_csv:
    write = csv_rows.write

    @staticmethod
    def read(at):
        import polars

        return polars.scan_csv(at / "a.csv").collect().to_dict(as_series=False)


@loader
class duckdb_parquet:
    write = pyarrow_parquet.write

    @staticmethod
    def read(at):
        import duckdb

        return duckdb.sql(f"select * from '{at}/a.parquet'").fetchall()


@loader
class scipy_matlab:
    @staticmethod
    def write(at):
        import scipy.io

        scipy.io.savemat(at / "a.mat", {"w": _numbers(8)})

    @staticmethod
    def read(at):
        import scipy.io

        return scipy.io.loadmat(at / "a.mat")["w"].tobytes()


@loader
class soundfile:
    @staticmethod
    def write(at):
        import soundfile

        soundfile.write(at / "a.wav", _numbers(9, (4000,)), 8000)

    @staticmethod
    def read(at):
        import soundfile

        return soundfile.read(at / "a.wav")[0].tobytes()


@loader
class netcdf:
    @staticmethod
    def write(at):
        import netCDF4

        with netCDF4.Dataset(at / "a.nc", "w") as file:
            file.createDimension("n", 100)
            file.createVariable("v", "f4", ("n",))[:] = _numbers(10, (100,))

    @staticmethod
    def read(at):
        import netCDF4

        with netCDF4.Dataset(at / "a.nc") as file:
            return file["v"][:].tobytes()


@loader
class zarr_array:
    @staticmethod
    def write(at):
        import zarr

        zarr.save(str(at / "a.zarr"), _numbers(11))

    @staticmethod
    def read(at):
        import zarr

        return zarr.load(str(at / "a.zarr")).tobytes()


@loader
class webdataset:
    @staticmethod
    def write(at):
        import webdataset

        with webdataset.TarWriter(str(at / "a.tar")) as sink:
            for number in range(5):
                sink.write({"__key__": f"{number}", "bin": os.urandom(100)})

    @staticmethod
    def read(at):
        import webdataset

        return [
            each["bin"] for each in webdataset.WebDataset(str(at / "a.tar"), shardshuffle=False)
        ]


@loader
class tfrecord:
    @staticmethod
    def write(at):
        from tfrecord import TFRecordWriter

        writer = TFRecordWriter(str(at / "a.tfrecord"))
        for number in range(20):
            writer.write({"n": (number, "int")})
        writer.close()

    @staticmethod
    def read(at):
        from tfrecord.reader import tfrecord_loader

        return [int(each["n"][0]) for each in tfrecord_loader(str(at / "a.tfrecord"), None)]


@loader
class joblib:
    @staticmethod
    def write(at):
        import joblib

        joblib.dump(_numbers(12), at / "a.joblib")

    @staticmethod
    def read(at):
        import joblib

        return joblib.load(at / "a.joblib").tobytes()


@loader
class tokenizers_file:
    @staticmethod
    def write(at):
        from tokenizers import Tokenizer, models

        words = {f"w{i}": i for i in range(200)}
        Tokenizer(models.WordLevel(words, unk_token="w0")).save(str(at / "tokenizer.json"))

    @staticmethod
    def read(at):
        from tokenizers import Tokenizer

        return sorted(Tokenizer.from_file(str(at / "tokenizer.json")).get_vocab().items())


@loader
class fsspec_open:
    write = open_binary.write

    @staticmethod
    def read(at):
        import fsspec

        with fsspec.open(f"file://{at}/a.bin", "rb") as file:
            return file.read()


@loader
class other_program:
    write = open_binary.write
    read = staticmethod(
        lambda at: subprocess.run(["cat", at / "a.bin"], stdout=-1, check=True).stdout
    )


@loader
class other_program_by_list:
    @staticmethod
    def write(at):
        (at / "a.bin").write_bytes(os.urandom(5000))

    @staticmethod
    def read(at):
        return subprocess.run(
            ["sh", "-c", "cd $WHERE; cat *"],
            stdout=-1,
            check=True,
            env={**os.environ, "WHERE": str(at)},
        ).stdout


def main(what: str, folder: str, *names: str) -> None:
    told = {}
    for name in names or LOADERS:
        at = Path(folder, name)
        try:
            if what == "write":
                at.mkdir(parents=True)
                LOADERS[name][0](at)
                told[name] = ""
            else:
                told[name] = hashlib.sha256(repr(LOADERS[name][1](at)).encode()).hexdigest()
        except BaseException as error:
            told[name] = f"{type(error).__name__}: {error}"
            if what == "write":
                for path in at.iterdir():
                    path.unlink()
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
