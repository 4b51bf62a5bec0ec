"""A job with `spec.trainer` as one that can run: its command, its file, and every mistake."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_training.admission.own_programs import program_command, with_program
from airflow_training.admission.trainer.fitting import fit_problems, input_layers
from airflow_training.admission.trainer.network import FoundNetwork, find_network
from airflow_training.admission.trainer.parameters import with_parameters
from airflow_training.documents.loading import dump_yaml
from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.plan import Plan
from airflow_training.documents.resolved import FileTemplate, ResolvedJob, ResolvedRole
from airflow_training.documents.resolved_blocks import ResolvedTrainer
from airflow_training.documents.trainer import OptimizerChoice, Trainer
from airflow_training.errors import Problem
from airflow_training.networks.generator import module_text
from airflow_training.networks.resolving import Net, ResolvedNetwork
from airflow_training.runtimes.registry import adapter_of

__all__ = ["AdmittedTrainer", "admit_trainer", "missing_ranks", "trainer_document", "trainer_job"]

MODULE = "airflow_training.networks.trainer"
_FILE = "trainer/trainer.json"
_RANK_VARIABLES = ("RANK", "WORLD_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedTrainer:
    """A training without mistakes, as instances get it."""

    text: str
    """Of the file."""
    resolved: ResolvedTrainer

    def equipped(self, job: ResolvedJob) -> ResolvedJob:
        """Return the job with the file and its variables in every instance that trains."""
        files_dir = adapter_of(job.runtime).files_dir
        written = f"{files_dir}/{_FILE}" if files_dir else _FILE
        seen = f"{files_dir or '{{ instance_dir }}'}/{_FILE}"
        env = {"TRAINER_FILE": seen, "TRAINER_DIGEST": self.resolved.digest}
        if growth := job.restart.on_out_of_memory:  # too large a share is no mistake then
            env["TRAINER_MEMORY_UP_TO"] = str(growth.up_to_bytes)
        file = FileTemplate(path=written, content=self.text, literal=True)

        def equip(role: ResolvedRole) -> ResolvedRole:
            if role.rank_offset is None:
                return role
            return replace(role, env={**role.env, **env}, files=(*role.files, file))

        return replace(job, roles=tuple(map(equip, job.roles)), trainer=self.resolved)


def trainer_job(job: TrainingJob) -> TrainingJob:
    """Return the job with the command of the trainer, where it has one; else as it is."""
    trainer = job.spec.trainer
    if trainer is None:
        return job
    # a plan says how many ranks there are; without one torchrun does, where they come and go
    elastic = not _is_split(job) and any(role.min_replicas is not None for role in job.spec.roles)
    return with_program(job, program_command(job, MODULE, python=trainer.python, elastic=elastic))


def _is_split(job: TrainingJob) -> bool:
    """Whether the job's plan splits the network that it trains."""
    return job.spec.trainer is not None and "engine" in job.spec.plan.apply


def admit_trainer(
    job: TrainingJob, *, base_dir: str, values: Mapping[str, Any]
) -> tuple[AdmittedTrainer | None, list[Problem]]:
    """Find a job's network and write down its training for the instances; None, and every mistake, where it is not good."""
    trainer = job.spec.trainer
    if trainer is None:
        return None, []
    declared = job.spec.dag.params if job.spec.dag else {}
    trainer, mistakes = with_parameters(trainer, values, declared=declared)
    found, problems = find_network(trainer.network, base_dir=base_dir)
    problems += mistakes
    if found is None:
        return None, problems
    problems += fit_problems(trainer, found.network)
    if problems:
        return None, problems
    document = trainer_document(trainer, found, files=_files(job))
    if _is_split(job):
        document |= {"byPlan": True, "batchSize": _global_batch(job.spec.plan)}
    text = json.dumps(document, indent=1) + "\n"
    settings = trainer.model_dump(mode="json", by_alias=True, exclude={"network"})
    settings["batchSize"] = document["batchSize"]
    resolved = ResolvedTrainer(
        network=found.source,
        settings=settings,
        digest=f"sha256:{hashlib.sha256(text.encode()).hexdigest()}",
    )
    return AdmittedTrainer(text=text, resolved=resolved), []


def missing_ranks(job: TrainingJob, resolved: ResolvedJob) -> list[Problem]:
    """Return that a framework does not tell its instances their ranks, by which the trainer forms its group."""
    ranked = [role for role in resolved.roles if role.rank_offset is not None]
    absent = sorted({name for role in ranked for name in _RANK_VARIABLES if name not in role.env})
    if job.spec.trainer is None or not absent:
        return []
    message = f"its instances do not get {', '.join(absent)}, by which the trainer forms its group"
    return [
        Problem(
            code="not_supported",
            field="spec.framework",
            value=resolved.framework,
            message=message,
            hint="framework: pytorch",
        )
    ]


def trainer_document(
    trainer: Trainer, found: FoundNetwork, *, files: Sequence[str]
) -> dict[str, Any]:
    """The file by which `networks.trainer.settings` knows network, data and settings."""
    network, data = found.network, trainer.data
    test = network.nets["test"]
    judged = _judged(network)
    outputs = dict.fromkeys([*test.outputs, *(each["scores"] for each in judged)])
    inputs = [
        {
            "name": each.name,
            "shape": list(each.shape),
            "dtype": each.dtype,
            "isLabel": each.is_label,
            "columns": _columns(data.inputs.get(each.name, [])),
            "below": each.below,
            "ignored": each.ignored,
        }
        for each in input_layers(network)
    ]
    return {
        "network": dict(found.source.document),
        "networkDigest": found.source.digest,
        "networkText": dump_yaml(dict(found.source.document)),
        "module": module_text(_returning(network, [*outputs])),
        "inputs": inputs,
        "trainInputs": [each.layer.name for each in network.nets["train"].inputs],
        "testInputs": [each.layer.name for each in test.inputs],
        "outputs": [*outputs],
        "metrics": judged,
        "data": {
            "format": data.format,
            "label": data.label or "",
            "query": data.query or "",
            "classes": list(data.classes),
            "delimiter": data.delimiter,
            "files": list(files),
            "test": list(data.test),
        },
        "epochs": trainer.epochs,
        "batchSize": trainer.batch_size,
        "optimizer": {"name": trainer.optimizer.name, "options": _options(trainer.optimizer)},
        "updateInterval": trainer.update_interval,
        "threads": trainer.threads,
        "seed": trainer.seed,
        "shuffle": trainer.shuffle,
    }


def _global_batch(plan: Plan) -> Any:
    pinned = plan.constraints.get("globalBatch", plan.constraints.get("global_batch"))
    return plan.global_batch or pinned


def _files(job: TrainingJob) -> Sequence[str]:
    return job.spec.data.files if job.spec.data else ()


def _columns(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _judged(network: ResolvedNetwork) -> list[dict[str, Any]]:
    """Return the metrics of the test net: what each judges, by which truth."""
    return [
        {
            "name": each.layer.name,
            "type": each.layer.type,
            "k": network.layers[each.layer.name].inferred.params.get("k"),
            "scores": each.inputs[0],
            "labels": each.inputs[1] if len(each.inputs) > 1 else each.inputs[0],
        }
        for each in network.nets["test"].of_kind("metric")
    ]


def _returning(network: ResolvedNetwork, names: Sequence[str]) -> ResolvedNetwork:
    """Return a network whose test net gives these layers too: what metrics judge is gathered from all ranks."""
    test: Net = network.nets["test"]
    outputs = {**{name: name for name in names}, **test.outputs}
    return replace(network, nets={**network.nets, "test": replace(test, outputs=outputs)})


def _options(choice: OptimizerChoice) -> dict[str, float]:
    given: Mapping[str, float | None] = {
        "lr": choice.learning_rate,
        "weight_decay": choice.weight_decay,
        "momentum": choice.momentum,
    }
    return {name: value for name, value in given.items() if value is not None}
