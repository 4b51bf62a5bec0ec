"""A machine without room, and an installer that is killed, say nothing about an environment: another try may succeed."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_training.agent.environment_setup import EnvironmentSetup
from airflow_training.agent.loop import Loop
from airflow_training.environments import building
from airflow_training.environments.catalogue import EnvironmentCatalogue
from airflow_training.environments.command import main
from airflow_training.environments.matching import match
from airflow_training.environments.orders import BuiltinSource, EnvironmentOrder
from airflow_training.environments.preparing import EnvironmentBuild, make_once
from tests.environments.records import dist, with_dist
from tests.environments.test_job_environment_e2e import HERE

pytestmark = pytest.mark.e2e

DIGEST = "a" * 64


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("exec dd if=/dev/zero of=/dev/full count=1", "No space left on device"),
        ("kill -9 $$", "ended by signal 9"),
    ],
)
def test_an_installer_without_room_is_no_mistake_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, words: str
):
    uv = tmp_path / "uv"
    uv.write_text(f"#!/bin/sh\n{program}\n")
    uv.chmod(0o755)
    monkeypatch.setattr(building, "find_uv", lambda: str(uv))
    record = with_dist(replace(HERE.record, distributions=[]), dist("tinyone", "1.0"))
    found = match(record, EnvironmentCatalogue(images=[HERE]), frozenset())
    with pytest.raises(OSError, match=words):
        building.prepare(found, tmp_path / "cache")


def test_what_a_failed_build_took_is_given_back(tmp_path: Path):
    def build(each: EnvironmentBuild) -> Mapping[str, Any]:
        each.place.mkdir()
        (each.place / "half").write_bytes(bytes(1 << 20))
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        make_once(tmp_path, DIGEST, build)
    assert not (tmp_path / DIGEST).exists()


def test_an_interpreter_that_fails_may_work_at_the_next_try(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho cannot allocate memory >&2\nexit 1\n")
    python.chmod(0o755)
    source = BuiltinSource(package=str(tmp_path), paths=[], python=str(python))
    order = EnvironmentOrder(name="builtin", version="1", digest=DIGEST, source=source)
    document = {"environment": order.to_json(), "cache": str(tmp_path / "cache")}
    assert main(json.dumps(document), lambda _: pytest.fail("no storage is asked")) == 75
    assert "cannot allocate memory" in json.loads(capsys.readouterr().out)["problem"]


def test_a_cache_that_cannot_be_written_is_told_by_the_agent(tmp_path: Path):
    """The agent goes on after what it cannot hold: it would end without a word else."""
    program = tmp_path / "program.py"  # it answers as one does whose cache is removed right after
    program.write_text(
        f"import json; print(json.dumps({{'python': 'p', 'digest': '{DIGEST}', 'cached': True}}))"
    )
    environment = {
        "title": "tiny@1",
        "program": str(program),
        "interpreter": sys.executable,
        "cache": str(tmp_path / "gone"),
        "order": {},
    }
    loop = Loop((), signalled=lambda _: None)
    setup = EnvironmentSetup(environment, loop=loop, variables={}, log=2, say=print)
    answers: list[tuple[str, str]] = []
    setup.start(lambda reason, message: answers.append((reason, message)))
    while not answers:
        loop.turn()
    loop.close()
    assert answers[0][0] == "EnvironmentFailed"
    assert "gone" in answers[0][1]
