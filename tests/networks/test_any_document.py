"""Whatever stands in a document, the answer is a network or its mistakes with their lines, never a crash."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from airflow_training.documents.loading import dump_yaml, load_documents
from airflow_training.networks.catalogue import layer_types
from airflow_training.networks.diagram import mermaid_text
from airflow_training.networks.generator import module_text
from airflow_training.networks.reading import parse_network
from tests.networks.generated import FIXTURES

SMALL = ("gpt-tiny", "lenet", "lstm-ranker", "sequence", "transformer", "two-tower", "u-net")
DOCUMENTS = {
    name: load_documents((FIXTURES / f"{name}.yaml").read_text(encoding="utf-8"))[0].data
    for name in SMALL
}
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 70)
    | st.sampled_from([2**31, 10**30, 0.5, -1.5, 1e300])
    | st.sampled_from(["", "x", "input", "loss", "same", "None", "logits", *layer_types()])
    | st.lists(st.integers(-2, 9), max_size=4)
    | st.lists(st.sampled_from(["train", "test", "logits", "x"]), max_size=3)
    | st.dictionaries(st.sampled_from(["shape", "dim", "a"]), st.integers(-2, 5), max_size=2)
)


def _places(data: Any) -> list[tuple[Any, Any]]:
    """Return every place of a document: what holds it, and its key there."""
    pairs = [*data.items()] if isinstance(data, dict) else [*enumerate(data)]
    inside = [value for _, value in pairs if isinstance(value, dict | list)]
    return [(data, key) for key, _ in pairs] + [place for each in inside for place in _places(each)]


@given(st.sampled_from(SMALL), st.data())
def test_a_changed_document_is_answered(name: str, data: st.DataObject):
    document = copy.deepcopy(DOCUMENTS[name])
    for _ in range(data.draw(st.integers(1, 3))):
        places = _places(document["spec"]["layers"]) if document.get("spec") else []
        if not places:
            break
        holder, key = data.draw(st.sampled_from(places))
        if data.draw(st.booleans()):
            del holder[key]
        else:
            holder[key] = data.draw(VALUES)
    network, problems = parse_network(dump_yaml(document))
    assert (network is None) == bool(problems)
    assert all(problem.line and problem.message for problem in problems)
    if network is not None:
        compile(module_text(network), "net.py", "exec")
        assert mermaid_text(network)
        again, wrong = parse_network(network.to_yaml())
        assert wrong == []
        assert again is not None
        assert module_text(again) == module_text(network)
