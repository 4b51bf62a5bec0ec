"""What a training was set to: arguments as `argparse` has read them, dataclasses, and what frameworks tell.

Each goes to a file, a JSON line for each that tells: `{"from": "argparse", "values": {"lr": 0.1}}`. Values that may be secrets,
and those that are no plain value, stay out. Python 3.8 and newer, standard library only.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `typing` costs the training's start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType, ModuleType
    from typing import Any

__all__ = ["ParameterWatch", "plain_values"]

_MOST_VALUES = 100
_LONGEST_TEXT = 200
_LONGEST_LIST = 16
_MOST_OF_A_KIND = 3
"""Loaders of a training, its validation and its test; a search makes thousands."""
_DEEPEST = 40
_OPTIMIZED = 1
"""`inspect.CO_OPTIMIZED`, of the code of functions."""
_HUMP = r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"
_LEFT_OUT_NAMES = (
    "passw|pass[^a-z]?phrase|pwd|secret|credential|authoriz|bearer|webhook|private[^a-z]?key"
)
"""Anywhere in a name, which is as a word of words by then: whatever its value is."""
_LEFT_OUT_TEXT_NAMES = (
    r"(?<![a-z])(?:pass|auth|creds?|dsn|cookies?|sig|signature)(?![a-z])|(?:token|key)s?(?![a-z])"
)
"""Of texts only: `max_tokens` is a number. `capture.secret_values` looks at how random a value is, too; nobody asks for one here."""
_LEFT_OUT_TEXTS = (
    r"(?i)\b(?:bearer|basic)\s"
    r"|(?:passw\w*|passphrase|pass|pwd|token|secret|key|sig|signature|credentials?|auth\w*)s?[\"']?\s*[=:\s]"
    r"|hooks\.|/webhooks?/|-----BEGIN"
    r"|://[^/?#\s]*@|://[^/@\s]*:[^@\s]*@|://\S*\?"
)
"""Headers, options, assignments, addresses with a user or a query."""
_RANDOM = (
    "(?=.*[0-9])(?=.*[A-Za-z])[A-Za-z0-9+=_.-]{20,}"
    "|[A-Za-z0-9+/]{40}|(?!/)(?=.*[0-9])(?=.*[a-z])(?=.*[A-Z])[A-Za-z0-9+/=]{32,}"
)
"""A token has no `/`, as paths have, but for some of a base of 64."""
_OF_LOADERS = ("batch_size", "num_workers", "drop_last", "prefetch_factor")
_OF_FIT = ("batch_size", "epochs", "steps_per_epoch", "validation_split")


def plain_values(values: Mapping[Any, Any]) -> dict[str, Any]:
    """Values that can be told: plain ones that are no secrets."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if not isinstance(name, str) or name.startswith("_"):
            continue
        if isinstance(value, (list, tuple)):
            if len(value) > _LONGEST_LIST or not all(_is_plain(each) for each in value):
                continue
            value = list(value)
        elif isinstance(value, os.PathLike):
            value = os.fspath(value)
        if not isinstance(value, list) and not _is_plain(value):
            continue
        if _may_be_secret(name, value):
            continue
        found[name] = value
        if len(found) == _MOST_VALUES:
            break
    return found


def _may_be_secret(name: str, value: Any) -> bool:
    import re

    def is_telling(word: str) -> bool:
        word = re.sub(_HUMP, "_", word).lower()
        return re.search(f"{_LEFT_OUT_NAMES}|{_LEFT_OUT_TEXT_NAMES}", word) is not None

    several = isinstance(value, list)
    texts = [each for each in (value if several else [value]) if isinstance(each, str)]
    if re.search(_LEFT_OUT_NAMES, re.sub(_HUMP, "_", name).lower()) or (texts and is_telling(name)):
        return True
    for text in texts:
        if re.search(_LEFT_OUT_TEXTS, text) or (several and is_telling(text)):
            return True
        ends = r"[\s\"'=:,;/]+" if "://" in text else r"[\s\"'=:,;]+"
        if any(re.fullmatch(_RANDOM, each) for each in (text, *re.split(ends, text))):
            return True
    return False


def _held(value: Any, name: str) -> Any:
    """Return what a field holds, by no code of the program: a property of it may print, or count.

    What is no plain value, as a property itself, is told nowhere.
    """
    try:
        return object.__getattribute__(value, "__dict__")[name]
    except (AttributeError, KeyError):  # in a slot, or in the class
        from types import MemberDescriptorType

        held = next((vars(each)[name] for each in type(value).__mro__ if name in vars(each)), ...)
        if not isinstance(held, MemberDescriptorType):
            return held
        try:
            return held.__get__(value)
        except AttributeError:  # it was not set
            return ...


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONGEST_TEXT
    if isinstance(value, float):
        return value - value == 0  # JSON has neither infinity nor NaN
    return value is None or isinstance(value, (bool, int))


class ParameterWatch:
    """What one process has told so far."""

    def __init__(self, path: str, after_method: Callable[..., None]) -> None:
        """`path`: of the file. `after_method`: that of `module_changes`; this module is loaded alone."""
        self._path = path
        self._after_method = after_method
        self._told: dict[str, list[dict[str, Any]]] = {}

    def changes(self) -> Mapping[str, Callable[[ModuleType], None]]:
        """Return module -> what is changed in it once it is imported."""
        return {
            "argparse": self._change_argparse,
            "torch.optim.optimizer": self._change_optimizer,
            "torch.utils.data.dataloader": self._change_loader,
            "keras.src.trainers.trainer": self._change_fit,
            "keras.src.backend.tensorflow.trainer": self._change_fit,
            "keras.src.backend.torch.trainer": self._change_fit,
            "keras.src.backend.jax.trainer": self._change_fit,
            "keras.src.optimizers.base_optimizer": self._change_keras_optimizer,
        }

    def tell(self, source: str, values: Mapping[Any, Any]) -> None:
        """Write down values that were not told yet."""
        try:
            found = plain_values(values)
            known = self._told.setdefault(source, [])
            if not found or found in known or len(known) == _MOST_OF_A_KIND:
                return
            known.append(found)
            import json

            line = json.dumps({"from": source, "values": found}) + "\n"
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)
        except Exception:  # noqa: BLE001,S110  # a training is never disturbed by who watches it
            pass

    def tell_set(self, frame: FrameType | None) -> None:
        """Tell of dataclasses and namespaces that the program has in its variables, from a function of it outwards.

        Before Python 3.13 not of those of functions: to look at these keeps them alive, and changes what an earlier
        `locals()` has given.
        """
        for _ in range(_DEEPEST):
            if frame is None:
                break
            is_seen = sys.version_info >= (3, 13) or not frame.f_code.co_flags & _OPTIMIZED
            if is_seen and frame.f_globals.get("__name__") in ("__main__", "__mp_main__"):
                self._tell_variables(frame.f_locals)
            frame = frame.f_back
        self.tell_main()

    def tell_main(self) -> None:
        """Tell of those of the program's module."""
        self._tell_variables(vars(sys.modules.get("__main__")) if "__main__" in sys.modules else {})

    def _tell_variables(self, variables: Mapping[str, Any]) -> None:
        for value in list(variables.values()):
            self._tell_variable(value)

    def _tell_variable(self, value: Any) -> None:
        try:
            kind = type(value)
            fields = getattr(kind, "__dataclass_fields__", None)
            if isinstance(fields, dict):
                self.tell(kind.__name__, {name: _held(value, name) for name in fields})
            elif kind.__name__ == "Namespace" and kind.__module__ == "argparse":
                self.tell("argparse", vars(value))
        except Exception:  # noqa: BLE001,S110  # what is computed when it is asked for may fail
            pass

    def _change_argparse(self, module: ModuleType) -> None:
        def after(_: Any, result: Any, __: Any, ___: Any) -> None:
            self.tell("argparse", vars(result[0]))

        self._after_method(module, "ArgumentParser", "parse_known_args", after)

    def _change_optimizer(self, module: ModuleType) -> None:
        def after(optimizer: Any, _: Any, __: Any, ___: Any) -> None:
            self.tell(f"torch.optim.{type(optimizer).__name__}", optimizer.defaults)
            self.tell_set(sys._getframe(2))

        self._after_method(module, "Optimizer", "__init__", after)

    def _change_loader(self, module: ModuleType) -> None:
        def after(loader: Any, _: Any, __: Any, ___: Any) -> None:
            values = {name: getattr(loader, name, None) for name in _OF_LOADERS}
            self.tell("torch.utils.data.DataLoader", values)
            self.tell_set(sys._getframe(2))

        self._after_method(module, "DataLoader", "__init__", after)

    def _change_fit(self, module: ModuleType) -> None:
        def after(_: Any, __: Any, ___: Any, given: Mapping[str, Any]) -> None:
            self.tell("keras.Model.fit", {name: given[name] for name in _OF_FIT if name in given})
            self.tell_main()

        for name in ("Trainer", "TensorFlowTrainer", "TorchTrainer", "JAXTrainer"):
            self._after_method(module, name, "fit", after)

    def _change_keras_optimizer(self, module: ModuleType) -> None:
        def after(optimizer: Any, _: Any, given: Any, named: Mapping[str, Any]) -> None:
            rate = named.get("learning_rate", given[0] if given else None)
            self.tell(f"keras.optimizers.{type(optimizer).__name__}", {"learning_rate": rate})

        self._after_method(module, "BaseOptimizer", "__init__", after)
