"""What torchtitan 0.2 makes of our file: a JSON case a line, one answer a line."""

import tempfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from answering import answer
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class
from torchtitan.config import ConfigManager
from torchtitan.distributed import ParallelDims, pipeline_parallel


def understood(case, path):
    path.write_text(case["text"])
    config = ConfigManager().parse_args(["--job.config_file", str(path)])
    split, training = config.parallelism, config.training
    dims = ParallelDims(
        dp_replicate=split.data_parallel_replicate_degree,
        dp_shard=split.data_parallel_shard_degree,
        cp=split.context_parallel_degree,
        tp=split.tensor_parallel_degree,
        pp=split.pipeline_parallel_degree,
        ep=split.expert_parallel_degree,
        etp=split.expert_tensor_parallel_degree,
        world_size=case["world"],
    )
    if dims.ep > 1:  # as build_mesh lays the experts' ranks
        assert dims.dp_shard * dims.cp * dims.tp % (dims.etp * dims.ep) == 0, "no mesh of experts"
    if not dims.fsdp_enabled and dims.dp_replicate_enabled:  # as parallelize_llama does
        assert dims.world_size == dims.dp_replicate, "DDP beside another axis"
    replicas = dims.dp_replicate * dims.dp_shard
    rounds, rest = divmod(training.global_batch_size, training.local_batch_size * replicas)
    assert rest == 0, "the global batch is no multiple of the local ones"
    micro_batch = training.local_batch_size
    if dims.pp_enabled:
        micro_batch = split.pipeline_parallel_microbatch_size
        pieces, rest = divmod(training.local_batch_size, micro_batch)
        assert rest == 0, "the local batch is no multiple of the micro-batches"
        rounds *= pieces
    stages = layers_of(config, case["layers"]) if dims.pp_enabled else [case["layers"]]
    schedule = get_schedule_class(split.pipeline_parallel_schedule)
    return {
        "tp": dims.tp,
        "pp": dims.pp,
        "cp": dims.cp,
        "ep": dims.ep,
        "experts_tp": dims.etp,
        "dp": replicas,
        "shards": dims.dp_shard,
        "reshards": split.fsdp_reshard_after_forward,
        "virtual_stages": len(stages) // dims.pp,
        "stage_layers": stages,
        "schedule": schedule.__name__.removeprefix("Schedule"),
        "many_stages": issubclass(schedule, PipelineScheduleMulti),
        "micro_batch": micro_batch,
        "rounds": rounds,
        "global_batch": training.global_batch_size,
        "recompute": config.activation_checkpoint.mode,
        "precision": training.mixed_precision_param,
        "offload": training.enable_cpu_offload,
    }


class Split(Exception):
    """Ends `pipeline_llm` where it has the names of each stage."""


def layers_of(config, layers):
    """Return how many layers torchtitan's own code puts on each stage."""
    dims = SimpleNamespace(get_mesh=lambda _: None, pp=config.parallelism.pipeline_parallel_degree)
    model = SimpleNamespace(n_layers=layers)

    def split(_model, _mesh, _schedule, _device, stages):
        raise Split(stages)

    with mock.patch.object(pipeline_parallel, "pipeline_module_split", split):
        try:
            pipeline_parallel.pipeline_llm(None, dims, config, None, model, None, None)
        except Split as found:
            (stages,) = found.args
    assert stages[0][0] == "tok_embeddings"
    assert stages[-1][-2:] == ["norm", "output"]
    names = [name for stage in stages for name in stage if name.startswith("layers.")]
    assert names == [f"layers.{number}" for number in range(layers)]
    return [sum(name.startswith("layers.") for name in stage) for stage in stages]


with tempfile.TemporaryDirectory() as folder:
    answer(partial(understood, path=Path(folder, "plan.toml")))
