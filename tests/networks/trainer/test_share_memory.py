"""A share that does not fit into memory is told with numbers before it is read."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

from airflow_training.networks.trainer.mistakes import TrainerError
from airflow_training.networks.trainer.share_memory import (
    check_share,
    held_bytes,
    may_grow,
    memory_limit,
    ranks_here,
    share_bytes,
)
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
    held = {0: held_bytes(found, 0, 1)}
    check_share(found, 0, 1, held=held, limit=1 << 20)
    with pytest.raises(TrainerError) as told:
        check_share(found, 0, 1, held=held, limit=200_000)
    words = str(told.value)
    assert "the share of rank 0: takes about 625.0 KiB of memory while it is read" in words
    assert "(312.5 KiB of 1 files), and its instance has 195.3 KiB" in words
    assert "fix: train on 4 instances or more, give each 625.0 KiB" in words


def test_processes_of_an_instance_share_its_memory_and_only_one_has_to_copy(tmp_path):
    found = reader(tmp_path, "csv")
    held = {rank: held_bytes(found, rank, 2) for rank in range(2)}  # 160,000 bytes each
    check_share(found, 0, 2, held={0: held[0]}, limit=400_000)
    check_share(found, 0, 2, held=held, limit=490_000)
    with pytest.raises(TrainerError) as told:
        check_share(found, 0, 2, held=held, limit=400_000)
    assert "468.8 KiB with the other processes" in str(told.value)
    assert "train on 2 instances or more" in str(told.value)


def test_the_limit_of_a_process_is_not_that_of_all(tmp_path):
    found = reader(tmp_path, "csv")
    held = {rank: held_bytes(found, rank, 2) for rank in range(2)}
    check_share(found, 0, 2, held=held, limit=1 << 40, own_limit=330_000)
    with pytest.raises(TrainerError, match="RLIMIT_DATA"):
        check_share(found, 0, 2, held=held, limit=1 << 40, own_limit=300_000)


def taken(found, rank=0, world=1):
    return sum(each.nbytes for each in found.read(rank, world).arrays.values())


def test_numbers_that_are_read_as_fewer_bytes_and_arrays_nobody_asked_for_are_not_counted(tmp_path):
    x = numpy.ones((ROWS, 2))  # float64, as numpy makes it
    numpy.savez(tmp_path / "t.npz", x=x, y=numpy.zeros(ROWS), more=numpy.ones((ROWS, 50)))
    found = reader_of(settings_of(TABLE, {"format": "npz"}), tmp_path)
    assert held_bytes(found, 0, 1) == taken(found)


def test_rows_longer_than_what_is_looked_at_are_not_taken_for_many(tmp_path):
    data = {"format": "csv", "label": "kind", "inputs": {"x": ["a", "b"]}}
    rows = [f"1,0,2,{','.join(['w' * 100_000] * 9)}"] * 12
    (tmp_path / "t.csv").write_text("\n".join(["a,kind,b,1,2,3,4,5,6,7,8,9", *rows, ""]))
    found = reader_of(settings_of(TABLE, data), tmp_path)
    assert held_bytes(found, 0, 1) <= taken(found)


def test_short_rows_at_the_beginning_say_nothing_of_the_others(tmp_path):
    data = {"format": "csv", "label": "kind", "inputs": {"x": ["a", "b"]}}
    rows = ["1,0,2,", *["1,0,2,\n"] * ROWS, *[f"1,0,2,{'w' * 400}"] * ROWS]
    (tmp_path / "t.csv").write_text("\n".join(["a,kind,b,words", *rows, ""]))
    found = reader_of(settings_of(TABLE, data), tmp_path)
    assert held_bytes(found, 0, 1) <= taken(found)


def test_files_that_are_packed_more_tightly_say_nothing_of_the_others(tmp_path):
    random = numpy.random.RandomState(7)
    for number in range(30):
        rows = 60_000 if number == 0 else 50
        x = numpy.zeros((rows, 2)) if number == 0 else random.rand(rows, 2)
        numpy.savez_compressed(tmp_path / f"{number:02}.npz", x=x, y=numpy.zeros(rows))
    found = reader_of(settings_of(TABLE, {"format": "npz"}), tmp_path)
    assert held_bytes(found, 0, 1) <= taken(found)


@pytest.mark.parametrize("form", ["csv", "npz", "parquet"])
def test_files_that_cannot_be_read_are_told_by_who_reads_them(tmp_path, form):
    data = {"format": form, "label": "kind", "inputs": {"x": ["a", "b"] if form != "npz" else "x"}}
    (tmp_path / f"t.{form}").write_bytes(b"a,kind,b\n")
    found = reader_of(settings_of(TABLE, data), tmp_path)
    (tmp_path / f"t.{form}").write_bytes(b"PK\x03\x04 no archive")
    assert held_bytes(found, 0, 1) == 0


def test_ranks_of_an_instance_are_those_beside_it():
    assert ranks_here(5, 8, {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}) == range(4, 8)
    assert ranks_here(2, 3, {}) == range(2, 3)


def kernel(folder: Path, **files: str) -> dict[str, Path]:
    (folder / "proc" / "self").mkdir(parents=True)
    (folder / "proc" / "meminfo").write_text("MemTotal:  1000 kB\nMemFree: 1 kB\n")
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_max", ".max")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {"proc": folder / "proc", "cgroups": folder / "cgroups"}


def test_the_limit_is_the_smallest_of_machine_and_groups(tmp_path):
    there = kernel(
        tmp_path,
        proc__self__cgroup="0::/pods/one\n",
        cgroups__memory_max="max\n",
        cgroups__pods__memory_max="500000\n",
        cgroups__pods__one__memory_max="700000\n",
    )
    assert memory_limit(**there) == 500_000


def test_what_can_be_swapped_out_counts(tmp_path):
    there = kernel(tmp_path, proc__self__cgroup="0::/\n", cgroups__memory_max="500000\n")
    with (there["proc"] / "meminfo").open("a") as file:
        file.write("SwapTotal:  100 kB\n")
    assert memory_limit(**there) == 500_000 + 100 * 1024


def test_without_groups_it_is_the_machine(tmp_path):
    there = kernel(tmp_path, proc__self__cgroup="0::/../elsewhere\n")
    assert memory_limit(**there) == 1000 * 1024


def test_what_a_later_attempt_may_get_is_not_refused_to_the_first():
    assert may_grow(1000, {}) == 1000
    assert may_grow(1000, {"TRAINER_MEMORY_UP_TO": "4000"}) == 4000
