"""A share that does not fit into memory is told with numbers before it is read."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

from airflow_training.networks.trainer.mistakes import TrainerError
from airflow_training.networks.trainer.share_memory import check_share, memory_limit, share_bytes
from tests.networks.trainer.made import IMAGES, LISTS, TABLE, TEXT, reader_of, settings_of

ROWS = 20_000


def reader(folder: Path, form: str):
    """Return a reader of files whose samples are known."""
    numbers = numpy.arange(ROWS)
    if form == "csv":
        rows = [f"{n:06},{n % 2},{n:06}" for n in range(ROWS)]
        (folder / "t.csv").write_text("\n".join(["a,kind,b", *rows]) + "\n")
        return reader_of(settings_of(TABLE, {"format": "csv", "label": "kind"}), folder)
    if form == "libsvm":
        rows = [f"{n % 2} qid:{n // 3:05} 1:{n:06} 2:1" for n in range(ROWS)]
        (folder / "t.libsvm").write_text("\n".join(rows))
        return reader_of(settings_of(LISTS, {"format": "libsvm", "query": "qid"}), folder)
    if form == "npz":
        x = numpy.stack([numbers, numbers], 1).astype(numpy.float32)
        numpy.savez(folder / "t.npz", x=x, y=numbers % 2)
        return reader_of(settings_of(TABLE, {"format": "npz"}), folder)
    if form == "text":
        (folder / "t.txt").write_bytes(b"four" * ROWS)
        return reader_of(settings_of(TEXT, {"format": "text"}), folder)
    if form == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        table = pyarrow.table({"a": numbers, "kind": numbers % 2, "b": numbers})
        parquet.write_table(table, folder / "t.parquet")
        return reader_of(settings_of(TABLE, {"format": "parquet", "label": "kind"}), folder)
    image = pytest.importorskip("PIL.Image")
    for n in range(20):
        (folder / f"{n % 2}").mkdir(exist_ok=True)
        image.new("L", (4, 4), n).save(folder / f"{n % 2}" / f"{n}.png")
    return reader_of(settings_of(IMAGES, {"format": "images"}), folder)


@pytest.mark.parametrize("form", ["csv", "libsvm", "npz", "text", "parquet", "images"])
def test_the_estimate_is_what_the_share_takes(tmp_path, form):
    found = reader(tmp_path, form)
    for rank, parts in enumerate(found.parts(3)):
        taken = sum(each.nbytes for each in found.read(rank, 3).arrays.values())
        assert share_bytes(found, parts) == pytest.approx(taken, rel=0.05)


def test_too_large_a_share_is_told_with_what_it_takes_and_what_is_there(tmp_path):
    found = reader(tmp_path, "csv")
    check_share(found, 0, 1, limit=1 << 20, processes=1)
    with pytest.raises(TrainerError) as told:
        check_share(found, 0, 1, limit=200_000, processes=1)
    words = str(told.value)
    assert "the share of rank 0: takes about 625.0 KiB of memory while it is read" in words
    assert "(312.5 KiB of 1 files), and its instance has 195.3 KiB" in words
    assert "fix: train on 4 instances or more, give each 625.0 KiB" in words


def test_processes_of_an_instance_share_its_memory(tmp_path):
    found = reader(tmp_path, "csv")
    check_share(found, 0, 2, limit=400_000, processes=1)
    with pytest.raises(TrainerError, match="times 2 processes"):
        check_share(found, 0, 2, limit=400_000, processes=2)


def kernel(folder: Path, **files: str) -> dict[str, Path]:
    (folder / "proc" / "self").mkdir(parents=True)
    (folder / "proc" / "meminfo").write_text("MemTotal:  1000 kB\nMemFree: 1 kB\n")
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_max", ".max")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {"proc": folder / "proc", "cgroups": folder / "cgroups"}


def test_the_limit_is_the_smallest_of_machine_groups_and_process(tmp_path):
    there = kernel(
        tmp_path,
        proc__self__cgroup="0::/pods/one\n",
        cgroups__memory_max="max\n",
        cgroups__pods__memory_max="500000\n",
        cgroups__pods__one__memory_max="700000\n",
    )
    assert memory_limit(**there, data_limit=1 << 40) == 500_000
    assert memory_limit(**there, data_limit=1000) == 1000


def test_without_groups_it_is_the_machine(tmp_path):
    there = kernel(tmp_path, proc__self__cgroup="0::/../elsewhere\n")
    assert memory_limit(**there, data_limit=1 << 40) == 1000 * 1024
