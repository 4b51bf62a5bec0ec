"""Networks over the API: checked, saved, listed, each with what a page shows of them."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_training.state.store import open_store
from tests.state.test_networks import a_network

ADMIN = {"user": "admin"}


def put(client: Any, name: str, text: str, *, user: str = "admin", **headers: str) -> Any:
    return client.put(
        f"/api/networks/{name}", json={"document": text}, headers={"user": user, **headers}
    )


def check(client: Any, text: str) -> Any:
    answer = client.post("/api/networks/check", json={"document": text}, headers=ADMIN)
    assert answer.status_code == 200
    return answer.json()


def test_saved_and_read(client):
    assert client.get("/api/networks", headers=ADMIN).json() == {"networks": []}
    first = put(client, "dense", a_network()).json()
    assert (first["version"], first["user"]) == (1, "admin")
    second = put(client, "dense", a_network(out=4)).json()
    assert second["version"] == 2
    viewer = {"user": "viewer"}
    assert client.get("/api/networks", headers=viewer).json() == {"networks": [second]}
    assert client.get("/api/networks/dense", headers=viewer).json() == {"networks": [second, first]}
    assert client.get("/api/networks/dense/1", headers=viewer).json() == {
        **first,
        "document": a_network(),
    }


def test_what_a_document_says(client):
    assert check(client, a_network())["problems"] == []
    assert check(client, a_network())["network"] == {
        "name": "dense",
        "layers": [
            {
                "name": "x", "field": "spec.layers[0]", "type": "Input", "kind": "input",
                "inputs": {"train": [], "test": []}, "takes": [], "gives": [2], "parameters": 0,
                "flops": 0, "nets": ["train", "test"],
            },
            {
                "name": "out", "field": "spec.layers[1]", "type": "Linear", "kind": "layer",
                "inputs": {"train": ["x"], "test": ["x"]}, "takes": ["x"], "gives": [3], "parameters": 9,
                "flops": 12, "nets": ["train", "test"],
            },
        ],
        "parameters": 9,
        "flops": 12,
    }  # fmt: skip


def test_mistakes_with_their_lines(client):
    told = check(client, a_network().replace("Linear", "Linea"))
    assert told["network"] is None
    (problem,) = told["problems"]
    assert (problem["field"], problem["line"]) == ("spec.layers[1].type", 8)
    assert problem["hint"] == "did you mean 'Linear'?"


@pytest.mark.parametrize(
    ("name", "text", "code", "said"),
    [
        ("dense", a_network().replace("Linear", "Linea"), 422, "did you mean"),
        ("other", a_network(), 422, "is saved as 'other'"),
        ("dense", "", 422, "holds 0 documents"),
        ("dense", "- a", 422, "must be a mapping"),
        ("dense", "metadata: 7", 422, "metadata"),
        ("dense", a_network() + "#" * 1_048_576, 422, "1048576"),
        ("dense", a_network() + "#" * 3_000_000, 413, "bytes"),
    ],
)
def test_what_is_not_saved(client, name: str, text: str, code: int, said: str):
    answer = put(client, name, text)
    assert answer.status_code == code
    assert said in str(answer.json()["detail"])
    assert open_store().networks.newest() == []


def test_who_may_not_and_what_is_not_there(client):
    put(client, "dense", a_network())
    open_store().networks.save(a_network("anns"), user="ann")
    answer = put(client, "anns", a_network("anns", out=7))
    assert answer.status_code == 403
    assert "a network of ann" in answer.json()["detail"]
    assert put(client, "dense", a_network(out=7), user="viewer").status_code == 403
    cross = {"sec-fetch-site": "cross-site"}
    assert put(client, "dense", a_network(out=7), **cross).status_code == 403
    assert (
        put(client, "dense", a_network(out=7), **{"content-type": "text/plain"}).status_code == 415
    )
    for path in ("dens", "dense/2", "dens/1", "dense/99999999999", "dense/x"):
        assert client.get(f"/api/networks/{path}", headers=ADMIN).status_code in (404, 422)
    assert [each.title for each in open_store().networks.newest()] == ["anns@1", "dense@1"]
