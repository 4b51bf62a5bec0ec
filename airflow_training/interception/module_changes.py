"""Change a module after it was imported, as a reader or a class of it that is to tell what it is given.

A finder, first in `sys.meta_path`, does. Other modules cost a look into a dictionary. Python 3.8 and newer, standard library only.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # `typing` costs the training's start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

__all__ = ["after_method", "watch_modules"]


def watch_modules(changes: Mapping[str, Callable[[ModuleType], object]]) -> None:
    """Change modules, by their names, once they were imported; those that are already, now."""
    finder = _Finder(changes)
    for name in changes:
        module = sys.modules.get(name)
        if module is not None:
            finder.change(module)
    sys.meta_path.insert(0, finder)


def after_method(module: ModuleType, name: str, method: str, work: Callable[..., None]) -> None:
    """Do something once a method of a class has returned: `work(self, result, args, kwargs)`."""
    kind = vars(module).get(name)
    own = None if kind is None else vars(kind).get(method)
    if own is None or not hasattr(own, "__code__"):
        return
    import functools

    @functools.wraps(own)
    def method_and_more(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = own(self, *args, **kwargs)
        try:
            work(self, result, args, kwargs)
        except Exception:  # noqa: BLE001  # a training is never disturbed by who watches it
            return result
        return result

    setattr(kind, method, method_and_more)


class _Finder:
    def __init__(self, changes: Mapping[str, Callable[[ModuleType], object]]) -> None:
        self._changes = changes

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return what the others find, with a loader that changes the module once it has run."""
        if name not in self._changes:
            return None
        # those before were asked already; another one of us among them asks us, and would without end
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find else None
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec, self)  # type: ignore[assignment]  # by what it does, a loader
                return spec
        return None

    def change(self, module: ModuleType) -> None:
        """Do what is to be done to a module."""
        self._changes[module.__name__](module)


class _Loader:
    """A module's own loader, and one thing after it has run the module."""

    def __init__(self, spec: ModuleSpec, finder: _Finder) -> None:
        self._spec = spec
        self._own: Any = spec.loader
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        # the module gets the loader it would have had
        spec.loader = self._own
        try:
            created: ModuleType | None = self._own.create_module(spec)
        finally:
            spec.loader = self  # type: ignore[assignment]
        return created

    def exec_module(self, module: ModuleType) -> None:
        self._spec.loader = self._own
        if module.__spec__ is not None:
            module.__spec__.loader = self._own
        module.__loader__ = self._own
        self._own.exec_module(module)
        self._finder.change(module)
