"""Where the processes of an attempt stand, written into its log before they are ended. Python 3.8 and newer."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_training.agent.loop import Loop
    from airflow_training.agent.process_tree import ProcessTree

__all__ = ["StackDump"]


class StackDump:
    """Dumps stacks in a child, so that orders and the end of the command still count meanwhile."""

    def __init__(
        self,
        *,
        loop: Loop,
        tree: ProcessTree,
        environment: Mapping[str, str],
        log: int,
        say: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._tree = tree
        self._environment = environment
        self._log = log
        self._say = say
        self.runs = False

    def begin(self, then: Callable[[], None]) -> None:
        """Call `then` once all is dumped, or after `stacks.DUMP_SECONDS`; one that runs goes on alone."""
        if self.runs:
            return
        from airflow_training.agent import stacks

        processes = self._tree.processes()
        path = self._environment.get("PATH", os.defpath)

        def dump() -> None:
            try:
                stacks.dump_stacks(processes, log=self._log, search_path=path)
            except Exception as error:  # noqa: BLE001  # whatever it is, the tree has to be ended
                self._say(f"cannot dump stacks: {error!r}")

        def dumped(_: int) -> None:
            self.runs = False
            self._loop.cancel("dump")
            then()

        self.runs = True
        self._loop.fork(dump, ended=dumped)
        self._loop.after(stacks.DUMP_SECONDS, "dump", then)
