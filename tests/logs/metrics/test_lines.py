"""What one line says."""

from __future__ import annotations

import math
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_training.logs.metrics.formats import built_in
from airflow_training.logs.metrics.lines import anchors, parse_line
from airflow_training.logs.metrics.numbers import convert

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


@pytest.mark.parametrize("piece", [*PIECES, b"a:1 ", b" a", b"1,", b"  ", b"step: 1 "])
@pytest.mark.parametrize(
    "head", [b"loss: 1 step: 2 ", b"epoch 001: 1 / 2 loss=", b"iteration 1/ 2 | "]
)
def test_no_line_takes_long(piece, head):
    line = (head + piece * 8192)[:8192]
    start = time.process_time()
    parse_line(line)
    assert time.process_time() - start < 1  # seconds of work; a backtracking pattern takes minutes
