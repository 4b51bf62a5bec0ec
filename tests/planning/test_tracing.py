"""Any torch module becomes a view that is split, priced and planned like every other."""

from __future__ import annotations

import sys

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from airflow_training.errors import InputError
from airflow_training.planning.search.searching import search
from airflow_training.planning.sources.torch import trace
from airflow_training.planning.view.catalogue import device, link
from airflow_training.planning.view.cluster import ClusterView, NodeGroup
from airflow_training.planning.view.lowering import lower
from airflow_training.planning.view.plan import Workload
from airflow_training.planning.view.program import Compute, Sharding, Transfer
from airflow_training.planning.view.serial import from_json, to_json
from tests.planning import torch_modules as modules
from tests.planning.view_execution import run_serial

pytestmark = pytest.mark.filterwarnings("ignore")  # torch deprecates within itself

NODE = NodeGroup(
    name="node",
    count=2,
    device=device("A100-SXM4-80GB"),
    devices_per_node=4,
    intra_node=link("nvlink3"),
    nic=link("infiniband-200"),
    nics_per_node=4,
)
CLUSTER = ClusterView(name="two", groups=(NODE,))


def tokens(*shape):
    return torch.randint(0, 10, shape)


CASES = {
    "mlp": lambda: (modules.UnevenMlp(8, 64, 128, 16, 4), (torch.ones(4, 8),)),
    "cnn": lambda: (modules.SmallResNet(), (torch.ones(4, 3, 32, 32), tokens(4))),
    "gpt": lambda: (modules.SmallGpt(), (tokens(2, 16), tokens(2, 16))),
}


@pytest.fixture(scope="module")
def traced():
    return {name: trace(*make()) for name, make in CASES.items()}


def kinds(view):
    return [operator.kind for operator in view.operators]


def test_an_mlp_is_products_and_functions_between_them(traced):
    view = traced["mlp"]
    assert kinds(view) == ["matmul", "elementwise"] * 3 + ["matmul", "reduce"]
    assert [unit.name for unit in view.units] == [f"layers.{i}" for i in range(4)]
    assert view.tensors["layers.1.weight"].shape == (128, 64)
    assert view.tensors["layers.1.weight"].kind == "parameter"
    assert view.batch == 4
    assert view.tensors["x"].axes == ("batch", "")


def test_the_view_computes_what_the_module_does():
    module, _ = CASES["mlp"]()
    x = torch.randint(-3, 4, (4, 8)).float()
    view = trace(module, (x,))
    weights = {name: p.detach().numpy().astype(int) for name, p in module.named_parameters()}
    values = run_serial(view, {"x": x.numpy().astype(int), **weights})
    (result,) = (name for name, tensor in view.tensors.items() if tensor.kind == "output")
    assert values[result] == int(module(x))


def test_equal_blocks_of_a_cnn_become_one_unit_that_repeats(traced):
    view = traced["cnn"]
    assert [(unit.name, unit.repeat) for unit in view.units] == [
        ("stem", 1),
        ("first.0", 2),
        ("wider", 1),
        ("second.0", 3),
        ("head", 1),
    ]
    assert {"conv", "batch_norm", "pool", "cross_entropy"} <= set(kinds(view))
    assert "first.1.one.weight" not in view.tensors


def test_the_layers_of_a_transformer_become_one_unit_that_repeats(traced):
    view = traced["gpt"]
    assert [unit.repeat for unit in view.units] == [1, 3, 1]
    assert kinds(view).count("attention") == 1
    assert next(op for op in view.operators if op.kind == "attention").attributes["causal"]


@pytest.mark.parametrize("name", CASES)
def test_every_operator_has_a_rule(traced, name):
    program = lower(traced[name], Sharding(micro_batch=8.0, tp=2.0))
    assert program.warnings == ()


def test_a_traced_transformer_is_split_as_one_by_hand(traced):
    """Tensor parallelism takes two all-reduces per layer in each direction (Shoeybi et al. 2019)."""
    program = lower(traced["gpt"], Sharding(micro_batch=2.0, tp=2.0))
    layer = next(piece for piece in program.pieces if piece.repeat == 3)
    moves = [(work.phase, work.collective) for work in layer.work if isinstance(work, Transfer)]
    assert moves == [("forward", "all_reduce")] * 2 + [("backward", "all_reduce")] * 2


@pytest.mark.parametrize("name", CASES)
def test_the_flops_are_those_of_the_products(traced, name):
    """Forward products, each element a multiplication and an addition: torch counts the same."""
    module, inputs = CASES[name]()
    counter = FlopCounterMode(display=False)
    with counter, sdpa_kernel(SDPBackend.MATH):
        module(*inputs)
    view = traced[name]
    program = lower(view, Sharding(micro_batch=float(view.batch)))
    ours = sum(
        work.flops * piece.repeat * (2 if work.kind == "attention" else 1)  # torch counts no mask
        for piece in program.pieces
        for work in piece.work
        if isinstance(work, Compute)
        and work.phase == "forward"
        and work.kind in {"matmul", "conv", "attention"}
    )
    assert ours == pytest.approx(counter.get_total_flops(), rel=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_all_parameters_are_counted(traced, name):
    module, _ = CASES[name]()
    program = lower(traced[name], Sharding())
    held = sum(p.elements * piece.repeat for piece in program.pieces for p in piece.parameters)
    assert held == sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("name", CASES)
def test_a_traced_view_survives_its_json(traced, name):
    assert from_json(to_json(traced[name])) == traced[name]


@pytest.mark.parametrize("name", CASES)
def test_a_traced_module_is_planned_end_to_end(traced, name):
    workload = Workload(view=traced[name], global_batch=64)
    answer = search(workload, CLUSTER, top_k=3)
    best = answer.plans[0]
    assert best.fits
    assert 0 < best.step_seconds < 1
    assert best.strategy.devices <= CLUSTER.devices


def test_branches_of_a_condition_keep_their_probability():
    view = trace(modules.Conditional(), (torch.ones(2, 4),), probabilities={"cond": (0.9, 0.1)})
    (node,) = (operator for operator in view.operators if operator.kind == "cond")
    assert node.attributes["probability"] == (0.9, 0.1)
    assert [kinds(body) for body in node.bodies] == [["matmul"], ["matmul", "elementwise"]]
    matmuls = forward_matmuls(view)
    assert [work.count for work in matmuls] == [0.9, 0.1]


def test_a_loop_keeps_its_body_and_how_often_it_runs():
    view = trace(modules.Loop(), (torch.ones(2, 4),), trips={"while_loop": 5})
    (node,) = (operator for operator in view.operators if operator.kind == "while_loop")
    assert node.count == 5
    assert "matmul" in kinds(node.bodies[0])
    assert [work.count for work in forward_matmuls(view)] == [5.0]


def test_a_scan_runs_as_often_as_its_sequence_is_long():
    view = trace(modules.Scan(), (torch.ones(6, 4),))
    (node,) = (operator for operator in view.operators if operator.kind == "scan")
    assert node.count == 6
    assert node.attributes["carried"] == 1
    assert [work.count for work in forward_matmuls(view)] == [6.0]


def test_what_a_scan_gives_twice_is_told_apart():
    """As its state and as what it gives for a turn."""
    view = trace(modules.ScanOfOne(), (torch.ones(6, 4),))
    (node,) = (operator for operator in view.operators if operator.kind == "scan")
    outputs = [each for each in node.bodies[0].tensors.values() if each.kind == "output"]
    assert len(outputs) == len(node.outputs) == 2
    assert [work.count for work in forward_matmuls(view)] == [6.0]


def forward_matmuls(view):
    program = lower(view, Sharding(micro_batch=float(view.batch)))
    return [
        work
        for piece in program.pieces
        for work in piece.work
        if isinstance(work, Compute) and work.kind == "matmul" and work.phase == "forward"
    ]


def test_python_that_branches_on_data_is_traced_the_way_it_went():
    view = trace(modules.Branching(), (torch.ones(2, 4),))
    assert kinds(view) == ["matmul", "elementwise", "reduce"]
    assert "two.weight" not in view.tensors


def test_what_depends_on_sizes_only_is_computed_beforehand():
    view = trace(modules.Rotary(), (torch.ones(3, 8),))
    units = [(unit.name, unit.repeat) for unit in view.units]
    assert units == [("layers.0", 1), ("layers.1", 3), ("sum_1", 1)]
    assert set(kinds(view)) == {"matmul", "elementwise", "reduce"}


def test_a_module_without_memory_is_traced():
    with torch.device("meta"):
        module = modules.SmallGpt(layers=2)
        inputs = (tokens(2, 16), tokens(2, 16))
    assert [unit.repeat for unit in trace(module, inputs).units] == [1, 2, 1]


def test_an_operator_without_a_rule_is_told():
    view = trace(modules.Sorting(4, 4), (torch.ones(2, 4),))
    assert any("sort" in warning for warning in lower(view, Sharding(tp=2.0)).warnings)


@pytest.mark.parametrize(
    ("module", "inputs", "message"),
    [
        pytest.param(
            torch.nn.Linear,
            (torch.ones(2, 4),),
            "module: type is no torch.nn.Module\n  hint: give an instance, not the class",
            id="a-class",
        ),
        pytest.param(
            torch.nn.Linear(4, 4),
            (torch.ones(2, 5),),
            "module: the module does not run on its inputs: ",
            id="wrong-shape",
        ),
    ],
)
def test_what_cannot_be_traced_is_told(module, inputs, message):
    with pytest.raises(InputError) as told:
        trace(module, inputs)
    assert str(told.value).startswith(message)


def test_without_torch_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match="pip install torch"):
        trace(object(), ())
