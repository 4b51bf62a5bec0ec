"""Strategies for logs: lines of real programs with any numbers in them, and everything that spoils a log."""

from __future__ import annotations

from hypothesis import strategies as st

from airflow_training.logs.engine import Pattern

SIGNATURES = (
    Pattern(name="oom/torch", pattern=r"CUDA out of memory\. Tried to allocate"),
    Pattern(name="oom/any-case", pattern=r"out of memory", ignore_case=True),
    Pattern(name="nan/loss", pattern=r"loss: nan|loss is nan"),
    Pattern(name="scale/one", pattern=r"loss scale: 1\.0"),
    Pattern(name="end/of-line", pattern=r"died with signal \d+$"),
    Pattern(name="class/negated", pattern=r"Xid \(PCI:[^)]+\): 79"),
    Pattern(name="two/branches", pattern=r"Connection (?:reset|closed) by peer|Broken pipe"),
)

numbers = st.one_of(
    st.floats(width=64).map(repr),
    st.floats(0, 1e6).map(lambda value: f"{value:.6E}"),
    st.floats(0, 1e4).map(lambda value: f"{value:.3f}"),
    st.integers(0, 10**12).map(str),
    st.integers(0, 10**7).map(lambda value: f"{value:,}"),
    st.text("0123456789", min_size=18, max_size=24).map(lambda digits: f"0.{digits}"),
    st.sampled_from(
        ["nan", "NaN", "inf", "-inf", "Infinity", "-0.0", "1e-320", "1e400", ".5", "5.", "00012"]
    ),
)
counts = st.integers(0, 10**7)
times = st.one_of(
    st.datetimes().map(lambda moment: moment.strftime("%Y-%m-%d %H:%M:%S")),
    st.datetimes().map(lambda moment: moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")),
    st.just("2024-02-30 10:00:00"),
)

_SHAPES = (
    " iteration {a:8d}/{b:8d} | consumed samples: {a:12d} | elapsed time per iteration (ms): {x} |"
    " learning rate: {y} | lm loss: {z} | loss scale: 1.0 | grad norm: {y} |",
    " [{time}] iteration {a:8d}/{b:8d} | elapsed time per iteration (ms): {x} | lm loss: {z} |",
    "{{'loss': {x}, 'grad_norm': {y}, 'learning_rate': {z}, 'epoch': {y}}}",
    "{{'loss': '{x}', 'grad_norm': '{y}', 'learning_rate': '{z}', 'epoch': '{y}'}}",
    "\x1b[31mstep: {a:2d}  \x1b[32mloss: {x}  \x1b[34mmemory: {y}GiB(13.2%)  \x1b[36mtps: {b:,}\x1b[0m",
    "step: {a}  loss: {x}  grad_norm: {y}  memory: 12.5GiB(13.2%)  tps: {b:,}  mfu: {z}%",
    " {c}%|{bar}| {a}/{b} [00:12<01:10, {x}it/s, loss={y}]",
    "Epoch {a}: {c}%|{bar}| {a}/{b} [1:00:12<?, {x}s/it, v_num=0, train_loss={y}]",
    "{time},123 - INFO - epoch {a} - loss: {x} - accuracy: {y}",
    "{time} worker {a} read {b} samples, loss is fine",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {x} GiB",
    "training ended: loss is nan at step {a}",
    "NVRM: Xid (PCI:0000:{a}): 79, GPU has fallen off the bus",
    "Connection closed by peer [10.0.0.{c}]:{a}",
    "rank {a} died with signal {c}",
    "[{a}]\ttrain-rmse:{x}\teval-rmse:{y}",
    "",
)
_PREFIXES = (
    "",
    "",
    "[rank{c}]: ",
    "[default{c}]:",
    "{c}: ",
    "[1,{c}]<stderr>:",
    "Wed Nov 25 19:38:54 2020[{c}]<stderr>:",
    "2024-01-01T00:00:0{d}.000000000Z stdout F ",
    "worker-{c}  | ",
    "(RayTrainWorker pid={a}, ip=10.0.0.{c}) ",
    "\x1b[36m[rank{c}]:\x1b[0m ",
)
ENDS = ("\n", "\n", "\n", "\r\n", "\r", "\b\b\b\r", "\n\n", "\x1b[0m\n", "")


@st.composite
def line(draw: st.DrawFn) -> bytes:
    """Return one line with its end."""
    values = {
        "a": draw(counts),
        "b": draw(counts),
        "c": draw(st.integers(0, 120)),
        "d": draw(st.integers(0, 9)),
        "x": draw(numbers),
        "y": draw(numbers),
        "z": draw(numbers),
        "time": draw(times),
        "bar": draw(st.sampled_from(["█▉   ", "####      ", "     ", "==>..."])),
    }
    text = draw(st.sampled_from(_PREFIXES)).format(**values)
    text += draw(st.sampled_from(_SHAPES)).format(**values)
    return (text + draw(st.sampled_from(ENDS))).encode()


junk = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [
            b"\x00" * 40,
            b"\x1b[",
            b"\x1b]0;title",
            b"\x1b]0;title\x07",
            b"\xff\xfe\n",
            b"x" * 70_000 + b" CUDA out of memory. Tried to allocate\n",
            b"y" * 65_536 + b"\n",
        ]
    ),
)
logs = st.lists(st.one_of(line(), line(), line(), line(), junk), max_size=60).map(b"".join)
"""Whole logs; half of the lines come again, so that layouts are known."""
