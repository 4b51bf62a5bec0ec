"""A cluster is reached as an Airflow connection says."""

from __future__ import annotations

import datetime
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from airflow_training.errors import InputError, RuntimeUnavailable
from airflow_training.runtimes.kubernetes.api import Api
from airflow_training.runtimes.kubernetes.kinds import NODES
from airflow_training.supervise.runtimes import open_runtime
from airflow_training.triggers.access import CONNECTORS, connect, read_login


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
    ("variable", "host"),
    [
        pytest.param(True, "http://of-this-machine:1", id="a-kubeconfig-that-was-named"),
        pytest.param(False, "https://of-this-pod", id="the-cluster-of-the-pod"),
    ],
)
async def test_no_connection_means_the_cluster_at_hand(monkeypatch, variable, host):
    def in_a_pod(client_configuration: Any) -> None:
        client_configuration.host = "https://of-this-pod"

    monkeypatch.setattr("kubernetes_asyncio.config.load_incluster_config", in_a_pod)
    if not variable:
        monkeypatch.delenv("KUBECONFIG")
    assert await host_of("") == host


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


@pytest.mark.parametrize(
    ("key", "value", "attribute", "expected"),
    [
        ("proxy-url", "http://proxy:3128", "proxy", "http://proxy:3128"),
        ("tls-server-name", "kube", "tls_server_name", "kube"),
        ("insecure-skip-tls-verify", True, "verify_ssl", False),
    ],
)
async def test_what_a_kubeconfig_says_of_the_way_counts(
    monkeypatch, key, value, attribute, expected
):
    config = kubeconfig("https://there:1")
    config["clusters"][0]["cluster"][key] = value
    define(monkeypatch, "special", kube_config=json.dumps(config))
    client = await connect("special")
    await client.close()
    assert getattr(client.configuration, attribute) == expected


# TLS ---------------------------------------------------------------------------------------------
@pytest.fixture
async def https(tmp_path: Path) -> AsyncIterator[str]:
    """Give the address of a server whose certificate nobody has signed but itself."""
    pem = tmp_path / "server.pem"
    pem.write_bytes(self_signed("localhost"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    app = web.Application()
    app.router.add_get("/api/v1/nodes", no_nodes)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield f"https://localhost:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def no_nodes(_: web.Request) -> web.Response:
    return web.json_response({"items": [], "metadata": {}})


def self_signed(host: str) -> bytes:
    """Return a key and its certificate, which is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    now = datetime.datetime.now(tz=datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private + made.public_bytes(serialization.Encoding.PEM)


async def nodes_of(connection: str) -> int:
    """Return how many nodes the cluster of a connection has, as our own client asks it."""
    found, _ = await Api(connect, connection, budget_seconds=0.5).list(NODES)
    return len(found)


async def test_a_certificate_that_nobody_knows_is_refused(monkeypatch, https):
    define(monkeypatch, "strict", kube_config=json.dumps(kubeconfig(https)))
    with pytest.raises(RuntimeUnavailable, match="certificate verify failed"):
        await nodes_of("strict")


@pytest.mark.parametrize("field", ["disable_verify_ssl", "extra__kubernetes__disable_verify_ssl"])
@pytest.mark.parametrize("value", [True, "true"])
async def test_a_connection_may_disable_the_check(monkeypatch, https, field, value):
    define(monkeypatch, "lenient", kube_config=json.dumps(kubeconfig(https)), **{field: value})
    assert await nodes_of("lenient") == 0


async def test_the_check_is_disabled_where_the_connection_names_no_cluster(
    monkeypatch, https, tmp_path
):
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig(https)))
    define(monkeypatch, "kubernetes_default", disable_verify_ssl=True)
    assert await nodes_of("") == 0


async def test_an_authority_of_the_kubeconfig_is_trusted(monkeypatch, https, tmp_path):
    config = kubeconfig(https)
    config["clusters"][0]["cluster"]["certificate-authority"] = str(tmp_path / "server.pem")
    define(monkeypatch, "trusting", kube_config=json.dumps(config))
    assert await nodes_of("trusting") == 0


async def test_a_connection_to_a_login_node_is_read_with_its_extras(monkeypatch):
    value = {"conn_type": "ssh", "host": "login1", "login": "ada", "extra": {"folder": "/shared"}}
    monkeypatch.setenv("AIRFLOW_CONN_HPC", json.dumps(value))
    assert await read_login("hpc") == {
        "host": "login1",
        "user": "ada",
        "port": None,
        "extra": {"folder": "/shared"},
    }
    with pytest.raises(RuntimeUnavailable, match="nowhere"):
        await read_login("nowhere")


def test_a_cluster_that_is_logged_in_to_needs_no_rights_of_this_machine(monkeypatch):
    monkeypatch.setenv("AIRFLOW__TRAINING__ALLOW_LOCAL", "False")
    with pytest.raises(InputError, match="allow_local"):
        open_runtime("slurm", connect=CONNECTORS, in_airflow=True)
    opened = open_runtime("slurm", connection="hpc", connect=CONNECTORS, in_airflow=True)
    assert not opened.capabilities.shares_files
