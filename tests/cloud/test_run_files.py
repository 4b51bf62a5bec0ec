"""What runs wrote is told as whole only where nobody writes it."""

from __future__ import annotations

import os

from airflow_training.cloud.service import run_files
from airflow_training.cloud.service.run_files import RunFiles


def test_one_that_is_opened_for_writing_after_the_first_look_is_not_whole(tmp_path, monkeypatch):
    for name in ("a.pt", "b.pt"):
        (tmp_path / name).write_text("half")
    looks = iter([set(), {os.path.realpath(tmp_path / "a.pt")}])
    monkeypatch.setattr(run_files, "_written_below", lambda _: next(looks))
    rows = RunFiles().rows(tmp_path, ["a.pt", "b.pt"], whole=True)
    assert [each["path"] for each in rows] == ["b.pt"]


def test_at_the_end_of_a_run_all_of_it_counts(tmp_path):
    with (tmp_path / "a.pt").open("w") as file:
        file.write("as it is")
        file.flush()
        rows = RunFiles().rows(tmp_path, ["a.pt", "gone.pt"], whole=False)
    assert [(each["path"], each["size"]) for each in rows] == [("a.pt", 8)]
