"""The table of what another try can do is the one that the code decides by."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_training.control import reasons
from airflow_training.control.failures import CANNOT_START_CODES
from airflow_training.runtimes.kubernetes.reasons import REASONS
from airflow_training.runtimes.kubernetes.refusals import REFUSALS
from airflow_training.runtimes.registry import every_reason

PAGE = (Path(__file__).parents[2] / "docs" / "job.md").read_text(encoding="utf-8")


def table() -> dict[tuple[str, str], list[str]]:
    """Return (answer, what says so) -> reasons and words."""
    _, _, rest = PAGE.partition("| another try | what says so |")
    rows = rest.partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {(answer, who): said.strip("`").split("`, `") for answer, who, said in cells}


TABLE = table()


@pytest.mark.parametrize("answer", ["never", "perhaps", "later"])
def test_reasons(answer):
    known = sorted(name for name, facts in every_reason().items() if facts.another_try == answer)
    assert TABLE.get((answer, "the reason"), []) == known


@pytest.mark.parametrize("answer", ["never", "perhaps", "later"])
def test_answers_of_the_server(answer):
    assert TABLE[answer, "the API server's answer"] == sorted(
        {row.reason for row in REFUSALS if row.answer == answer}
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (answer, words)
        for (answer, who), said in TABLE.items()
        if who == "the registry's words"
        for words in said
    ],
)
def test_words_of_registries(answer, words):
    assert REASONS["ErrImagePull"].answer(f"failed to pull: {words}") == answer


def test_exit_codes():
    assert {int(code) for code in TABLE["never", "the exit code"]} == CANNOT_START_CODES


def test_what_runtimes_wait_for():
    said = TABLE["later", "the runtime"]
    assert {reasons.WAITING_FOR_OLD_INSTANCE, reasons.CREATE_REFUSED} <= {*said}


def test_nothing_else_is_in_it():
    assert [*dict.fromkeys(answer for answer, _ in TABLE)] == ["never", "perhaps", "later"]
    assert {who for _, who in TABLE} == {
        "the reason", "the registry's words", "the API server's answer", "the exit code", "the runtime",
    }  # fmt: skip
