"""In which order a PyTorch program will read its files: a `DataLoader` is asked for some batches more than it has given.

Only where a data set keeps the path of each of its items in a list, and where its samplers are those of PyTorch, which have no
generator of the program's and put nothing back: these draw their order at once, or with a generator of their own, so that looking ahead
changes no random number, also where the program stops before the last batch. Python 3.8 and newer, standard library only.
"""

from __future__ import annotations

import os

from airflow_training.interception.module_changes import after_method

TYPE_CHECKING = False  # `typing` costs the training's start
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import ModuleType
    from typing import Any
    from weakref import ref

__all__ = ["SamplerOrder"]

_BATCHES = 8
"""Are looked at ahead: what a few workers take at once, and as much again."""
_SAMPLES = 256
"""Not more than so many; one batch at least."""
_TORCH = "torch.utils.data."


class SamplerOrder:
    """What one process has told of the order of its files."""

    def __init__(self, data_roots: Sequence[str], tell: Callable[[list[str]], object]) -> None:
        """`tell`: is given paths below the roots, those that are read first first."""
        self._below = tuple(each.rstrip(os.sep) + os.sep for each in data_roots)
        self._tell = tell
        self._told: set[str] = set()
        self._looked: dict[int, tuple[ref[Any], set[int]]] = {}
        self._is_heard = True

    def changes(self) -> Mapping[str, Callable[[ModuleType], None]]:
        """Return module -> what is changed in it once it is imported."""
        return {"torch.utils.data.dataloader": self._change_loader}

    def _change_loader(self, module: ModuleType) -> None:
        def begun(iterator: Any, *_: Any) -> None:
            sampler = vars(iterator).get("_index_sampler")
            if sampler is None or not _draws_at_once(sampler):
                return
            paths = self.paths_of(vars(iterator).get("_dataset"))
            if paths is not None:
                looked = self._looked_at(vars(iterator).get("_dataset"))
                iterator._sampler_iter = self.ahead(iterator._sampler_iter, paths, looked)

        for method in ("__init__", "_reset"):
            after_method(module, "_BaseDataLoaderIter", method, begun)

    def _looked_at(self, data: Any) -> set[int]:
        """Which items of a data set have been looked at, in earlier epochs too."""
        from weakref import ref

        found = self._looked.get(id(data))
        if found is None or found[0]() is not data:
            found = self._looked[id(data)] = (ref(data), set())
        return found[1]

    def ahead(
        self, batches: Iterator[Any], path_of: Callable[[int], str], looked: set[int] | None = None
    ) -> Iterator[Any]:
        """Yield the same batches of indexes, having told the paths of some after each.

        `looked`: which items are not looked at again, and those that are from now on.
        """
        looked = set() if looked is None else looked
        held: list[Any] = []
        samples = 0
        for batch in batches:
            held.append(batch)
            samples += len(batch) if isinstance(batch, (list, tuple)) else 1
            self._tell_new(batch, path_of, looked)
            if len(held) > _BATCHES or samples > _SAMPLES:
                first = held.pop(0)
                samples -= len(first) if isinstance(first, (list, tuple)) else 1
                yield first
        yield from held

    def _tell_new(self, batch: Any, path_of: Callable[[int], str], looked: set[int]) -> None:
        if not self._is_heard:
            return
        try:
            items = batch if isinstance(batch, (list, tuple)) else [batch]
            paths = [path_of(each) for each in items if each not in looked]
            looked.update(items)
            new = [each for each in paths if each and each not in self._told]
            self._told.update(new)
            if new:
                self._tell(new)
        except (ConnectionError, FileNotFoundError):  # who listens is started again
            return
        except OSError:  # too slow: a training does not wait for it again
            self._is_heard = False
        except Exception:  # noqa: BLE001  # they are fetched when they are read
            return

    def paths_of(self, data: Any) -> Callable[[int], str] | None:
        """A function from an item of a data set to its path, empty for one that is none of ours; None: nobody knows."""
        if type(data).__name__ == "Subset" and type(data).__module__.startswith(_TORCH):
            inner, indices = self.paths_of(data.dataset), data.indices
            return None if inner is None else lambda index: inner(indices[index])
        variables = getattr(data, "__dict__", None)
        if not variables:
            return None
        length = len(data)
        folders = [os.fspath(each) for each in variables.values() if _is_path(each)]
        folders = ["", *(each for each in folders if os.path.isdir(each))]  # noqa: PTH112  # pathlib costs more, of thousands of files
        for items in variables.values():
            if not isinstance(items, (list, tuple)) or len(items) != length or not length:
                continue
            for folder in folders:
                if self._place(items[0], folder):
                    return lambda index, items=items, folder=folder: self._place(
                        items[index], folder
                    )  # type: ignore[misc]
        return None

    def _place(self, item: Any, folder: str) -> str:
        """Return the path of an item, a path or a pair that begins with one; empty: it is none below a root."""
        if isinstance(item, (list, tuple)) and item:
            item = item[0]
        if not _is_path(item):
            return ""
        full = os.path.realpath(os.path.join(folder, os.fspath(item)))  # noqa: PTH118  # as above
        return full if full.startswith(self._below) and os.path.isfile(full) else ""  # noqa: PTH113  # as above


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike)) and bool(os.fspath(value))


def _draws_at_once(sampler: Any) -> bool:
    """Whether a sampler, and those below it, are of PyTorch, and draw from no generator of the program after their first item.

    One that has a generator does so at its end; one that puts back did with the global one before PyTorch 1.9.
    """
    while sampler is not None:
        if (
            not type(sampler).__module__.startswith(_TORCH)
            or getattr(sampler, "generator", None) is not None
            or getattr(sampler, "replacement", False)
        ):
            return False
        sampler = getattr(sampler, "sampler", None)
    return True
