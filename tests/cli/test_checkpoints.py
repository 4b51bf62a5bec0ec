"""`checkpoints`: what is there, whether it is whole, what one holds, and what of it others can read."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_training.checkpoints.group import Group
from tests.checkpoints.conftest import s3_endpoint, s3_root
from tests.checkpoints.groups import open_group, train, train_together
from tests.cli.conftest import job_file

__all__ = ["s3_endpoint", "s3_root"]


def listed(answer: Any) -> list[tuple[int, str]]:
    return [(each["step"], each["state"]) for each in answer.json["checkpoints"]]


def manifest_of(folder: Path, step: int) -> Path:
    return next(folder.glob(f"manifests/{step:012d}-*.json"))


def flip(path: Path) -> None:
    """Damage one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


@pytest.fixture
def trained(home: Path) -> Path:
    """Return the root of a training of two ranks that saved three steps."""
    train_together(open_group("ckpt", 2, keep=10), 10, 20, 30)
    return Path("ckpt")


def test_every_save_is_listed_with_what_it_is(trained, typed):
    flip(manifest_of(trained, 20))
    (left,) = [Group.open(str(trained), keep=10)]
    left.write(40, {"w": b"never committed"}, document={})
    answer = typed("checkpoints", "list", "./ckpt", "-o", "json")
    assert answer.code == 0
    assert listed(answer) == [(40, "incomplete"), (30, "committed"), (20, "bad"), (10, "committed")]
    first = answer.json["checkpoints"][1]
    assert first.keys() == {
        "root", "step", "generation", "state", "bytes", "at", "digest", "reason",
    }  # fmt: skip
    assert (first["root"], first["generation"]) == ("./ckpt", 1)
    table = typed("checkpoints", "list", "./ckpt")
    assert table.stdout.splitlines()[0].split() == [
        "WHERE", "STEP", "GENERATION", "STATE", "SIZE", "AGE", "WHY",
    ]  # fmt: skip
    assert "checkpoints verify ./ckpt" in table.stderr


def test_verify_reads_every_byte_and_exits_1_when_one_is_bad(trained, typed):
    whole = typed("checkpoints", "verify", "./ckpt", "-o", "json")
    assert (whole.code, listed(whole)) == (
        0,
        [(30, "committed"), (20, "committed"), (10, "committed")],
    )
    held = json.loads(manifest_of(trained, 20).read_text())["ranks"][1]["shards"][-1]["key"]
    flip(trained / held)
    assert typed("checkpoints", "list", "./ckpt", "-o", "json").code == 0, "a list reads no state"
    answer = typed("checkpoints", "verify", "./ckpt", "-o", "json")
    assert answer.code == 1
    assert (20, "bad") in listed(answer)
    assert "bad" in answer.stderr
    (bad,) = [each for each in answer.json["checkpoints"] if each["state"] == "bad"]
    assert held in bad["reason"]
    assert typed("checkpoints", "verify", "./ckpt", "--step", "20").code == 1
    assert typed("checkpoints", "verify", "./ckpt", "--step", "30").code == 0


def test_a_damaged_manifest_is_bad_for_its_step_too(trained, typed):
    flip(manifest_of(trained, 30))
    answer = typed("checkpoints", "verify", "./ckpt", "--step", "30", "-o", "json")
    assert (answer.code, listed(answer)) == (1, [(30, "bad")])


def test_a_step_that_is_not_there_is_bad_input(trained, typed):
    for verb in ("verify", "show"):
        answer = typed("checkpoints", verb, "./ckpt", "--step", "25")
        assert (answer.code, answer.stdout) == (2, "")
        assert "no checkpoint of step 25" in answer.stderr
        assert "allowed: 10, 20, 30" in answer.stderr


def test_one_checkpoint_is_shown_with_its_ranks_and_what_it_follows(trained, typed):
    newest = typed("checkpoints", "show", "./ckpt", "-o", "json").json
    assert (newest["step"], newest["world"], newest["cursor"]) == (30, 2, {"sample": 240})
    assert [each["step"] for each in newest["chain"]] == [20, 10]
    assert newest["parent"] == newest["chain"][0]["digest"]
    assert [each["rank"] for each in newest["ranks"]] == [0, 1]
    assert all(shard["bytes"] for rank in newest["ranks"] for shard in rank["shards"])
    older = typed("checkpoints", "show", "./ckpt", "--step", "10")
    assert "follows steps none" in older.stdout


def test_prune_keeps_the_newest_and_never_fewer_than_two(trained, typed):
    told = typed("checkpoints", "prune", "./ckpt", "--keep", "1", "--dry-run", "-o", "json").json
    assert [each["steps"] for each in told["pruned"]] == [[10]]
    assert len(listed(typed("checkpoints", "list", "./ckpt", "-o", "json"))) == 3
    done = typed("checkpoints", "prune", "./ckpt", "--keep", "1", "-o", "json").json
    assert done == {**told, "dry_run": False}
    kept = typed("checkpoints", "verify", "./ckpt", "-o", "json")
    assert (kept.code, listed(kept)) == (0, [(30, "committed"), (20, "committed")])


def test_prune_counts_only_what_is_whole(trained, typed):
    """Or the last good one would go for two that cannot be restored."""
    for step in (20, 30):
        for rank in json.loads(manifest_of(trained, step).read_text())["ranks"]:
            for shard in rank["shards"]:
                path = trained / shard["key"]
                if f"-{step:012d}-" in shard["key"]:
                    flip(path)
    typed("checkpoints", "prune", "./ckpt", "--keep", "2")
    assert (10, "committed") in listed(typed("checkpoints", "list", "./ckpt", "-o", "json"))


def test_what_lies_in_an_object_store_is_found_by_its_address(home, s3_root, typed):
    train(Group.open(f"{s3_root}/0"), 10, 20)
    answer = typed("checkpoints", "verify", s3_root, "-o", "json")
    assert (answer.code, listed(answer)) == (0, [(20, "committed"), (10, "committed")])
    assert {each["root"] for each in answer.json["checkpoints"]} == {f"{s3_root}/0"}


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("where", "code", "said"),
    [
        pytest.param("s3://bucket/there", 1, "s3://bucket/there", id="no-answer"),
        pytest.param("nowhere://bucket", 1, "nowhere", id="no-driver"),
        pytest.param("tuesday", 2, "no run is called 'tuesday'", id="no-run"),
    ],
)
def test_what_cannot_be_reached_is_said_in_one_line(
    home, command, monkeypatch, where: str, code: int, said: str
):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    answer = command("checkpoints", "list", where)
    assert (answer.code, answer.stdout) == (code, "")
    assert said in answer.stderr


def test_an_empty_folder_has_no_checkpoints(home, typed):
    answer = typed("checkpoints", "list", "./nothing")
    assert (answer.code, answer.stdout) == (0, "")
    assert "no checkpoints" in answer.stderr
    assert typed("checkpoints", "show", "./nothing").code == 2


# a run ----------------------------------------------------------------------------------------------
TRAINS = """\
from airflow_training.checkpoints import restore, save
done = (restore() or {"step": 0})["step"]
for step in (done + 1, done + 2):
    save({"step": step, "begun at": done}, step=step)
"""


@pytest.fixture
def run(home: Path, command) -> str:
    """Return a run on this machine that has saved the steps 1 and 2."""
    Path("train.py").write_text(TRAINS)
    words = [sys.executable, "train.py"]
    path = job_file(Path("job.yaml"), command=words, checkpoint={"uri": "ckpt"})
    done = command("run", str(path), "--run-id", "tuesday", "-o", "json")
    assert done.code == 0, done.stderr
    assert done.json["checkpoint"]["step"] == 2
    return "tuesday"


@pytest.mark.e2e
def test_a_run_is_named_instead_of_where_it_saves(run: str, typed):
    answer = typed("checkpoints", "verify", run, "-o", "json")
    assert (answer.code, listed(answer)) == (0, [(2, "committed"), (1, "committed")])
    assert "/ckpt/tuesday-" in answer.json["checkpoints"][0]["root"]
    assert typed("checkpoints", "list", run).stdout.splitlines()[1].split()[1:4] == [
        "2", "1", "committed",
    ]  # fmt: skip


@pytest.mark.e2e
def test_a_run_goes_on_from_the_checkpoint_of_another(run: str, command, typed):
    wish = "spec.checkpoint.resume={fromRun: tuesday}"
    done = command("run", "job.yaml", "--run-id", "friday", "--set", wish, "-o", "json")
    assert done.code == 0, done.stderr
    assert "starts from step 2 in " in done.stderr
    assert done.json["checkpoint"]["step"] == 4
    answer = typed("checkpoints", "list", "friday", "-o", "json")
    assert listed(answer) == [(4, "committed"), (3, "committed")]
    alone = command("run", "--from-run", "tuesday", "--run-id", "again", "-o", "json")
    assert alone.json["checkpoint"]["step"] == 2, "the same job again, not its checkpoint"
    typo = command("run", "job.yaml", "--set", wish.replace("tuesday", "thursday"))
    assert (typo.code, typo.stdout) == (2, "")
    assert "spec.checkpoint.resume.fromRun: no run is called 'thursday'" in typo.stderr


@pytest.mark.e2e
def test_a_run_without_checkpoints_says_so(home, command, typed):
    path = job_file(Path("job.yaml"))
    assert command("run", str(path), "--run-id", "plain").code == 0
    answer = typed("checkpoints", "list", "plain")
    assert answer.code == 2
    assert "no spec.checkpoint" in answer.stderr


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize("folder", ["./nowhere", "."])
def test_a_folder_without_checkpoints_is_not_verified(typed, folder, output):
    answer = typed("checkpoints", "verify", folder, "-o", output)
    assert answer.code == 2
    assert "holds no checkpoints" in answer.stderr
