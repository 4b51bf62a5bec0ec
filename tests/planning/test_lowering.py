"""A view and a sharding become kernels, transfers and bytes: those that published formulas say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from airflow_training.planning.view.axis_names import name_dimensions
from airflow_training.planning.view.builder import ViewBuilder
from airflow_training.planning.view.computation import Operator
from airflow_training.planning.view.lowering import lower
from airflow_training.planning.view.program import (
    Compute,
    Number,
    Program,
    ProgramPiece,
    Sharding,
    Transfer,
)
from airflow_training.planning.view.strategy import TransformerModel
from airflow_training.planning.view.training import with_backward
from airflow_training.planning.view.transformer import computation
from tests.planning import networks

GPT3 = TransformerModel(
    hidden=12288, layers=96, heads=96, seq=2048, vocab=51200, attention="unfused"
)
LLAMA = TransformerModel(
    family="llama",
    hidden=4096,
    layers=32,
    heads=32,
    kv_heads=8,
    ffn=14336,
    mlp="swiglu",
    seq=8192,
    vocab=128256,
    tied_embeddings=False,
)
MIXTRAL = TransformerModel(
    family="llama",
    hidden=4096,
    layers=32,
    heads=32,
    kv_heads=8,
    ffn=14336,
    mlp="swiglu",
    seq=4096,
    vocab=32000,
    tied_embeddings=False,
    experts=8,
    experts_per_token=2,
)


def piece(program: Program, name: str) -> ProgramPiece:
    return next(piece for piece in program.pieces if piece.name == name)


def kernels(program: Program, unit: str = "layer") -> dict[str, Compute]:
    return {w.name: w for w in piece(program, unit).work if isinstance(w, Compute)}


def gemm(program: Program, name: str, unit: str = "layer") -> tuple[Number, ...]:
    """Return batch, m, n and k of a matrix multiplication."""
    found = kernels(program, unit)[name].gemm
    assert found is not None
    return found


def transfers(program: Program, unit: str = "layer", *, phase: str = "") -> list[tuple[str, str]]:
    return [
        (w.collective, w.axis)
        for w in piece(program, unit).work
        if isinstance(w, Transfer) and w.phase.startswith(phase)
    ]


@pytest.mark.parametrize(
    ("tp", "sequence_parallel", "mode", "per_sbh"),
    [
        (1, False, "none", lambda t, x: 34 + 5 * x),
        (8, False, "none", lambda t, x: 10 + 24 / t + 5 * x / t),
        (8, True, "none", lambda t, x: 34 / t + 5 * x / t),
        (8, False, "selective", lambda t, x: 10 + 24 / t),
        (8, True, "selective", lambda t, x: 34 / t),
        (8, False, "full", lambda t, x: 2),
    ],
)
@pytest.mark.parametrize("micro_batch", [1, 4])
def test_a_layer_keeps_the_activations_of_korthikanti(
    tp, sequence_parallel, mode, per_sbh, micro_batch
):
    """Korthikanti et al. 2022, table 2: bytes per layer in units of sequence x batch x hidden."""
    program = lower(
        computation(GPT3),
        Sharding(tp=tp, sequence_parallel=sequence_parallel, micro_batch=micro_batch),
    )
    unit = GPT3.seq * micro_batch * GPT3.hidden
    square = GPT3.heads * GPT3.seq / GPT3.hidden
    assert piece(program, "layer").saved_bytes[mode] / unit == pytest.approx(per_sbh(tp, square))


def test_flash_attention_keeps_no_scores():
    flash = lower(computation(LLAMA), Sharding())
    kept = piece(flash, "layer").saved_bytes
    assert kept["none"] < 60 * LLAMA.seq * LLAMA.hidden
    rows = 4 * LLAMA.heads * LLAMA.seq
    assert kept["none"] - kept["selective"] == rows


@pytest.mark.parametrize(("family", "share"), [("llama", 0.5), ("bert", 1.0)])
def test_causal_attention_skips_half_of_the_scores(family, share):
    model = replace(LLAMA, family=family)
    found = kernels(lower(computation(model), Sharding()))
    products = 2 * LLAMA.hidden * LLAMA.seq**2 * share
    assert found["attention.core"].flops == 2 * products
    assert found["attention.core.backward"].flops == 5 * products


def test_what_lives_for_a_moment_is_counted_where_it_is_most():
    """In the gradient of softmax: two squares of scores, the stream's gradient and that of values."""
    plain, scattered = (
        piece(lower(computation(GPT3), Sharding(tp=8, sequence_parallel=sp)), "layer")
        for sp in (False, True)
    )
    unit = GPT3.seq * GPT3.hidden
    squares = 2 * 2 * GPT3.heads * GPT3.seq / GPT3.hidden / 8
    assert plain.working_bytes / unit == 2 + 2 / 8 + squares
    assert scattered.working_bytes / unit == 2 / 8 + 2 / 8 + squares


def test_what_is_gathered_for_a_moment_is_counted():
    layer = piece(lower(computation(LLAMA), Sharding(tp=8, sequence_parallel=True)), "layer")
    unit = LLAMA.seq * LLAMA.hidden
    inner = 2 * 14336 / LLAMA.hidden
    whole, part = 2, 2 / 8
    wide = 2 * inner / 8
    assert layer.working_bytes / unit == part + wide + part + whole, "in the gradient of mlp.up"


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_matrix_multiplications_of_a_layer_add_up_to_the_published_count(tp):
    """24 b s h^2 (1 + s / 6h) forward and twice that backward (Narayanan et al. 2021, appendix)."""
    program = lower(computation(GPT3), Sharding(tp=tp, micro_batch=2))
    rows, h, s = 2 * GPT3.seq, GPT3.hidden, GPT3.seq
    expected = 24 * rows * h**2 * (1 + s / (6 * h)) / tp
    matmuls = [k for k in kernels(program).values() if k.kind == "matmul"]
    for phase, times in (("forward", 1), ("backward", 2)):
        done = sum(k.flops for k in matmuls if k.phase == phase)
        assert done == pytest.approx(times * expected)
    for kernel in matmuls:
        batch, m, n, k = gemm(program, kernel.name)
        assert kernel.flops == pytest.approx(2 * batch * m * n * k)


def test_gemms_are_cut_by_columns_and_by_rows():
    found = lower(computation(GPT3), Sharding(tp=8, micro_batch=2))
    rows, h = 2 * 2048, 12288
    assert gemm(found, "attention.qkv") == (1, rows, 3 * h / 8, h)
    assert gemm(found, "attention.scores") == (2 * 96 / 8, 2048, 2048, 128)
    assert gemm(found, "attention.proj") == (1, rows, h, h / 8)
    assert gemm(found, "mlp.up") == (1, rows, 4 * h / 8, h)
    assert gemm(found, "mlp.up.left") == (1, rows, h, 4 * h / 8)
    assert gemm(found, "mlp.up.right") == (1, h, 4 * h / 8, rows)


def test_gated_layers_multiply_gate_and_value_at_once_and_share_key_heads():
    found = lower(computation(LLAMA), Sharding(tp=4))
    assert gemm(found, "mlp.up") == (1, 8192, 2 * 14336 / 4, 4096)
    assert gemm(found, "attention.qkv") == (1, 8192, (32 + 2 * 8) * 128 / 4, 4096)


def test_tensor_parallelism_reduces_twice_in_each_direction():
    program = lower(computation(GPT3), Sharding(tp=8))
    for phase in ("forward", "backward"):
        assert transfers(program, phase=phase) == [("all_reduce", "tp")] * 2
    moves = [w for w in piece(program, "layer").work if isinstance(w, Transfer)]
    assert {move.payload_bytes for move in moves} == {2.0 * 2048 * 12288}
    overlapped = [move.overlaps for move in moves if move.phase == "backward"]
    assert overlapped == ["mlp.up.right", "attention.qkv.right"]


def test_sequence_parallelism_gathers_and_scatters_instead():
    program = lower(computation(GPT3), Sharding(tp=8, sequence_parallel=True))
    pair = [("all_gather", "tp"), ("reduce_scatter", "tp")]
    assert transfers(program, phase="forward") == pair * 2
    payloads = {w.payload_bytes for w in piece(program, "layer").work if isinstance(w, Transfer)}
    assert payloads == {2.0 * 2048 * 12288}, "of the whole tensor, as nccl-tests count"
    backward = transfers(program, phase="backward")
    assert sorted(backward) == sorted([("all_gather", "tp")] * 4 + [("reduce_scatter", "tp")] * 2)
    layer = piece(program, "layer")
    assert layer.boundary_bytes == 2.0 * 2048 * 12288 / 8
    norms = [p for p in layer.parameters if "tp" in p.replicated_over]
    assert sum(p.elements for p in norms) == 6 * 12288, "norms and late biases are summed over tp"


def test_context_parallelism_sends_keys_round_a_ring_or_gathers_them():
    ring = lower(computation(LLAMA), Sharding(cp=4))
    moves = [w for w in piece(ring, "layer").work if isinstance(w, Transfer)]
    assert [(m.collective, m.axis, m.overlaps) for m in moves] == [
        ("send_recv", "cp", "attention.core"),
        ("send_recv", "cp", "attention.core.backward"),
    ]
    keys_and_values = 2 * 2.0 * (8192 / 4) * 8 * 128
    assert [m.payload_bytes for m in moves] == [3 * keys_and_values] * 2
    assert [m.count for m in moves] == [1, 2]
    unfused = lower(computation(GPT3), Sharding(cp=4))
    assert transfers(unfused, phase="forward") == [("all_gather", "cp")] * 2
    assert sorted(transfers(unfused, phase="backward")) == [
        *[("all_gather", "cp")] * 2,
        *[("reduce_scatter", "cp")] * 2,
    ]


def test_the_vocabulary_is_split_and_its_logits_never_gathered():
    program = lower(computation(GPT3), Sharding(tp=8))
    head = [w for w in piece(program, "head").work if isinstance(w, Transfer)]
    assert [(m.collective, m.phase) for m in head] == [
        ("all_reduce", "forward"),
        ("all_reduce", "backward"),
    ]
    assert (head[0].count, head[0].payload_bytes) == (3, 4.0 * 2048)
    shared = [p.elements for p in piece(program, "head").parameters if p.shared_with == "embedding"]
    assert shared == [51200 * 12288 / 8]


@pytest.mark.parametrize(
    ("model", "elements"),
    [
        (GPT3, 96 * (12 * 12288**2 + 13 * 12288) + (51200 + 2048) * 12288 + 2 * 12288),
        (
            LLAMA,
            32 * (4096 * (4096 * 2 + 2 * 1024) + 3 * 4096 * 14336 + 2 * 4096)
            + 2 * 128256 * 4096
            + 4096,
        ),
        (
            MIXTRAL,
            32 * (4096 * (4096 * 2 + 2 * 1024) + 8 * (3 * 4096 * 14336) + 8 * 4096 + 2 * 4096)
            + 2 * 32000 * 4096
            + 4096,
        ),
    ],
    ids=["gpt3", "llama", "mixtral"],
)
def test_parameters_are_counted_once(model, elements):
    program = lower(computation(model), Sharding())
    own = (
        unit.repeat * part.elements
        for unit in program.pieces
        for part in unit.parameters
        if not part.shared_with
    )
    assert sum(own) == elements


def test_experts_exchange_tokens_and_keep_only_their_own_weights():
    program = lower(computation(MIXTRAL), Sharding(ep=4, micro_batch=2))
    layer = piece(program, "layer")
    assert transfers(program, phase="forward") == [("all_to_all", "ep")] * 2
    assert transfers(program, phase="backward") == [("all_to_all", "ep")] * 2
    payloads = {w.payload_bytes for w in layer.work if isinstance(w, Transfer)}
    assert payloads == {2.0 * 2 * 4096 * 2 * 4096}
    over = {part.replicated_over: part.elements for part in layer.parameters}
    assert over["dp", "cp"] == 8 / 4 * 3 * 4096 * 14336
    assert gemm(program, "experts.up") == (2, 4 * 2 * 4096 * 2 / 8, 2 * 14336, 4096)


def test_experts_work_on_the_tokens_of_a_split_sequence():
    program = lower(computation(MIXTRAL), Sharding(ep=2, cp=2, tp=2, sequence_parallel=True))
    found = kernels(program)
    assert found["experts.dispatch"].written_bytes == 2.0 * 4096 / 2 / 2 * 2 * 4096
    rows = 2 * 4096 * 2 / 8 / 2
    assert gemm(program, "experts.up") == (4, rows, 2 * 14336 / 2, 4096)


def test_a_network_without_names_is_split_by_columns_and_rows_in_turn():
    program = lower(networks.mlp(784, 300, 100, 10), Sharding(tp=4, micro_batch=8))
    assert gemm(program, "fc0", "layer0") == (1, 8, 75, 784)
    assert gemm(program, "fc1", "layer1") == (1, 8, 100, 75)
    assert transfers(program, "layer0") == []
    assert transfers(program, "layer1") == [("all_reduce", "tp")]
    assert gemm(program, "fc2", "head") == (1, 8, 3, 100), "10 classes: 3, 3, 2 and 2"
    assert not program.warnings


def test_weights_without_names_get_names_that_say_what_splits_them():
    view = name_dimensions(networks.mlp(784, 300, 100, 10))
    assert [view.tensors[f"w{i}"].axes for i in range(3)] == [
        ("", "columns"),
        ("columns", ""),
        ("", "classes"),
    ]
    assert [view.tensors[f"y{i}"].axes for i in range(3)] == [
        ("batch", "columns"),
        ("batch", ""),
        ("batch", "classes"),
    ]
    described = computation(GPT3)
    assert name_dimensions(described) == described


def test_the_last_unit_is_never_run_again():
    found = kernels(lower(networks.mlp(8, 6, 4), Sharding()), "head")
    assert not any(kernel.recomputed_in for kernel in found.values())


def test_a_skip_connection_crosses_every_unit_on_its_way():
    build = ViewBuilder("skip", batch=2)
    dims = (("batch", 2), ("", 4))
    x = build.tensor("x", dims, kind="input")
    for i, name in enumerate("abc"):
        weight = build.parameter(f"w{name}", ("", 4), ("", 4))
        build.operator(
            f"fc{name}", "matmul", (x, weight), (build.tensor(name, dims),), equation="bm,mn->bn"
        )
        x = name
        build.unit(f"unit{i}")
    build.tensor("out", dims, kind="output")
    build.operator("join", "elementwise", ("c", "a"), ("out",), function="add")
    build.unit("join")
    program = lower(build.view(), Sharding(micro_batch=2))
    assert [unit.boundary_bytes / 16 for unit in program.pieces] == [1, 2, 2, 0]


def test_units_of_a_network_differ():
    program = lower(networks.mlp(784, 300, 100, 10), Sharding(micro_batch=8))
    sizes = [sum(part.elements for part in unit.parameters) for unit in program.pieces]
    assert sizes == [785 * 300, 301 * 100, 101 * 10]
    assert [unit.boundary_bytes for unit in program.pieces] == [2.0 * 8 * 300, 2.0 * 8 * 100, 0]


def test_convolutions_are_split_by_channels():
    program = lower(networks.cnn(64, 128, 64), Sharding(tp=2, micro_batch=4))
    stem = kernels(program, "stem")["stem"]
    assert stem.flops == 2 * 4 * 16 * 16 * 32 * 3 * 9
    assert gemm(program, "stem", "stem") == (1, 4 * 16 * 16, 32, 3 * 9)
    assert transfers(program, "stem") == []
    assert transfers(program, "block0", phase="forward") == [("all_reduce", "tp")]


@pytest.mark.parametrize("view", [networks.mlp(784, 300, 10), networks.cnn(8, 16)])
def test_a_view_is_stretched_to_the_micro_batch(view):
    small, large = (lower(view, Sharding(micro_batch=n)) for n in (2, 6))
    for one, three in zip(small.pieces, large.pieces, strict=True):
        assert three.boundary_bytes == 3 * one.boundary_bytes
        assert three.saved_bytes["none"] == 3 * one.saved_bytes["none"]
        for a, b in zip(one.work, three.work, strict=True):
            assert b.flops == 3 * a.flops


def test_tables_of_shardings_are_lowered_as_one():
    view = computation(GPT3)
    sizes = [(1, 1, 1), (2, 4, 1), (4, 8, 2), (1, 2, 4)]
    columns = np.array(sizes, dtype=float).T
    table = lower(view, Sharding(micro_batch=columns[0], tp=columns[1], cp=columns[2]))
    for row, (micro_batch, tp, cp) in enumerate(sizes):
        single = lower(view, Sharding(micro_batch=micro_batch, tp=tp, cp=cp))
        for many, one in zip(table.pieces, single.pieces, strict=True):
            computes = {w.name: w for w in one.work if isinstance(w, Compute)}
            for work in many.work:
                if isinstance(work, Compute):
                    assert np.broadcast_to(work.flops, 4)[row] == computes[work.name].flops
            for mode, saved in many.saved_bytes.items():
                assert np.broadcast_to(saved, 4)[row] == one.saved_bytes[mode]
            assert np.broadcast_to(many.working_bytes, 4)[row] == one.working_bytes
            assert many.repeat == one.repeat


def test_an_axis_of_one_leaves_no_trace():
    view = computation(GPT3)
    plain = lower(view, Sharding())
    assert not [w for unit in plain.pieces for w in unit.work if isinstance(w, Transfer)]
    assert lower(view, Sharding(sequence_parallel=True)).pieces == plain.pieces


def test_recomputing_runs_the_marked_kernels_again():
    found = kernels(lower(computation(GPT3), Sharding(tp=8)))
    core = {name for name, kernel in found.items() if "selective" in kernel.recomputed_in}
    assert core == {
        "attention.scores",
        "attention.softmax",
        "attention.dropout",
        "attention.context",
    }
    forward = {name for name, kernel in found.items() if kernel.phase == "forward"}
    assert {name for name, kernel in found.items() if "full" in kernel.recomputed_in} == forward
    head = kernels(lower(computation(GPT3), Sharding()), "head")
    assert not any(kernel.recomputed_in for kernel in head.values())


def test_the_optimizer_updates_every_parameter_in_float32():
    program = lower(computation(GPT3), Sharding(tp=8))
    layer = piece(program, "layer")
    elements = sum(part.elements for part in layer.parameters)
    assert sum(kernel.read_bytes for kernel in layer.update) == (2 + 2 + 12) * elements
    assert sum(kernel.written_bytes for kernel in layer.update) == (2 + 12) * elements


def test_a_training_step_is_lowered_as_its_forward_pass_is():
    view = computation(GPT3)
    whole = lower(with_backward(view), Sharding(tp=2))
    assert whole.pieces == lower(view, Sharding(tp=2)).pieces


def test_unknown_operators_are_replicated_with_a_warning():
    build = ViewBuilder("odd", batch=4)
    x = build.tensor("x", (("batch", 4), ("", 8)), kind="input")
    weight = build.parameter("w", ("", 8), ("", 8))
    y = build.tensor("y", (("batch", 4), ("", 8)))
    z = build.tensor("z", (("batch", 4), ("", 8)), kind="output")
    build.operator("fc", "matmul", (x, weight), (y,), equation="bm,mn->bn")
    build.operator("fft", "fourier", (y,), (z,))
    build.unit("all")
    program = lower(build.view(), Sharding(tp=2))
    assert ("all_gather", "tp") in transfers(program, "all")
    assert [w for w in program.warnings if "'fourier'" in w]


def test_branches_cost_their_probability_and_loops_their_turns():
    def body(name: str, width: int) -> ViewBuilder:
        build = ViewBuilder(name, batch=4)
        x = build.tensor("x", (("batch", 4), ("", 8)), kind="input")
        up = build.tensor("w", (("", 8), ("", width)), kind="input")
        y = build.tensor("y", (("batch", 4), ("", width)), kind="output")
        build.operator("fc", "matmul", (x, up), (y,), equation="bm,mn->bn")
        build.unit("all")
        return build

    build = ViewBuilder("odd", batch=4)
    x = build.tensor("x", (("batch", 4), ("", 8)), kind="input")
    weight = build.parameter("w", ("", 8), ("", 8))
    y, z = (build.tensor(name, (("batch", 4), ("", 8))) for name in "yz")
    branch = Operator(
        name="choose",
        kind="cond",
        inputs=(x, weight),
        outputs=(y,),
        attributes={"probability": (0.9, 0.1)},
        bodies=(body("often", 8).view(), body("rarely", 8).view()),
    )
    loop = Operator(
        name="again",
        kind="while_loop",
        inputs=(y, weight),
        outputs=(z,),
        count=5.0,
        bodies=(body("turn", 8).view(),),
    )
    build.add(branch)
    build.add(loop)
    build.unit("all")
    view = build.view()
    assert [operator.kind for operator in view.operators] == ["cond", "while_loop"]
    found = kernels(lower(view, Sharding(micro_batch=4)), "all")
    assert {name: kernel.count for name, kernel in found.items() if kernel.phase == "forward"} == {
        "choose/0.fc": 0.9,
        "choose/1.fc": 0.1,
        "again/0.fc": 5.0,
    }


def test_a_loop_keeps_the_activations_of_every_turn():
    turn = ViewBuilder("turn", batch=4)
    dims = (("batch", 4), ("", 8))
    carried = turn.tensor("carried", dims, kind="input")
    after = turn.tensor("after", dims, kind="output")
    turn.operator("square", "elementwise", (carried,), (after,), function="square")
    turn.unit("all")

    def kept(turns: float) -> Number:
        build = ViewBuilder("loop", batch=4)
        x, weight = build.tensor("x", dims, kind="input"), build.parameter("w", ("", 8), ("", 8))
        y, z = (build.tensor(name, dims) for name in "yz")
        end = build.tensor("end", dims, kind="output")
        build.operator("fc", "matmul", (x, weight), (y,), equation="bm,mn->bn")
        build.unit("first")
        build.add(
            Operator(
                name="loop",
                kind="while_loop",
                inputs=(y,),
                outputs=(z,),
                count=turns,
                bodies=(turn.view(),),
            )
        )
        build.operator("last", "elementwise", (z,), (end,), function="square")
        build.unit("rest")
        return piece(lower(build.view(), Sharding(micro_batch=4)), "rest").saved_bytes["none"]

    assert kept(5) > kept(1)
