"""What is remembered of earlier tables changes no price."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_training.planning.cost import memory_bytes, step_seconds
from airflow_training.planning.cost.constants import FROZEN
from airflow_training.planning.cost.tables import as_table
from airflow_training.planning.view.catalogue import device, link, network
from airflow_training.planning.view.cluster import ClusterView, NodeGroup
from airflow_training.planning.view.plan import Workload
from airflow_training.planning.view.strategy import Strategy, TransformerModel
from airflow_training.planning.view.transformer import computation
from tests.examples import examples

MODEL = TransformerModel(hidden=1024, layers=8, heads=16, seq=1024, vocab=32000)
NODES = NodeGroup(
    name="a100",
    count=4,
    device=device("A100-SXM4-80GB"),
    devices_per_node=8,
    intra_node=link("nvlink3"),
    nic=network(200),
    nics_per_node=8,
)
SPLITS = [
    Strategy(global_batch=64, tp=tp, pp=pp, dp=dp, micro_batch=micro, sequence_parallel=tp == 4)
    for tp in (1, 2, 4)
    for pp in (1, 2)
    for dp in (1, 4)
    for micro in (1, 2)
]


def workload(**values) -> Workload:
    """Return a workload of its own, of which nothing is remembered."""
    return Workload(**{"view": computation(MODEL), "global_batch": 64, **values})


def cluster(**values) -> ClusterView:
    return ClusterView(name="test", groups=(replace(NODES, **values),))


ON = [
    (workload(), cluster(), FROZEN),
    (workload(), cluster(count=3), FROZEN),
    (workload(), cluster(nic=network(50)), FROZEN),
    (workload(), cluster(efficiency=0.5), FROZEN),
    (workload(global_batch=32), cluster(), FROZEN),
    (workload(precision="fp32"), cluster(), FROZEN),
    (workload(runtime="megatron-lm"), cluster(), FROZEN),
    (workload(), cluster(), replace(FROZEN, straggling=0.5, kernel_seconds=1e-4)),
]
FRESH = [
    (
        step_seconds(*asked[:2], as_table(SPLITS), asked[2]),
        memory_bytes(*asked[:2], as_table(SPLITS)),
    )
    for asked in ON
]


@settings(max_examples=examples(25), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(ON) - 1),
            st.lists(st.integers(0, len(SPLITS) - 1), min_size=1, unique=True),
        ),
        min_size=2,
        max_size=8,
    )
)
def test_prices_do_not_depend_on_what_was_asked_before(questions):
    view = computation(MODEL)
    for number, rows in questions:
        work, on, constants = ON[number]
        work = replace(work, view=view)
        table = as_table([SPLITS[row] for row in rows])
        seconds, held = FRESH[number]
        np.testing.assert_allclose(step_seconds(work, on, table, constants), seconds[rows], 1e-12)
        np.testing.assert_allclose(memory_bytes(work, on, table), held[rows], 1e-12)
