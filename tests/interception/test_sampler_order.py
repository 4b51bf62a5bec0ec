"""A loader of PyTorch tells which files it reads next, and gives the same batches as ever."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_training.interception.asking import tell_next
from airflow_training.interception.sampler_order import SamplerOrder
from tests.cloud.elsewhere import ROOT

LOADER = """
import json, sys
from pathlib import Path
import torch
from torch.utils.data import DataLoader, Dataset, Subset

told = []
if sys.argv[1] == "told":
    from airflow_training.interception.module_changes import watch_modules
    from airflow_training.interception.sampler_order import SamplerOrder
    watch_modules(SamplerOrder([str(Path("data").resolve())], told.append).changes())

class Files(Dataset):
    def __init__(self): self.paths = sorted(Path("data").iterdir())
    def __len__(self): return len(self.paths)
    def __getitem__(self, index): return int(self.paths[index].name)

torch.manual_seed(3)
batches = []
for epoch in range(2):
    for data in (Files(), Subset(Files(), range(10))):
        for batch in DataLoader(data, batch_size=4, shuffle=True, num_workers=int(sys.argv[2])):
            batches.append(batch.tolist())
            torch.rand(1)  # as dropout does
print(json.dumps({"batches": batches, "told": [Path(p).name for each in told for p in each]}))
"""


@pytest.mark.e2e
@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_order_is_told_and_stays_what_it_is(tmp_path, workers):
    pytest.importorskip("torch")
    (tmp_path / "data").mkdir()
    for number in range(40):
        (tmp_path / "data" / f"{number:02}").touch()

    def run(how: str):
        done = subprocess.run(
            [sys.executable, "-c", LOADER, how, workers],
            cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return json.loads(done.stdout)

    told, silent = run("told"), run("silent")
    assert told["batches"] == silent["batches"]
    assert told["told"] == [f"{n:02}" for batch in told["batches"][:10] for n in batch]
    assert silent["told"] == []


STOPPED = """
from torch.utils.data import BatchSampler, RandomSampler
numbers = []
for options in ({"generator": torch.Generator()}, {}):
    sampler = RandomSampler(Files(), **options)
    nested = DataLoader(Files(), batch_sampler=BatchSampler(sampler, 4, False))
    for loader in (DataLoader(Files(), batch_size=4, shuffle=True, **options), nested):
        for number, batch in enumerate(loader):
            if number == 8:
                break
        numbers += [torch.rand(1).item(), torch.rand(1, generator=options.get("generator")).item()]
print(json.dumps(numbers))
"""


@pytest.mark.e2e
def test_random_numbers_stay_what_they_are_where_a_loop_stops_before_its_end(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "data").mkdir()
    for number in range(40):
        (tmp_path / "data" / f"{number:02}").touch()
    script = LOADER.partition("batches = []")[0] + STOPPED
    told, silent = (
        subprocess.run(
            [sys.executable, "-c", script, how],
            cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
        ).stdout
        for how in ("told", "silent")
    )  # fmt: skip
    assert told == silent


@pytest.mark.e2e
def test_which_data_sets_say_where_their_items_lie(tmp_path):
    for name in "ab":
        (tmp_path / name).touch()
    order = SamplerOrder([str(tmp_path)], print)

    class Data(SimpleNamespace):
        def __len__(self) -> int:
            return 2

    place = [str(tmp_path / name) for name in "ab"]
    for known in (
        Data(files=place),
        Data(samples=[(each, 0) for each in place]),
        Data(root=tmp_path, names=["a", "b"]),
        Data(labels=[1, 2], paths=tuple(map(Path, place))),
    ):
        found = order.paths_of(known)
        assert found is not None
        assert [found(0), found(1)] == place
    for unknown in (Data(names=["a", "b"]), Data(files=place[:1]), Data(), object(), None, [1, 2]):
        assert order.paths_of(unknown) is None


def test_what_is_read_is_told_some_batches_before_and_once():
    told: list[str] = []
    order = SamplerOrder(["/d"], told.extend)
    batches = order.ahead(iter([[n, n + 1] for n in range(0, 60, 2)]), lambda index: f"/d/{index}")
    assert next(batches) == [0, 1]
    assert told == [f"/d/{n}" for n in range(18)]
    assert [*batches] == [[n, n + 1] for n in range(2, 60, 2)]
    assert told == [f"/d/{n}" for n in range(60)]
    assert [*order.ahead(iter([3, 4]), lambda index: f"/d/{index}")] == [3, 4]
    assert len(told) == 60


def test_an_item_is_looked_at_once_however_often_it_is_read():
    asked: list[int] = []
    order, looked = SamplerOrder(["/d"], lambda _: None), set[int]()

    def path_of(index: int) -> str:
        asked.append(index)
        return f"/d/{index}"

    for _ in range(2):
        assert [*order.ahead(iter([[1, 2], [3]]), path_of, looked)] == [[1, 2], [3]]
    assert asked == [1, 2, 3]


@pytest.mark.parametrize(("error", "times"), [(TimeoutError, 1), (ConnectionRefusedError, 3)])
def test_who_is_too_slow_is_told_no_more(error, times):
    asked: list[list[str]] = []

    def tell(paths: list[str]) -> None:
        asked.append(paths)
        raise error

    order = SamplerOrder(["/d"], tell)
    assert [*order.ahead(iter([1, 2, 3]), lambda index: f"/d/{index}")] == [1, 2, 3]
    assert len(asked) == times


@pytest.mark.e2e
def test_nobody_waits_long_for_who_listens_and_says_nothing(tmp_path):
    address = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        with pytest.raises(TimeoutError):
            tell_next(address, ["/d/1"])
