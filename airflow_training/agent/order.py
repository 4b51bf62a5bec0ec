"""What an agent is ordered to do for one attempt: one record, with a version, and its JSON.

It comes as a file on this machine and as an environment variable in a pod. Python 3.8 and newer.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start, `dataclasses` 9
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from dataclasses import dataclass, replace
    from typing import Any, TypedDict

    class AgentCommand(TypedDict, total=False):
        """What belongs to a word to an agent: `stop`, `finish`, `await`, `stay`, `restart` or `leave`."""

        grace_seconds: float
        dump_stacks: bool
        seconds: float
        number: int
        attempt: str
        next: str
        env: Mapping[str, str]
        command: Sequence[str]
        deadline_seconds: float

else:

    def dataclass(**_):
        """Make a class of fields with defaults; type checkers see the standard library's."""

        def decorate(cls):
            defaults = {name: getattr(cls, name) for name in cls.__annotations__}

            def __init__(self, **values):  # noqa: N807  # it becomes the method
                unknown = sorted(set(values) - set(defaults))
                if unknown:
                    raise TypeError(f"{cls.__name__} has no field {unknown[0]!r}")
                self.__dict__.update({**defaults, **values})

            cls.__init__ = __init__
            return cls

        return decorate

    def replace(order, **changes):
        """Return it with other values in some fields."""
        return type(order)(**{**vars(order), **changes})


__all__ = ["ORDER_VARIABLE", "TERMINATION_LOG", "VERSION", "Order", "OrderError", "replace"]

VERSION = 4
"""Version 0 had no field `version`, versions before 2 none of predictions, before 3 none of code, before 4 none of
`environment`; the others mean the same."""
ORDER_VARIABLE = "TRAINING_AGENT_ORDER"
TERMINATION_LOG = "/dev/termination-log"
_NONE: Mapping[str, Any] = {}


class OrderError(Exception):
    """This agent cannot follow an order; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """One attempt. What a field does not say is left out, or is as the container has it."""

    version: int = VERSION

    # which one it is
    uid: str = ""
    generation: int = 0
    role: str = ""
    index: int = 0
    epoch: int = 0
    job_attempt: int = 0
    attempt: int = 0
    address: str = ""
    resources: Mapping[str, Any] = _NONE
    """As the job asks for them; whoever observes the attempt reads them."""

    # before its command starts
    held: bool = False
    """It starts when it is released."""
    release_file: str = ""
    answers_dir: str = ""
    """Where the parts of a release are that is too large for one file."""
    addresses_file: str = ""
    files: Mapping[str, Mapping[str, Any]] = _NONE
    """Path -> `content`, or the `source` to copy; and whether it is `executable`."""
    live_files: Mapping[str, Mapping[str, Any]] = _NONE
    """As `files`, written after the release."""
    readiness: Mapping[str, Any] | None = None
    """What has to be there, see `control.hardware`."""
    code: Mapping[str, Any] | None = None
    """Tree that is laid out in `code_dir`: `uri`, `digest`, the `packages` to install and the `python` that does, or the
    `archive` that has them; see `code_setup`."""
    code_dir: str = ""
    environment: Mapping[str, Any] | None = None
    """Whose Python runs the command: its `title` and the `folder` where it is, or `program`, `interpreter`, `cache` and
    `order` to have it ready with; see `environment_setup`."""
    watch: str = ""
    """Folder whose content is put back, and then committed."""
    ports: Mapping[str, int] = _NONE
    """Have to be free; by name."""
    memory_bytes: int | None = None

    # the command
    command: Sequence[str] = ()
    """In a pod it stands on the agent's command line, where the kubelet replaces variables."""
    container: Sequence[str] = ()
    """Words before it, and before every other command of the instance, that bring it into a container. Agents that do
    not know it refuse an order that has some."""
    env: Mapping[str, str] = _NONE
    working_dir: str = ""

    # while it runs
    progress_file: str = ""
    progress_url: str = ""
    progress_uri: str = ""
    readiness_probe: Mapping[str, Any] | None = None
    stall: Mapping[str, Any] | None = None
    """`checkpoint.progress` of the job, where hangs are looked for."""
    predictions_dir: str = ""
    """Complete files in it are brought to `predictions_uri`."""
    predictions_uri: str = ""
    orders_file: str = ""
    """Where a pod is told what comes next; beside it, in `pod_attempts.FILES`, which files to replace."""

    # its end
    deadline_seconds: float | None = None
    grace_seconds: float = 0.0
    output_dir: str = ""
    output_uri: str = ""
    output_continuous: bool = False
    """Bring away what is whole of it while the command runs."""
    termination_log: str = TERMINATION_LOG
    in_place_seconds: float = 0.0
    """How long to wait for another attempt in its place."""

    def document(self) -> dict[str, Any]:
        """The order as JSON has it, with every field; without `container` where there is none."""
        found = dict(vars(self))
        if not self.container:  # agents that are there from before an upgrade do not know it
            del found["container"]
        return found

    def text(self) -> str:
        """The order as short JSON: defaults are left out, but never the version."""
        default = vars(Order())
        said = {name: value for name, value in vars(self).items() if value != default[name]}
        return json.dumps({"version": self.version, **said})

    @staticmethod
    def of_document(document: Mapping[str, Any]) -> Order:
        """Return the order of a document; raises OrderError where it is not understood."""
        version = document.get("version", 0)
        if version not in range(VERSION + 1):
            raise OrderError(
                f"the order has version {version!r}; this agent understands versions up to {VERSION}"
            )
        unknown = sorted(set(document) - set(vars(Order())))
        if unknown and version:  # what version 0 had besides was never read
            raise OrderError(f"an order of version {version} has no field {unknown[0]!r}")
        return Order.seen(document)

    @staticmethod
    def seen(document: Mapping[str, Any]) -> Order:
        """The part of an order that a mere reader of an attempt needs, from any version of it."""
        known = {name: document[name] for name in vars(Order()) if name in document}
        return Order(**{"version": 0, **known})

    @staticmethod
    def of_text(text: str) -> Order:
        """Return the order of a JSON text; raises OrderError."""
        try:
            document = json.loads(text)
        except ValueError as error:
            raise OrderError(f"the order is no JSON: {error}") from error
        if not isinstance(document, dict):
            raise OrderError(f"the order is no JSON object: {text[:100]}")
        return Order.of_document(document)
