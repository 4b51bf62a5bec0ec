"""Distributed boosting: the master starts the tracker, every instance trains on its own rows."""

import os
import threading

import numpy as np
import xgboost
from gate import STEPS, finish, passed, restored, save
from xgboost.collective import CommunicatorContext
from xgboost.tracker import RabitTracker

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
host, port = os.environ["DMLC_TRACKER_URI"], int(os.environ["DMLC_TRACKER_PORT"])
if rank == 0:
    tracker = RabitTracker(n_workers=size, host_ip=host, port=port, sortby="task")
    tracker.start()
    threading.Thread(target=tracker.wait_for, daemon=True).start()


class Saves(xgboost.callback.TrainingCallback):
    def after_iteration(self, model, epoch, evals_log):
        now = model.num_boosted_rounds()
        if rank == 0:
            save(now, model.save_raw("json").decode())
        passed(now, rank)
        return False


step, content = restored()
before = xgboost.Booster(model_file=bytearray(content.encode())) if content else None
with CommunicatorContext(
    dmlc_communicator="rabit",
    dmlc_tracker_uri=host,
    dmlc_tracker_port=port,
    dmlc_task_id=os.environ["DMLC_TASK_ID"],
    dmlc_timeout=20,
):
    x = np.random.default_rng(rank).normal(size=(64, 3))
    rows = xgboost.DMatrix(x, x.sum(1))
    booster = xgboost.train(
        {"nthread": 1, "max_depth": 2, "tree_method": "hist"},
        rows,
        STEPS - step,
        xgb_model=before,
        callbacks=[Saves()],
    )
    finish(rank, booster.save_raw("json").decode())
