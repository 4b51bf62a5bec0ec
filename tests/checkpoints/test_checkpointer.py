"""A PyTorch training that is broken off and gone on with, in one process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from airflow_training.checkpoints import reading, torch_state, tree
from airflow_training.checkpoints.checkpointer import Checkpointer
from airflow_training.checkpoints.errors import CheckpointError, StaleGeneration
from airflow_training.checkpoints.group import Group
from airflow_training.checkpoints.torch_state import TrainingObjects, capture
from tests.checkpoints.training import Training
from tests.waiting import PATIENCE

EVERY_STEP = {"steps": 1}


def train(root: Path, steps: int, *, seed: int = 0) -> tuple[Training, list[float]]:
    """Train `steps` more steps, save at their end, and drop everything, as a killed process does."""
    torch.set_num_threads(1)  # more only wait for each other, with so small a model
    training = Training(seed=seed)
    checkpointer = Checkpointer(**training.given(), root=root, every={"steps": 1000})
    start = checkpointer.restore()
    losses = []
    for step in range(start, start + steps):
        losses.append(training.step())
        checkpointer.step(step)
    checkpointer.close()
    return training, losses


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[float]]:
    """Return digest and losses of 60 steps in one go."""
    training, losses = train(tmp_path_factory.mktemp("whole"), 60)
    return training.digest(), losses


@pytest.fixture(scope="module")
def half_way(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    """Return a root with step 15 of them, and the losses until then."""
    root = tmp_path_factory.mktemp("half")
    return root, train(root, 15)[1]


def test_a_broken_training_goes_on_as_if_nothing_had_happened(whole, tmp_path):
    digest, losses = whole
    parts: list[float] = []
    last = None
    for number, steps in enumerate(
        (1, 7, 13, 39)
    ):  # another seed: nothing may come from the new process
        last, some = train(tmp_path, steps, seed=number)
        parts += some
    assert parts == losses
    assert last.digest() == digest


def drop(*path: str) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    """Return a mutant that does not restore what lies at `path`: it stays as the process began."""

    def mutate(saved: dict[str, Any], fresh: dict[str, Any]) -> None:
        for key in path[:-1]:
            saved, fresh = saved[key], fresh[key]
        if path[-1] in fresh:
            saved[path[-1]] = fresh[path[-1]]
        else:
            del saved[path[-1]]

    return mutate


def drop_moments(saved: dict[str, Any], fresh: dict[str, Any]) -> None:
    saved["optimizer"] = {**saved["optimizer"], "state": fresh["optimizer"]["state"]}


@pytest.mark.parametrize(
    "mutate",
    [
        pytest.param(drop("model"), id="parameters"),
        pytest.param(drop("buffers", "model", "inner.1.running_mean"), id="buffer"),
        pytest.param(drop("buffers", "model", "calls"), id="buffer-not-persistent"),
        pytest.param(drop("optimizer"), id="optimizer"),
        pytest.param(drop_moments, id="moments"),
        pytest.param(drop("scheduler"), id="scheduler"),
        pytest.param(drop("scaler"), id="scaler"),
        pytest.param(drop("rng", "python"), id="python-random"),
        pytest.param(drop("rng", "numpy"), id="numpy-random"),
        pytest.param(drop("rng", "torch"), id="torch-random"),
        pytest.param(drop("data", "position"), id="cursor"),
        pytest.param(drop("data", "epoch"), id="epoch"),
        pytest.param(drop("ema"), id="averaged-weights"),
        pytest.param(drop("extra", "sum"), id="extra-value"),
        pytest.param(drop("extra", "generator"), id="extra-generator"),
        pytest.param(None, id="nothing-omitted"),
    ],
)
def test_each_omitted_piece_of_state_is_caught(mutate, whole, half_way, tmp_path, monkeypatch):
    """If these were equal although a piece is missing, the equality above would prove nothing."""
    (digest, losses), (root, before) = whole, half_way
    shutil.copytree(root, tmp_path / "root")
    right = torch_state.apply

    def wrong(parts: TrainingObjects, state: dict[str, Any]) -> None:
        if mutate is not None:
            # as bytes, not as references to what is about to be changed
            mutate(state, tree.decode(*tree.encode(capture(parts))))
        right(parts, state)

    monkeypatch.setattr(torch_state, "apply", wrong)
    last, after = train(tmp_path / "root", 45, seed=5)
    same = before + after == losses and last.digest() == digest
    assert same is (mutate is None)


def test_what_did_not_take_its_state_is_named_before_training_goes_on(tmp_path, caplog):
    class Forgetful(torch.nn.Linear):
        def load_state_dict(self, *_args: Any, **_more: Any) -> Any:
            return None

    first = Checkpointer(model=torch.nn.Linear(2, 2), root=tmp_path, every=EVERY_STEP)
    first.restore()
    first.save(0)
    Checkpointer(model=Forgetful(2, 2), root=tmp_path).restore()
    assert "restored, and yet different: model.weight, model.bias" in caplog.messages


def test_what_is_missing_is_named_once_at_the_first_save(tmp_path, caplog):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    checkpointer = Checkpointer(model=model, optimizer=optimizer, scaler=None, root=tmp_path)
    assert checkpointer.restore() == 0
    assert not [m for m in caplog.messages if m.startswith("not in the checkpoints")]
    checkpointer.save(0)
    checkpointer.save(1)
    (said,) = [m for m in caplog.messages if m.startswith("not in the checkpoints")]
    assert "scheduler: found no" in said
    assert "one drives this optimizer" in said
    assert "data: found no" in said
    assert "scaler" not in said  # None says that there is none
    assert "optimizer: found no" not in said


def test_without_a_place_to_save_to_nothing_happens(monkeypatch):
    monkeypatch.delenv("TRAINING_CHECKPOINT", raising=False)
    before = signal.getsignal(signal.SIGTERM)
    checkpointer = Checkpointer(model=torch.nn.Linear(1, 1))
    assert checkpointer.restore() == 0
    checkpointer.step(0)
    assert checkpointer.save(0) is None
    checkpointer.close()
    assert signal.getsignal(signal.SIGTERM) is before


def instructions(root: Path, **more: Any) -> str:
    return json.dumps({"root": str(root), "incarnation": "0.0.0", "order": 1, **more})


def test_the_job_says_where_and_how_often(tmp_path, monkeypatch):
    told = instructions(tmp_path / "job", every={"steps": 2}, keep=10)
    monkeypatch.setenv("TRAINING_CHECKPOINT", told)
    training = Training()
    checkpointer = Checkpointer(**training.given(), root=tmp_path / "own", every=EVERY_STEP)
    for step in range(checkpointer.restore(), 5):
        training.step()
        checkpointer.step(step)
    checkpointer.close()
    assert [e.step for e in reading.history(str(tmp_path / "job"))] == [5, 4, 2]
    assert not (tmp_path / "own").exists()


def test_instructions_that_are_none_are_said_to_be_none(monkeypatch):
    monkeypatch.setenv("TRAINING_CHECKPOINT", '{"rot": 1}')
    with pytest.raises(
        CheckpointError, match="TRAINING_CHECKPOINT is not what the controller writes"
    ):
        Checkpointer(model=torch.nn.Linear(1, 1))


@pytest.mark.parametrize(
    ("resume", "start"),
    [
        ({"kind": "latest", "not_after": None}, 9),
        ({"kind": "latest", "not_after": 8}, 8),
        ({"kind": "latest", "not_after": 7, "exactly": True}, 7),
        ({"kind": "none"}, 0),
    ],
)
def test_a_job_may_go_on_from_an_older_step(resume, start, tmp_path, monkeypatch):
    for steps in (7, 1, 1):
        train(tmp_path, steps)
    monkeypatch.setenv("TRAINING_CHECKPOINT", instructions(tmp_path, resume=resume))
    assert Checkpointer(**Training().given()).restore() == start


def test_a_step_that_is_asked_for_and_not_there_is_an_error(tmp_path, monkeypatch):
    train(tmp_path, 9)
    resume = {"kind": "latest", "not_after": 20, "exactly": True}
    monkeypatch.setenv("TRAINING_CHECKPOINT", instructions(tmp_path, resume=resume))
    with pytest.raises(
        CheckpointError, match="step 20 is asked for, and is not there or not whole"
    ):
        Checkpointer(**Training().given()).restore()


def test_a_training_may_start_from_the_checkpoint_of_another(tmp_path, monkeypatch):
    first, _ = train(tmp_path / "first", 6)
    root = str(tmp_path / "first")
    manifest = reading.find(root, step=6)
    told = instructions(tmp_path / "second", initial=reading.reference(root, manifest))
    monkeypatch.setenv("TRAINING_CHECKPOINT", told)
    second = Training(seed=3)
    checkpointer = Checkpointer(**second.given())
    assert checkpointer.restore() == 6
    assert second.digest() == first.digest()
    second.step()
    checkpointer.save(6)
    assert Checkpointer(**Training().given()).restore() == 7  # from now on its own


def test_several_models_and_optimizers_are_one_checkpoint(tmp_path):
    def parts() -> dict[str, Any]:
        models = {name: torch.nn.Linear(2, 2) for name in ("generator", "critic")}
        optimizers = [torch.optim.Adam(model.parameters()) for model in models.values()]
        return {"model": models, "optimizer": optimizers}

    old = parts()
    for model, optimizer in zip(old["model"].values(), old["optimizer"], strict=True):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    first = Checkpointer(**old, root=tmp_path)
    first.restore()
    first.save(0)
    new = parts()
    Checkpointer(**new, root=tmp_path).restore()
    assert not list(
        tree.differences(capture(TrainingObjects(**old)), capture(TrainingObjects(**new)))
    )


def test_listed_files_and_context_come_back(tmp_path):
    notes, absent = tmp_path / "notes.csv", tmp_path / "later.csv"
    notes.write_text("1,2\n")
    numbers = np.random.default_rng(1)
    extra = {"history": [1.5], "numbers": numbers, "table": {"a": np.ones(3)}}
    first = Checkpointer(extra=extra, files=[notes, absent], root=tmp_path / "root")
    first.restore()
    first.save(0)
    expected = numbers.random()

    notes.write_text("1,2\n3,")  # torn by the kill
    context: dict[str, Any] = {"numbers": np.random.default_rng(9)}
    again = Checkpointer(extra=context, files=[notes, absent], root=tmp_path / "root")
    assert again.restore() == 1
    assert notes.read_text() == "1,2\n"
    assert not absent.exists()
    assert context["history"] == [1.5]
    assert context["table"]["a"].sum() == 3
    assert context["numbers"].random() == expected


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param(
            {"model": torch.nn.Linear(3, 2)}, "model: the saved state does not fit", id="shape"
        ),
        pytest.param({"model": torch.nn.Tanh()}, "model: the saved state does not fit", id="names"),
        pytest.param({}, "model of it was given nothing to go to", id="less"),
        pytest.param(
            {"model": torch.nn.Linear(2, 2), "ema": torch.nn.Linear(2, 2)},
            "it has no ema",
            id="more",
        ),
    ],
)
def test_a_checkpoint_of_another_script_is_refused(given, said, tmp_path):
    first = Checkpointer(model=torch.nn.Linear(2, 2), root=tmp_path)
    first.restore()
    first.save(0)
    with pytest.raises(CheckpointError, match=said):
        Checkpointer(**given, root=tmp_path).restore()


def test_state_that_has_no_form_is_refused_at_the_first_save(tmp_path):
    checkpointer = Checkpointer(extra={"logger": object()}, root=tmp_path)
    checkpointer.restore()
    with pytest.raises(CheckpointError, match=r"extra.logger: a builtins.object has no form"):
        checkpointer.save(0)


def test_the_first_step_needs_a_restore(tmp_path):
    with pytest.raises(CheckpointError, match=r"restore\(\) comes before the first step"):
        Checkpointer(model=torch.nn.Linear(1, 1), root=tmp_path).step(0)


def test_who_has_been_replaced_must_not_go_on(tmp_path):
    old = Checkpointer(model=torch.nn.Linear(1, 1), root=tmp_path)
    old.restore()
    old.save(0)
    new = Checkpointer(model=torch.nn.Linear(1, 1), root=tmp_path)
    new.restore()
    with pytest.raises(StaleGeneration):
        old.save(1)
    assert new.save(1) is not None


def sigterm() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_sigterm_saves_at_the_next_step_boundary_and_ends(tmp_path):
    training = Training()
    checkpointer = Checkpointer(**training.given(), root=tmp_path, every={"seconds": 3600})
    checkpointer.restore()
    training.step()
    checkpointer.step(0)
    sigterm()  # in the middle of a step: a flag only
    training.step()
    with pytest.raises(SystemExit) as ended:
        checkpointer.step(1)
    checkpointer._saver._termination.release()
    assert ended.value.code == 143
    again = Training(seed=4)
    assert Checkpointer(**again.given(), root=tmp_path).restore() == 2
    assert again.digest() == training.digest()


@pytest.mark.parametrize("every", [{"seconds": 3600}, {"steps": 1000}])
def test_once_the_machine_that_shares_the_data_has_gone_the_next_step_is_saved(
    every, tmp_path, monkeypatch
):
    monkeypatch.setenv("TRAINING_DATA_SOCKET", str(tmp_path / "socket"))
    (tmp_path / "socket.away").touch()  # in a run that was paused, and goes on
    with Checkpointer(model=torch.nn.Linear(2, 2), root=tmp_path / "kept", every=every) as ckpt:
        ckpt.restore()
        ckpt.step(0)
        assert reading.history(str(tmp_path / "kept")) == []
        os.utime(tmp_path / "socket.away", ns=(1, 1))
        ckpt.step(1)
        ckpt.step(2)
        ckpt._saver._collect(wait_seconds=60)
        assert [each.step for each in reading.history(str(tmp_path / "kept"))] == [2]
        ckpt.step(3)


def test_sigterm_ends_without_a_save_that_does_not_fit(tmp_path, monkeypatch, caplog):
    told = instructions(tmp_path, every={"seconds": 3600}, grace_seconds=0.001)
    monkeypatch.setenv("TRAINING_CHECKPOINT", told)
    checkpointer = Checkpointer(**Training().given())
    checkpointer.restore()
    checkpointer.save(0)
    checkpointer.step(1)
    sigterm()
    with pytest.raises(SystemExit):
        checkpointer.step(2)
    checkpointer._saver._termination.release()
    assert any("a save takes longer than" in message for message in caplog.messages)
    assert any("raise terminationGracePeriodSeconds" in message for message in caplog.messages)
    assert [entry.step for entry in reading.history(str(tmp_path))] == [1]


def test_before_the_first_step_and_after_the_last_sigterm_is_the_scripts_own(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    with Checkpointer(model=torch.nn.Linear(1, 1), root=tmp_path) as checkpointer:
        checkpointer.restore()
        assert signal.getsignal(signal.SIGTERM) is before
        checkpointer.step(0)
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_error_in_the_middle_of_a_step_saves_nothing_half_done(tmp_path):
    def break_off() -> None:
        with Checkpointer(model=torch.nn.Linear(1, 1), root=tmp_path, every={"steps": 2}) as ckpt:
            ckpt.restore()
            for step in range(3):
                ckpt.step(step)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    assert [entry.step for entry in reading.history(str(tmp_path))] == [2]


def test_a_save_that_is_due_during_another_waits_for_its_end(tmp_path, monkeypatch):
    """Training goes on meanwhile, and there is never a second copy."""
    go_on = threading.Event()
    write = Group.write
    begun: list[int] = []

    def slow(self: Group, step: int, *args: Any, **more: Any) -> Any:
        begun.append(step)
        assert go_on.wait(PATIENCE)
        return write(self, step, *args, **more)

    monkeypatch.setattr(Group, "write", slow)
    checkpointer = Checkpointer(model=torch.nn.Linear(9, 9), root=tmp_path, every={"seconds": 1e-6})
    checkpointer.restore()
    for step in range(5):
        checkpointer.step(step)
    assert begun == [1]
    go_on.set()
    checkpointer.close()
    assert begun == [1, 5]


def test_training_goes_on_when_the_store_fails_and_the_end_says_so(tmp_path, monkeypatch, caplog):
    def full(*_args: Any, **_more: Any) -> None:
        raise CheckpointError("no space left")

    checkpointer = Checkpointer(model=torch.nn.Linear(1, 1), root=tmp_path, every=EVERY_STEP)
    checkpointer.restore()
    checkpointer.step(0)
    monkeypatch.setattr(Group, "write", full)
    checkpointer.step(1)
    checkpointer.step(2)
    assert "step 2 is not saved, training goes on: no space left" in caplog.messages
    with pytest.raises(CheckpointError, match="the last step, 3, could not be saved"):
        checkpointer.close()
    assert Checkpointer(model=torch.nn.Linear(1, 1), root=tmp_path).restore() == 1


def test_a_commit_is_reported_as_progress(tmp_path, monkeypatch):
    progress = tmp_path / "progress.jsonl"
    monkeypatch.setenv("TRAINING_PROGRESS_FILE", str(progress))
    checkpointer = Checkpointer(model=torch.nn.Linear(1, 1), root=tmp_path / "root")
    checkpointer.restore()
    manifest = checkpointer.save(4)
    told = [json.loads(line) for line in progress.read_text().splitlines()]
    (reported,) = [line["checkpoint"] for line in told if "checkpoint" in line]
    assert (reported["step"], reported["digest"]) == (5, manifest.digest)
    assert reported["uri"] == str(tmp_path / "root")
    assert reported["bytes"] == manifest.size
    assert [line["section"] for line in told if "section" in line] == ["save", None]
