"""What one line says."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_training.logs.engine.patterns import required_literals
from airflow_training.logs.metrics.formats import built_in
from airflow_training.logs.metrics.lines import anchors, parse_line
from tests.logs.metrics.values import convert
from tests.work import Calls

GIB = 2.0**30


def values(line: str) -> dict[str, float]:
    text = line.encode()
    parsed = parse_line(text)
    if parsed is None:
        return {}
    return {
        slot.metric: convert(text[slot.start : slot.end], slot.kind, slot.scale)
        for slot in parsed.slots
        if slot.metric
    }


@pytest.mark.parametrize("format_", built_in(), ids=lambda each: each.name)
def test_every_format_reads_its_example(format_):
    parsed = parse_line(format_.example.encode())
    assert parsed is not None
    assert parsed.format == format_.name
    assert any(slot.metric for slot in parsed.slots)


@pytest.mark.parametrize("format_", built_in(), ids=lambda each: each.name)
def test_every_format_is_found_by_its_anchor(format_):
    assert re.search(format_.anchor.encode(), format_.example.encode())
    assert format_.anchor in anchors()


@pytest.mark.parametrize("anchor", anchors())
def test_no_anchor_makes_every_line_a_candidate(anchor):
    assert min(map(len, required_literals(anchor)), default=0) >= 3


@pytest.mark.parametrize(
    ("line", "metric", "value"),
    [
        pytest.param("step: 1 loss: 2.0 tps: 7,282", "tokens_per_second", 7282, id="thousands"),
        pytest.param("step 5 mfu: 37.5% loss: 1", "mfu", 0.375, id="percent"),
        pytest.param("step: 1 loss: 2.0 acc: 95.7", "accuracy", 95.7, id="no-percent-sign"),
        pytest.param(
            "step: 1  loss: 2.0  memory: 1.50GiB(3.1%)  ", "memory_bytes", 1.5 * GIB, id="gib"
        ),
        pytest.param("iter: 5  loss: 1  max_mem: 5418M", "memory_bytes", 5418 * 2.0**20, id="mib"),
        pytest.param(
            "[Rank 0] step=1, skipped=0, lr=[1e-05, 3e-05]", "learning_rate", 1e-5, id="list"
        ),
        pytest.param(" 5%|# | 1/20 [00:01<00:20, 4.00it/s]", "step_time_seconds", 0.25, id="rate"),
        pytest.param(" 5%|# | 1/20 [00:01<00:20, 4.00s/it]", "step_time_seconds", 4.0, id="time"),
        pytest.param(
            " 9%|▉         | 248/2724 [9:10:28<91:21:51, 1.54s", "step_time_seconds", 1.54, id="cut"
        ),
        pytest.param(" 1%|# | 2/90 [00:01<1 day, 2:00:00, 4.00s/it]", "step", 2, id="days-left"),
        pytest.param(
            "300/650 [==>..] - 2s 33ms/step - loss: 1", "step_time_seconds", 0.033, id="ms"
        ),
        pytest.param("{'loss': '2.25', 'epoch': '0.5'}", "loss", 2.25, id="quoted"),
        *(
            pytest.param(
                f"step 10 | loss 2.31 | {used} | 812 tok/s", "memory_bytes", 71.5 * GIB, id=used
            )
            for used in (
                "gpu 71.5/80.0 GB",
                "GPU0: 71.5 GiB / 80.0 GiB",
                "cuda: 73216MiB / 81920MiB",
                "gpu mem 71.5 GiB of 80 GiB",
                "mem used 71.5GB of 80GB",
            )
        ),
        pytest.param("Epoch 1, loss: tensor(0.5, device='cuda:0')", "loss", 0.5, id="tensor"),
        pytest.param("[12]\tvalid_0's l2: 0.5", "valid_0-l2", 0.5, id="booster"),
        pytest.param("[12]\ttrain-rmse:0.5", "train-rmse", 0.5, id="own-name"),
        pytest.param("step: 3, loss: 1.0, Foo Bar: 7", "foo bar", 7, id="unknown-name"),
        pytest.param("step=3 loss=-inf", "loss", -math.inf, id="infinity"),
        pytest.param("step 3 | train/loss: 0.5", "loss", 0.5, id="slash"),
        pytest.param("epoch 003, loss 1.5", "epoch", 3, id="leading-zeros"),
        pytest.param(
            "\x1b[31mstep: \x1b[32m 7  \x1b[0mloss: 1.5 \x1b[0m", "loss", 1.5, id="colours"
        ),
    ],
)
def test_a_value_is_kept_in_the_unit_of_its_metric(line, metric, value):
    assert values(line)[metric] == value


def test_a_value_that_is_no_number_stays_one():
    assert math.isnan(values("{'loss': nan, 'grad_norm': 1.0, 'epoch': 0.5}")["loss"])


@pytest.mark.parametrize(
    "line",
    [
        "learning_rate: 0.0001",
        "lr = 3e-4",
        "warmup_steps: 500",
        "Namespace(lr=0.1, epochs=3, loss='ce', step=5)",
        "train.py --lr=0.1 --steps 500 --loss=2",
        '  File "train.py", line 300, in step',
        "2024-01-01 12:00:00,123 [INFO] worker 3 listening on 10.0.0.1:29500 pid=77",
        "torch 2.1.0, transformers 4.41.2, step up to date",
        "model size: 7B, total params: 6738.4M",
        "FloatingPointError: Loss is inf, stopping training",
        "Saving model checkpoint to out/checkpoint-500, step=500, loss=0.3",
        "Loading checkpoint shards: 100%|##| 2/2 [00:05<00:00,  2.70s/it]",
        "Map: 100%|##########| 1000/1000 [00:01<00:00, 533.12 examples/s]",
        "model.bin: 45%|#### | 1.2G/2.7G [00:10<00:12, 120MB/s]",
        "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 GiB total capacity)",
        "|===== Memory summary, device ID 0 | Cur Usage | Peak Usage | step 3 |",
        "commit 4f8a2c1 fix the loss at step 3 of the epoch",
        "HTTP Request: GET https://host/api?step=3&loss=2 200",
        "yolox.core.trainer:246 - step",
    ],
)
def test_what_is_no_metric_line_gives_nothing(line):
    assert values(line) == {}


def test_all_that_varies_in_a_line_is_a_slot():
    first = b"[rank3]: 2024-01-01 12:00:00,123 - step: 10 loss: 2.50 eta: 1:02:03"
    later = b"[rank3]: 2025-02-03 23:59:59,999 - step: 11 loss: 1.25 eta: 0:00:09"

    def fixed(line):
        parsed = parse_line(line)
        parts, at = [], 0
        for slot in parsed.slots:
            parts.append(line[at : slot.start])
            at = slot.end
        return [*parts, line[at:]]

    assert fixed(first) == fixed(later)


def test_a_digit_in_a_name_is_no_slot():
    line = b"step: 10 loss: 2.5 top1: 0.5 top5: 0.75"
    parsed = parse_line(line)
    assert [slot.metric for slot in parsed.slots] == ["step", "loss", "top1", "top5"]


PIECES = [
    b"loss",
    b"step",
    b"epoch",
    b": ",
    b"=",
    b" ",
    b"1",
    b"2.5",
    b"nan",
    b"[",
    b"]",
    b"(",
    b")",
    b"{",
    b"}",
]
PIECES += [
    b"'",
    b'"',
    b"/",
    b"%",
    b"|",
    b",",
    b"it/s",
    b"\xff",
    b"\xe2\x96\x88",
    b"\x1b[0m",
    b"12:3:4",
    b"Epoch",
    b"a",
]


@given(st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join))
@settings(deadline=None)
def test_any_line_is_survived_and_its_slots_are_in_order(line):
    parsed = parse_line(line)
    at = 0
    for slot in parsed.slots if parsed is not None else ():
        assert at <= slot.start <= slot.end <= len(line)
        at = slot.end
        if slot.metric:
            convert(line[slot.start : slot.end], slot.kind, slot.scale)


@pytest.mark.parametrize("piece", [b"a:1 ", b"a=1 ", b"a 1 ", b"[1/2] "])
def test_a_line_of_many_numbers_is_read_with_no_more_work_than_its_parts(piece):
    half, line = (b"step: 1 loss: 0.5 " + piece * each for each in (1000, 2000))
    parse_line(half)  # imports what it needs
    with Calls() as few:
        parse_line(half)
    with Calls() as many:
        parse_line(line)
    assert many.count < 2.5 * few.count


@pytest.mark.parametrize("piece", [*PIECES, b"a:1 ", b" a", b"1,", b"  ", b"step: 1 "])
@pytest.mark.parametrize(
    "head", [b"loss: 1 step: 2 ", b"epoch 001: 1 / 2 loss=", b"iteration 1/ 2 | "]
)
@pytest.mark.timeout(60)
def test_no_line_takes_for_ever(piece, head):
    """A pattern that tracks back for each byte would take hours."""
    line = (head + piece * 8192)[:8192]
    parse_line(line)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(
            "Epoch 3, batch 40, loss[loss=0.5, ctc_loss=0.75], total[loss=0.25, ctc_loss=1.5], lr: 1e-3",
            {
                "epoch": 3,
                "step": 40,
                "loss": 0.5,
                "ctc_loss": 0.75,
                "total/loss": 0.25,
                "total/ctc_loss": 1.5,
                "learning_rate": 1e-3,
            },
            id="groups",
        ),
        pytest.param(
            "epoch   2 | batch    250 | examples/s:  15.5 | loss: 0.25",
            {"epoch": 2, "step": 250, "samples_per_second": 15.5, "loss": 0.25},
            id="batch-of-an-epoch",
        ),
        pytest.param(
            "Epoch  2, 50/900; acc: 4.5; xent: 10.5; 3600 src tok/s; 3700 tgt tok/s",
            {
                "epoch": 2,
                "step": 50,
                "total_steps": 900,
                "accuracy": 4.5,
                "xent": 10.5,
                "tokens_per_second": 3600,
            },
            id="part-of-an-epoch",
        ),
        pytest.param(
            "50/900: episode: 7, episode steps: 180, episode reward: 12.5, loss: 0.5",
            {
                "step": 50,
                "total_steps": 900,
                "episode": 7,
                "episode steps": 180,
                "episode reward": 12.5,
                "loss": 0.5,
            },
            id="step-before-all-else",
        ),
        pytest.param(
            "40 | loss 6.5 | lr 3.0e-04 | 250.0ms",
            {"step": 40, "loss": 6.5, "learning_rate": 3e-4, "step_time_seconds": 0.25},
            id="step-without-a-name",
        ),
        pytest.param(
            "Process 100/800(12.5%) average objf: -0.5 over 640.0 frames, epoch 1",
            {"step": 100, "total_steps": 800, "epoch": 1, "average objf": -0.5},
            id="share-behind-the-step",
        ),
        pytest.param(
            '{"epoch": "3/50", "iter": "90/159", "loss": 2.5, "gpu_mem": "4.5G"}',
            {"epoch": 3, "step": 90, "loss": 2.5, "memory_bytes": 4.5 * GIB},
            id="totals-in-quotes",
        ),
        pytest.param(
            "DEV  : loss 0.25 - f-score 0.5 - acc 0.75",
            {"eval_loss": 0.25, "f-score": 0.5, "eval_accuracy": 0.75},
            id="heading-of-an-evaluation",
        ),
        pytest.param(
            "Training: loss = 1.5, acc = 0.5 | Val: loss = 1.75, acc = 0.25",
            {"loss": 1.5, "accuracy": 0.5, "eval_loss": 1.75, "eval_accuracy": 0.25},
            id="two-headings",
        ),
        pytest.param(
            "step 900, policy=3.25 mse=0.5 total=3.75 (4955.5 pos/s)",
            {"step": 900, "policy": 3.25, "mse": 0.5, "total": 3.75, "pos/s": 4955.5},
            id="rate-of-anything",
        ),
        pytest.param(
            "| > Step:9/20  GlobalStep:10  TotalLoss:0.5  GradNorm:0.25  StepTime:0.75",
            {
                "step": 10,
                "loss": 0.5,
                "grad_norm": 0.25,
                "step_time_seconds": 0.75,
            },
            id="humps",
        ),
        pytest.param(
            "recall@10 : 0.25    ndcg@10 : 0.5",
            {"recall@10": 0.25, "ndcg@10": 0.5},
            id="nothing-but-measures",
        ),
        pytest.param(
            "agents: Brain: Step: 40. Mean Reward: 1.25. Std of Reward: 0.5.",
            {"step": 40, "mean reward": 1.25, "std of reward": 0.5},
            id="a-sentence-for-each",
        ),
        pytest.param(
            "[Epoch 1 640/900][Iteration 5] Throughput is 400.5 records/second. Loss is 0.5.",
            {"epoch": 1, "step": 5, "samples_per_second": 400.5, "loss": 0.5},
            id="is",
        ),
        pytest.param(
            "[ITER 70] Evaluating test: L1 0.125 PSNR 24.5 [26/11 18:13:40]",
            {"step": 70, "l1": 0.125, "psnr": 24.5},
            id="names-in-a-row",
        ),
        pytest.param(
            "Iteration:  23%|##   | 650/2771 [01:23<04:25,  8.00it/s]Training Epoch: 0 Iteration: 651 loss : 2.5",
            {"step": 651, "epoch": 0, "loss": 2.5, "step_time_seconds": 0.125, "total_steps": 2771},
            id="beside-a-bar",
        ),
        pytest.param(
            "At iteration 70/70/72, Mean rms=4.25%, word train=99.5%, wrote checkpoint.",
            {"step": 70, "total_steps": 70, "mean rms": 4.25, "word train": 99.5},
            id="a-checkpoint-behind-it",
        ),
        pytest.param(
            "Epoch 2 train Loc Loss: 0.5 Cls Loss: 0.25 Accu :0.75",
            {"epoch": 2, "train loc loss": 0.5, "cls loss": 0.25, "accuracy": 0.75},
            id="names-of-several-words-in-a-row",
        ),
    ],
)
def test_a_line_of_any_program_gives_all_that_it_says(line, expected):
    assert values(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # a step in brackets, before or with the share that is done
        ("Epoch 2 [50/390, 12.8%] loss: 1.5", {"epoch": 2, "step": 50, "total_steps": 390}),
        ("Epoch 2 (50/390 - 12.8%) loss: 1.5", {"epoch": 2, "step": 50, "total_steps": 390}),
        ("[50/390 12%] loss: 1.5", {"step": 50, "total_steps": 390}),
        ("[50/390 it (12%)] loss: 1.5", {"step": 50, "total_steps": 390}),
        ("[12%] [50/390] loss: 1.5", {"step": 50, "total_steps": 390}),
        ("Epoch 1 (12%): [50/390] loss: 1.5", {"epoch": 1, "step": 50, "total_steps": 390}),
        ("[120/500, ETA 00:12] loss 1.5", {"step": 120, "total_steps": 500}),
        ("Epoch 3 (120/500 : 24 %) loss 1.5", {"epoch": 3, "step": 120, "total_steps": 500}),
        ("Step (120/500) loss=1.5", {"step": 120, "total_steps": 500, "loss": 1.5}),
        # a unit inside a value, or as the name
        ("step 30: loss=1.5 throughput=101/s", {"throughput": 101}),
        ("step 30: loss=1.5 tput: 101.5 /sec", {"tput": 101.5}),
        ("step 30: loss 1.5, 14.5K tok/s", {"tokens_per_second": 14500}),
        ("step 30 loss 1.5 (tks/s: 14.5K)", {"tokens_per_second": 14500}),
        ("step 30 loss 1.5 (images/sec: 14.5K)", {"samples_per_second": 14500}),
        ("step: 30, loss: 1.5, speed: 14.5k sequences/s", {"samples_per_second": 14500}),
        ("step 30 | loss 1.5 | 14.5K tokens per second", {"tokens_per_second": 14500}),
        ("step: 30 loss: 1.5 tokens/batch: 4096", {"tokens/batch": 4096}),
        ("step 30 | loss 1.5 | 1.2k tokens / s", {"tokens_per_second": 1200}),
        ("step: 30, loss: 1.5, speed: 1.2k tokens / s", {"tokens_per_second": 1200}),
        ("step 30 loss 1.5 812 tps", {"tokens_per_second": 812}),
        ("step 30, at 1.2k tps: loss 1.5", {"tokens_per_second": 1200, "loss": 1.5}),
        # a time without a name, and units of a step in names
        ("step 30: loss 1.5, 250ms", {"step_time_seconds": 0.25}),
        ("step 30: loss 1.5 250ms", {"step_time_seconds": 0.25}),
        ("step 30: train loss 1.5 (took 250 ms)", {"step_time_seconds": 0.25}),
        ("step 30 | loss 1.5 | 250 ms/iter", {"step_time_seconds": 0.25}),
        ("step 30 | loss 1.5 | 0.25 sec/step", {"step_time_seconds": 0.25}),
        ("step 30 loss 1.5 [250 msec]", {"step_time_seconds": 0.25}),
        ("step 30 loss 1.5 step_ms 250", {"step_time_seconds": 0.25}),
        ("step 30 loss=1.5 ms_per_step: 250", {"step_time_seconds": 0.25}),
        ("step 30 loss=1.5 step_time[ms]: 250", {"step_time_seconds": 0.25}),
        ("step 30 | loss 1.5 | iter time (ms) 250.0", {"step_time_seconds": 0.25}),
        ("step 30 loss: 1.5 time per step: 250ms", {"step_time_seconds": 0.25}),
        ("step 300 done in 350ms, loss 1.5", {"step": 300, "step_time_seconds": 0.35}),
        ("step 300/900 in 0.35 s, loss 1.5", {"step": 300, "step_time_seconds": 0.35}),
        # steps after "at"
        ("Loss at step 300 - 1.5", {"step": 300, "loss": 1.5}),
        ("loss@300: 1.5", {"step": 300, "loss": 1.5}),
        ("val_loss@300: 1.5, lr: 1e-3", {"step": 300, "eval_loss": 1.5, "learning_rate": 1e-3}),
        ("Loss after 300 steps: 1.5", {"step": 300, "loss": 1.5}),
        ("val loss after 3 epochs: 1.5", {"epoch": 3, "eval_loss": 1.5}),
        ("Loss (step 300): 1.5", {"step": 300, "loss": 1.5}),
        ("loss @ step 300: 1.5", {"step": 300, "loss": 1.5}),
        ("Loss at step [300]: 1.5", {"step": 300, "loss": 1.5}),
        ("val_loss at step=300: 1.5", {"step": 300, "eval_loss": 1.5}),
        ("Eval at step 300: loss 1.5", {"step": 300, "eval_loss": 1.5}),
        ("epoch 3 ended at step 300: loss 1.5", {"epoch": 3, "step": 300, "loss": 1.5}),
        # counters that are not the step
        ("micro step: 40 | step: 10 | loss: 1.5", {"step": 10}),
        ("local step 40, step 10, loss 1.5", {"step": 10}),
        ("step: 40, optimizer_step: 10, loss: 1.5", {"step": 10}),
        ("iter_num=40 step_num=10 loss=1.5", {"step": 10}),
    ],
)
def test_values_are_found_however_a_program_places_them(line, expected):
    found = values(line)
    assert {name: found.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("step 3: serving 40 clients, 812 tps", {}),
        ("the database did 812 tps at step 3", {}),
        ("loss 0.5 tokens / step 300", {"loss": 0.5, "step": 300}),
        ("recall@10: 0.5 loss: 0.25", {"recall@10": 0.5, "loss": 0.25}),
        ("loss@1: 0.5 loss@5: 0.25", {"loss@1": 0.5, "loss@5": 0.25}),
        ("worker failed at step 300 - 137", {}),
        ("Loss at step 300 - 5 of 10 workers answered", {}),
        ("step 300 validated in 350ms, loss: 0.5", {"step": 300, "loss": 0.5}),
        ("step 300: data fetched in 350ms, loss: 0.5", {"step": 300, "loss": 0.5}),
    ],
)
def test_what_looks_like_a_place_or_a_unit_is_left(line, expected):
    assert values(line) == expected


def test_a_number_in_brackets_behind_a_name_belongs_to_it():
    assert values("loss (5): 1.5 step: 3") == {"loss (5)": 1.5, "step": 3}


def test_a_time_in_a_line_without_a_step_is_not_that_of_a_step():
    assert values("Epoch 3: loss 1.5 (12000 ms)") == {"epoch": 3, "loss": 1.5}
