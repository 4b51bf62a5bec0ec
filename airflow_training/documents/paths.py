"""Field paths as people read them: `spec.roles[1].dependsOn[0].role`. Text and tuples only."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["Loc", "format_path", "split_path"]

Loc = tuple[str | int, ...]
"""Where a value stands: keys and list positions from the root of the document."""

_PLAIN_KEY = re.compile(r"^[A-Za-z_$][A-Za-z0-9_$-]*$")
_STEP = re.compile(
    r"""(?P<dot>\.)?(?:
        (?P<key>[^.\[\]"]+)
      | \[(?P<index>\d+)\]
      | \[\s*"(?P<quoted>(?:[^"\\]|\\.)*)"\s*\]
    )""",
    re.VERBOSE,
)


def format_path(loc: Sequence[str | int]) -> str:
    """Return `spec.resources.limits["nvidia.com/gpu"]` for its parts."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_KEY.match(part):
            text += f".{part}" if text else part
        else:
            escaped = part.replace("\\", "\\\\").replace('"', '\\"')
            text += f'["{escaped}"]'
    return text


def split_path(path: str) -> Loc | None:
    """Return the parts of a path that `format_path` wrote or a person typed; None: no path."""
    parts: list[str | int] = []
    position = 0
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None or step.end() == position:
            return None
        # a key needs its dot, except the first; brackets need none
        if step["key"] is not None:
            if bool(step["dot"]) != bool(parts):
                return None
            parts.append(step["key"])
        elif step["dot"]:
            return None
        elif step["index"] is not None:
            parts.append(int(step["index"]))
        else:
            parts.append(re.sub(r"\\(.)", r"\1", step["quoted"]))
        position = step.end()
    return tuple(parts) or None
