"""What a user wrote of a role's pod, merged, and where in the document each part of it stands. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from airflow_training.documents.merge import MERGE_KEYS, merge_templates, shorthand_template
from airflow_training.documents.paths import Loc
from airflow_training.documents.podmodel.check import SHORTHAND_KINDS
from airflow_training.documents.shapes import mapping

__all__ = ["UserTemplate"]


class UserTemplate:
    """The layers of one role: the job's shorthand, the role's, and the role's template over them."""

    def __init__(
        self, spec: Mapping[str, Any], role: Mapping[str, Any], loc: Loc, *, container: str
    ) -> None:
        """`spec` and `role` as written; `loc`: where the role stands.

        `container`: name of the container that the shorthand is for.
        """
        self._layers: tuple[tuple[Loc, bool, Mapping[str, Any]], ...] = (
            ((*loc, "template"), False, mapping(role.get("template"))),
            (loc, True, shorthand_template(container, _written(role))),
            (("spec",), True, shorthand_template(container, _written(spec))),
        )
        self.merged = merge_templates(*(layer for _, _, layer in reversed(self._layers)))
        """A PodTemplateSpec without anything that a framework adds."""
        self._indexes: dict[int, Mapping[Any, int]] = {}
        """Id of a list of a layer -> name of an item -> its place."""

    def find(self, place: Loc) -> Loc | None:
        """Return where a place of `merged` was written, in the strongest layer that has it."""
        for prefix, shorthand, layer in self._layers:
            found = self._locate(place, layer)
            if found is not None:
                if shorthand:  # its keys stand for spec.volumes, or spec.containers[0].<key>
                    found = found[3:] if found[1] == "containers" else found[1:]
                return (*prefix, *found)
        return None

    def _locate(self, place: Loc, layer: Any) -> Loc | None:
        """Return where a merged place stands in one layer; None: not there."""
        here: list[str | int] = []
        merged: Any = self.merged
        for part in place:
            if isinstance(part, int):
                item, merge_by = merged[part], MERGE_KEYS.get(str(here[-1]))
                items = layer if isinstance(layer, list | tuple) else ()
                at = self._place_of(item, items, merge_by)
                if at is None:
                    return None
                here.append(at)
                merged, layer = item, layer[at]
            else:
                if not isinstance(layer, Mapping) or layer.get(part) is None:
                    return None
                here.append(part)
                merged, layer = merged[part], layer[part]
        return tuple(here)

    def _place_of(self, item: Any, items: Sequence[Any], merge_by: str | None) -> int | None:
        """Return where the item of a layer stands that was merged into `item`."""
        name = _name_of(item, merge_by)
        if name is None:
            return next((j for j, own in enumerate(items) if own == item), None)
        if id(items) not in self._indexes:  # once: a list may have thousands of items
            names = ((_name_of(own, merge_by), j) for j, own in enumerate(items))
            self._indexes[id(items)] = dict(
                reversed([pair for pair in names if pair[0] is not None])
            )
        return self._indexes[id(items)].get(name)


def _written(owner: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the shorthand keys that are there; null stays, it takes away."""
    return {key: owner[key] for key in SHORTHAND_KINDS if key in owner}


def _name_of(item: Any, merge_by: str | None) -> Hashable | None:
    """Return what tells an item of a list from the others; None where nothing but all of it does."""
    name = item.get(merge_by) if merge_by is not None and isinstance(item, Mapping) else None
    return name if isinstance(name, Hashable) else None
