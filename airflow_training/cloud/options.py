"""How a program runs elsewhere, as it was typed: the one list of the options of `cloud run`, `cloud.run` and a submission."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["RunOptions", "told"]


def told(
    text: str, *, metavar: str = "", least: int | None = None, name: str = ""
) -> Mapping[str, Any]:
    """What the command line says of a field; `name`: of its option, where that is not the field's."""
    return {"help": text, "metavar": metavar or None, "min": least, "name": name}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """See `cloud.run` for what they mean; a field's metadata is what the command line says of it."""

    target: str = field(
        default="",
        metadata=told("Where, of `cloud targets`; by default the newest login, else here."),
    )
    replicas: int = field(default=1, metadata=told("How many run the script.", least=1))
    framework: str = field(
        default="", metadata=told("By default custom for one replica, pytorch for several.")
    )
    resources: Mapping[str, Any] = field(
        default_factory=dict,
        metadata=told("Of each replica, as cpu=4 or nvidia.com/gpu=1.", metavar="K=V"),
    )
    returns: str = field(
        default="model",
        metadata=told("What comes back.", metavar="none|address|model[=PATH]|checkpoints[=PATH]"),
    )
    until: str = field(
        default="",
        metadata=told("End it where this holds: 'loss < 0.1'.", metavar="CONDITION"),
    )
    hours: float = field(
        default=0.0,
        metadata=told("End it after so long; reserved where accounts are kept.", least=0),
    )
    team: str = field(
        default="",
        metadata=told("Who pays, where accounts are kept; by default your only team."),
    )
    data: Sequence[str] = field(
        default=(),
        metadata=told("What stays here and may be read, beside what is found.", metavar="PATH"),
    )
    data_wait: float = field(
        default=1.0,
        metadata=told("Wait so long for it, then pause.", metavar="HOURS", least=0),
    )
    whole: bool = field(
        default=False,
        metadata=told(
            "Ask nothing first: send all in one request, and start as soon as it is there."
        ),
    )
    bill: bool = field(default=False, metadata=told("Say what it has cost, once it is over."))
    loads: str = field(
        default="",
        metadata=told("What a hook saw the script open here: models of it travel.", metavar="FILE"),
    )
    root: str = field(
        default="", metadata=told("The project; by default it is found.", metavar="FOLDER")
    )
    env: Sequence[str] = field(
        default=(), metadata=told("A variable that travels.", metavar="NAME[=VALUE]")
    )
    allow_secrets: Sequence[str] = field(
        default=(),
        metadata=told("What there is no secret.", metavar="FILE[:LINE]", name="allow-secret"),
    )
    allow_missing: Sequence[str] = field(
        default=(), metadata=told("An import that need not be found.", metavar="NAME")
    )
    detach: bool = field(default=False, metadata=told("Print the run's id and leave it."))
