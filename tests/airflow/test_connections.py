"""A cluster is reached as an Airflow connection says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_training.errors import RuntimeUnavailable
from airflow_training.triggers.access import connect


def kubeconfig(server: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "one",
        "clusters": [{"name": "one", "cluster": {"server": server}}],
        "users": [{"name": "one", "user": {"token": "secret"}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
    }  # fmt: skip


@pytest.fixture(autouse=True)
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give this machine a kubeconfig of its own, read at import by the client."""
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig("http://of-this-machine:1")))
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setattr(
        "kubernetes_asyncio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path)
    )


def define(monkeypatch: pytest.MonkeyPatch, name: str, **extra: Any) -> None:
    value = json.dumps({"conn_type": "kubernetes", "extra": extra})
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", value)


async def host_of(connection: str) -> str:
    client = await connect(connection)
    await client.close()
    return str(client.configuration.host)


async def test_a_connection_holds_a_kubeconfig_or_its_path(tmp_path, monkeypatch):
    there = tmp_path / "there"
    there.write_text(yaml.safe_dump(kubeconfig("http://by-path:1")))
    define(monkeypatch, "by_path", kube_config_path=str(there))
    define(monkeypatch, "by_text", kube_config=json.dumps(kubeconfig("http://by-text:1")))
    assert await host_of("by_path") == "http://by-path:1"
    assert await host_of("by_text") == "http://by-text:1"


async def test_no_name_means_kubernetes_default(monkeypatch):
    assert await host_of("") == "http://of-this-machine:1"
    define(
        monkeypatch, "kubernetes_default", kube_config=json.dumps(kubeconfig("http://default:1"))
    )
    assert await host_of("") == "http://default:1"


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        pytest.param(None, "no_such", id="not-there"),
        pytest.param({"kube_config_path": "/no/such/file"}, "no_such", id="no-file"),
        pytest.param({"kube_config": "{"}, "no_such", id="broken"),
        pytest.param({"in_cluster": True, "kube_config": "{}"}, "mutually exclusive", id="both"),
        pytest.param({"in_cluster": True}, "no_such", id="not-in-a-cluster"),
    ],
)
async def test_a_connection_that_leads_nowhere_is_one_clear_error(monkeypatch, extra, told):
    if extra is not None:
        define(monkeypatch, "no_such", **extra)
    with pytest.raises(RuntimeUnavailable, match=told):
        await connect("no_such")
