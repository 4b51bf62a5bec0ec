"""No field of a source is forgotten, whatever a translator does."""

from __future__ import annotations

from airflow_training.documents.loading import load_documents
from airflow_training.interchange.accounts import FieldAccounts

TEXT = """\
spec:
  size: 3
  pods:
    image: a
    new: [1, {deep: 2}]
  none: null
"""


def accounts() -> FieldAccounts:
    (loaded,) = load_documents(TEXT)
    return FieldAccounts(loaded.data, loaded.lines)


def told(source: FieldAccounts) -> dict[str, tuple[str, str, int | None]]:
    return {each.field: (each.fate, each.to, each.line) for each in source.settle()}


def test_what_nobody_speaks_of_is_refused_with_its_line():
    assert told(accounts()) == {
        "spec.size": ("refused", "", 2),
        "spec.pods.image": ("refused", "", 4),
        "spec.pods.new[0]": ("refused", "", 5),
        "spec.pods.new[1].deep": ("refused", "", 5),
        "spec.none": ("dropped", "", 6),
    }


def test_a_look_at_a_field_is_no_statement_about_it():
    source = accounts()
    assert source.root["spec"]["size"].whole(0) == 3
    assert told(source)["spec.size"][0] == "refused"


def test_a_statement_holds_below_until_a_deeper_one():
    source = accounts()
    pods = source.root["spec"]["pods"]
    pods["image"].refuse("another one")
    pods.keep(("spec", "template"))
    found = told(source)
    assert found["spec.pods.image"] == ("refused", "", 4)
    assert found["spec.pods.new[1].deep"] == ("kept", "spec.template.new[1].deep", 5)


def test_a_default_that_changes_something_is_told_too():
    source = accounts()
    source.root["spec"]["limit"].settle(
        "translated", 6, to=("spec", "most"), why="counted together"
    )
    last = source.settle()[-1]
    assert (last.field, last.value, last.line, last.default) == ("spec.limit", 6, None, True)


def test_a_value_of_another_type_is_a_mistake_with_its_line():
    source = accounts()
    assert source.root["spec"]["pods"].whole(1) == 1
    assert [(each.field, each.line) for each in source.problems] == [("spec.pods", 3)]


def test_the_origin_of_our_field_is_as_near_as_possible():
    source = accounts()
    source.root["spec"]["pods"].keep(("spec", "template"))
    assert source.origin_of(("spec", "template", "image")) == ("spec", "pods", "image")
    assert source.origin_of(("spec", "roles", 0)) == ()
