"""What training programs are told of a plan: the numbers multiply to the devices and the batch."""

from __future__ import annotations

import json
import sys

import pytest

from airflow_training.planning.answers.launchers import (
    batch_variables,
    deepspeed_config,
    megatron_arguments,
    megatron_variables,
    split_variables,
    torchtitan_config,
)
from airflow_training.planning.view.strategy import Strategy

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PIPELINED = Strategy(
    tp=8,
    pp=4,
    dp=2,
    micro_batch=2,
    global_batch=64,
    zero=1,
    sequence_parallel=True,
    recompute="selective",
    overlap="dp",
    virtual_stages=3,
)
SHARDED = Strategy(dp=16, micro_batch=4, global_batch=128, zero=3, recompute="full")


def test_the_variables_say_the_split_and_the_batch():
    assert split_variables(PIPELINED) == {
        "TP_SIZE": "8",
        "PP_SIZE": "4",
        "DP_SIZE": "2",
        "CP_SIZE": "1",
        "EP_SIZE": "1",
        "VIRTUAL_STAGES": "3",
        "ZERO_STAGE": "1",
        "SEQUENCE_PARALLEL": "1",
        "RECOMPUTE": "selective",
        "PRECISION": "bf16",
    }
    assert batch_variables(PIPELINED) == {
        "MICRO_BATCH_SIZE": "2",
        "GLOBAL_BATCH_SIZE": "64",
        "GRADIENT_ACCUMULATION_STEPS": "16",
    }


def test_megatron_gets_a_word_for_each_part_of_the_strategy():
    assert " ".join(megatron_arguments(PIPELINED)) == (
        "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --context-parallel-size 1"
        " --micro-batch-size 2 --global-batch-size 64 --num-virtual-stages-per-pipeline-rank 3"
        " --sequence-parallel --use-distributed-optimizer --recompute-granularity selective"
        " --overlap-grad-reduce --overlap-param-gather --bf16"
    )


def test_megatron_gets_a_layout_where_the_layers_do_not_divide():
    words = " ".join(megatron_arguments(Strategy(pp=4, global_batch=8), layers=30))
    assert "--pipeline-model-parallel-layout Et*7|t*8|t*8|t*7L" in words
    even = Strategy(pp=4, global_batch=8)
    assert "layout" not in " ".join(megatron_arguments(even, layers=32))


def test_megatron_splits_the_sequence_where_experts_meet_tensor_parallelism():
    assert "--sequence-parallel" in megatron_arguments(Strategy(tp=2, dp=2, ep=2, global_batch=8))
    assert "--sequence-parallel" not in megatron_arguments(Strategy(tp=2, dp=2, global_batch=8))


@pytest.mark.parametrize(
    ("strategy", "wanted"),
    [
        (Strategy(tp=2, global_batch=8), {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}),
        (Strategy(cp=2, zero=1, global_batch=8), {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}),
        (Strategy(tp=2, dp=2, zero=2, global_batch=8), {}),
        (Strategy(dp=2, pp=2, global_batch=8), {}),
    ],
    ids=["tp", "cp", "sharded-gradients", "neither"],
)
def test_megatron_is_told_how_many_connections_a_device_has(strategy, wanted):
    assert megatron_variables(strategy) == wanted


@pytest.mark.parametrize(
    ("strategy", "wanted"),
    [
        pytest.param(
            Strategy(pp=3, global_batch=6, stage_layers=(3, 4, 2)),
            "--pipeline-model-parallel-layout Et*3|t*4|t*2L",
            id="uneven-stages",
        ),
        pytest.param(
            Strategy(dp=8, ep=4, global_batch=8),
            "--expert-model-parallel-size 4",
            id="experts",
        ),
        pytest.param(SHARDED, "--data-parallel-sharding-strategy optim_grads_params", id="zero-3"),
        pytest.param(
            SHARDED,
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
            id="full-recompute",
        ),
        pytest.param(
            Strategy(global_batch=1, precision="fp8"), "--bf16 --fp8-format hybrid", id="fp8"
        ),
    ],
)
def test_megatron_gets_what_is_special(strategy, wanted):
    assert wanted in " ".join(megatron_arguments(strategy))


def test_deepspeed_multiplies_to_the_global_batch():
    config = json.loads(deepspeed_config(SHARDED))
    product = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"]
    assert product * SHARDED.dp == config["train_batch_size"] == 128
    assert config["zero_optimization"]["stage"] == 3
    assert config["bf16"] == {"enabled": True}


@pytest.mark.parametrize(
    ("strategy", "there", "missing"),
    [
        (Strategy(tp=2, dp=2, global_batch=8), {"autotp_size": 2}, True),
        (Strategy(tp=2, cp=2, global_batch=8), None, False),
        (Strategy(tp=2, pp=2, global_batch=8), None, False),
    ],
    ids=["alone", "with-sequence", "with-stages"],
)
def test_deepspeed_splits_tensors_where_nothing_else_is_split(strategy, there, missing):
    config = json.loads(deepspeed_config(strategy))
    assert config.get("tensor_parallel") == there
    assert ("train_batch_size" not in config) is missing


def test_deepspeed_splits_sequences():
    config = json.loads(deepspeed_config(Strategy(cp=2, dp=4, global_batch=8)))
    assert (config["sequence_parallel_size"], config["data_parallel_size"]) == (2, 4)


@pytest.mark.parametrize("strategy", [PIPELINED, SHARDED], ids=["pipelined", "sharded"])
def test_torchtitan_multiplies_to_the_devices(strategy):
    config = tomllib.loads(torchtitan_config(strategy))
    degrees = config["parallelism"]
    product = 1
    for key in (
        "data_parallel_replicate_degree",
        "data_parallel_shard_degree",
        "tensor_parallel_degree",
        "context_parallel_degree",
        "pipeline_parallel_degree",
    ):
        product *= degrees[key]
    assert product == strategy.devices
    assert config["activation_checkpoint"]["mode"] == strategy.recompute


def test_torchtitan_shards_for_zero_3_and_lets_the_pipeline_cut_the_batch():
    sharded = tomllib.loads(torchtitan_config(SHARDED))
    assert sharded["parallelism"]["data_parallel_shard_degree"] == 16
    assert sharded["parallelism"]["fsdp_reshard_after_forward"] == "always"
    assert sharded["training"]["local_batch_size"] == 4
    pipelined = tomllib.loads(torchtitan_config(PIPELINED))
    assert pipelined["parallelism"]["pipeline_parallel_schedule"] == "Interleaved1F1B"
    assert pipelined["training"]["local_batch_size"] == 32
    assert pipelined["parallelism"]["pipeline_parallel_microbatch_size"] == 2


@pytest.mark.parametrize(
    ("strategy", "replicas", "shards"),
    [
        (Strategy(dp=4, zero=1, global_batch=8), 4, 1),
        (Strategy(dp=4, tp=2, global_batch=8), 1, 4),
        (Strategy(dp=4, cp=2, global_batch=8), 4, 1),
        (Strategy(dp=8, ep=4, global_batch=8), 2, 4),
    ],
    ids=["replicas", "beside-tensors", "beside-sequences", "experts"],
)
def test_torchtitan_shards_where_it_cannot_replicate(strategy, replicas, shards):
    degrees = tomllib.loads(torchtitan_config(strategy))["parallelism"]
    assert degrees["data_parallel_replicate_degree"] == replicas
    assert degrees["data_parallel_shard_degree"] == shards


def test_torchtitan_gives_a_rank_the_stages_of_the_plan():
    parallelism = tomllib.loads(torchtitan_config(PIPELINED, layers=24))["parallelism"]
    assert parallelism["pipeline_parallel_layers_per_stage"] == 2  # of 4 ranks with 3 stages each
    assert parallelism["pipeline_parallel_first_stage_less_layers"] == 0
    assert parallelism["pipeline_parallel_last_stage_less_layers"] == 0


def test_torchtitan_gets_uneven_stages_by_name():
    uneven = Strategy(pp=2, global_batch=8, stage_layers=(1, 2))
    assert tomllib.loads(torchtitan_config(uneven))["parallelism"][
        "module_fqns_per_model_part"
    ] == [
        ["tok_embeddings", "layers.0"],
        ["layers.1", "layers.2", "norm", "output"],
    ]


def test_torchtitan_splits_experts_like_tensors():
    degrees = tomllib.loads(torchtitan_config(Strategy(dp=4, tp=2, ep=2, global_batch=8)))
    assert degrees["parallelism"]["expert_tensor_parallel_degree"] == 2
