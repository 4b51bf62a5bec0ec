"""A cluster in a thread of its own, for tests in the same process; and the door to one elsewhere."""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import yaml

from tests.kubernetes.emulator.control import Control
from tests.kubernetes.emulator.kubelet import AT_ONCE, Pace
from tests.kubernetes.emulator.nodes import Node
from tests.kubernetes.emulator.parts import ADMIN_TOKEN, KubeletKind, Parts

CALL_SECONDS = 60.0
DEFAULT_NODES = (Node(name="node-1"), Node(name="node-2"), Node(name="node-3"))


class Cluster:
    """A running cluster: `with Cluster() as cluster:` or `async with`.

    `kubelet`: "scripted" (instant, no processes) or "processes" (containers are processes here).
    `installed`: of which of "volcano", "coscheduling", "kueue" the cluster has the kinds. `pace`: `AS_REAL_ONES`
    lets processes start and end as slowly as real pods. `offline`: no registry answers.
    """

    def __init__(
        self,
        *,
        kubelet: KubeletKind = "scripted",
        nodes: Sequence[Node] = DEFAULT_NODES,
        installed: Sequence[str] = (),
        port: int = 0,
        bookmark_seconds: float = 60.0,
        pace: Pace = AT_ONCE,
        offline: bool = False,
    ) -> None:
        self._options: dict[str, Any] = {
            "kubelet": kubelet, "installed": tuple(installed), "port": port,
            "bookmark_seconds": bookmark_seconds, "pace": pace, "offline": offline,
        }  # fmt: skip
        self._nodes = nodes
        self._folder = tempfile.TemporaryDirectory(prefix="emulator-", ignore_cleanup_errors=True)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="emulator", daemon=True)
        self._loop.set_exception_handler(self._on_mistake)
        self._mistakes: list[dict[str, Any]] = []
        self._parts: Parts | None = None

    def _on_mistake(self, _loop: object, context: dict[str, Any]) -> None:
        self._mistakes.append(context)

    def start(self) -> Cluster:
        self._thread.start()

        async def begin() -> Parts:
            parts = Parts(folder=Path(self._folder.name), **self._options)
            await parts.start(self._nodes)
            return parts

        self._parts = self._wait(begin())
        return self

    def stop(self) -> None:
        """End the server and every process of the cluster.

        Raises what went wrong inside the emulator: a test must not pass on top of that.
        """
        if self._parts is not None:
            self._wait(self._parts.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._folder.cleanup()
        for context in self._mistakes:
            text = f"the emulator failed: {context.get('message')}"
            raise RuntimeError(text) from context.get("exception")

    def _wait(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CALL_SECONDS)

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Cluster:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.stop)

    @property
    def parts(self) -> Parts:
        """The inside. Only for what `control` cannot do, and only on the cluster's own loop."""
        if self._parts is None:
            raise RuntimeError("the cluster was not started")
        return self._parts

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.parts.server.port}"

    @property
    def control(self) -> Control:
        """What tests do to the cluster; every call runs on the cluster's loop and is over then."""
        parts = self.parts

        def call(name: str, /, *args: Any, **values: Any) -> Any:
            async def run() -> Any:
                result = getattr(parts.control, name)(*args, **values)
                return await result if isinstance(result, Awaitable) else result

            return self._wait(run())

        return cast(Control, _Door(call))

    def kubeconfig(self, *, token: str = ADMIN_TOKEN, namespace: str = "default") -> dict[str, Any]:
        return kubeconfig(self.url, token=token, namespace=namespace)

    def write_kubeconfig(
        self, path: Path, *, token: str = ADMIN_TOKEN, namespace: str = "default"
    ) -> Path:
        path.write_text(yaml.safe_dump(self.kubeconfig(token=token, namespace=namespace)))
        return path


class _Door:
    """Turns attribute calls into calls elsewhere."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **values: self._call(name, *args, **values)


def remote_control(url: str) -> Control:
    """Return the control of a cluster that runs in another process; arguments by name only."""

    def call(name: str, /, **values: Any) -> Any:
        request = urllib.request.Request(
            f"{url}/_faults/{name}", data=json.dumps(values).encode(), method="POST",
            headers={"Content-Type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=CALL_SECONDS) as answer:
            return json.load(answer)["result"]

    return cast(Control, _Door(call))


def kubeconfig(url: str, *, token: str, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "emulator",
        "clusters": [{"name": "emulator", "cluster": {"server": url}}],
        "users": [{"name": "emulator", "user": {"token": token}}],
        "contexts": [
            {
                "name": "emulator",
                "context": {"cluster": "emulator", "user": "emulator", "namespace": namespace},
            }
        ],
    }  # fmt: skip
