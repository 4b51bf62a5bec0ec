"""A training that the plan starts itself: its command, what its ranks are told, and what is wrong with it.

Reads the user's module, and never runs it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from airflow_training.admission.own_programs import program_command, with_program
from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.plan import Engine, Plan
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import InputError, Problem
from airflow_training.execution.execution_plan import plan_of
from airflow_training.frameworks.pods import training_container
from airflow_training.planning.sources.models import is_reference

__all__ = ["engine_document", "engine_job", "engine_problems", "execution_problems", "is_engine"]

RUNNER = "airflow_training.execution.runner"
_RANK_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
_FUNCTIONS = ("loss", "optimizer", "data")


def is_engine(plan: Plan) -> bool:
    """Whether the plan starts the training itself, instead of the user's command."""
    return plan.model is not None and "engine" in plan.apply and plan.engine is not None


def engine_job(job: TrainingJob) -> TrainingJob:
    """The job with the command of our runner, where its plan starts the training itself; else as it is."""
    if not is_engine(job.spec.plan):
        return job
    return with_program(job, _command(job))


def engine_document(plan: Plan) -> Mapping[str, Any]:
    """What the runner reads in the plan's file; empty where the plan starts nothing."""
    if not is_engine(plan) or plan.engine is None:
        return {}
    engine = plan.engine
    document = engine.model_dump(mode="json", exclude={"python"}, exclude_none=True)
    return {"engine": {**document, "model": _model(plan, engine)}}


def execution_problems(document: Mapping[str, Any]) -> list[str]:
    """Why a plan cannot be carried out by our runner, in words; empty where it can."""
    try:
        plan_of(document)
    except InputError as error:
        return [f"{problem.field}: {problem.message}" for problem in error.problems]
    return []


def engine_problems(job: TrainingJob, resolved: ResolvedJob) -> list[Problem]:
    """Every mistake in `spec.plan.engine` that the resolved job and the module's text show."""
    plan = job.spec.plan
    if not is_engine(plan) or plan.engine is None:
        return []
    return [
        *_model_problems(plan, plan.engine),
        *_function_problems(plan, plan.engine, resolved),
        *_axis_problems(plan),
        *_role_problems(job, resolved),
    ]


def _command(job: TrainingJob) -> list[str]:
    engine = job.spec.plan.engine
    return program_command(job, RUNNER, python=engine.python if engine is not None else ["python"])


def _model(plan: Plan, engine: Engine) -> str:
    return engine.model or (plan.model if isinstance(plan.model, str) else "")


def _model_problems(plan: Plan, engine: Engine) -> Iterator[Problem]:
    if engine.model is not None and not is_reference(engine.model):
        yield _problem(
            "bad_reference",
            "model",
            "is no module:function",
            value=engine.model,
            hint="train:example calls example() of train.py",
        )
    elif engine.model is None and not is_reference(_model(plan, engine)):
        yield _problem(
            "missing",
            "model",
            "is required, as spec.plan.model is no Python: nothing else says which module is trained",
            hint="train:example calls example() of train.py",
        )


def _function_problems(plan: Plan, engine: Engine, resolved: ResolvedJob) -> Iterator[Problem]:
    reference = _model(plan, engine)
    names = {key: getattr(engine, key) for key in _FUNCTIONS}
    for key, name in names.items():
        if not name.isidentifier():
            yield _problem("bad_name", key, "is no name of a function", value=name)
    if not is_reference(reference):
        return
    module, _, function = reference.partition(":")
    known = _names_of(module, resolved)
    if known is None:
        return
    if engine.model is not None:  # else the planner calls it, and says what is wrong
        names = {"model": function, **names}
    for key, name in names.items():
        if name.isidentifier() and name not in known:
            yield _problem(
                "bad_reference",
                key,
                f"{module} has no '{name}'",
                value=name,
                hint=did_you_mean(name, known) or f"define it in {module.replace('.', '/')}.py",
            )


def _axis_problems(plan: Plan) -> Iterator[Problem]:
    for axis in ("cp", "ep"):
        if plan.constraints.get(axis, 1) != 1:
            yield Problem(
                code="conflict",
                field=f"spec.plan.constraints.{axis}",
                value=plan.constraints[axis],
                message="engine carries out no other than 1",
                allowed=(1,),
            )


def _role_problems(job: TrainingJob, resolved: ResolvedJob) -> Iterator[Problem]:
    ranked = [role for role in resolved.roles if role.rank_offset is not None]
    absent = sorted({name for role in ranked for name in _RANK_VARIABLES if name not in role.env})
    if absent:
        yield Problem(
            code="not_supported",
            field="spec.framework",
            value=resolved.framework,
            message=f"its instances do not get {', '.join(absent)}, by which engine forms its group",
            hint="framework: pytorch",
        )
    positions = {role.name: place for place, role in enumerate(job.spec.roles)}
    for role in ranked:
        container = training_container(role.template, None, name=role.container)
        if container.get("command") != _command(job):
            yield Problem(
                code="conflict",
                field=f"spec.roles[{positions[role.name]}].template",
                message="its container has a command, and engine starts the training itself",
                hint="leave the command out, or take engine out of apply",
            )


def _names_of(module: str, resolved: ResolvedJob) -> frozenset[str] | None:
    """The names that a module beside the job defines; None where it is not there, or not all can be seen."""
    if not resolved.base_dir:
        return None
    path = Path(resolved.base_dir, *module.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, SyntaxError):
            continue
        names = set(_defined(tree.body))
        return None if "*" in names else frozenset(names)
    return None


def _defined(body: list[ast.stmt]) -> Iterator[str]:
    for each in body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield each.name
        elif isinstance(each, ast.Import | ast.ImportFrom):
            for alias in each.names:
                yield alias.asname or alias.name.partition(".")[0]
        elif isinstance(each, ast.Assign | ast.AnnAssign):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            for target in targets:
                yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))
        else:  # `if`, `try`, `with`: what either way defines
            for inner in ("body", "orelse", "finalbody"):
                yield from _defined(getattr(each, inner, []))
            for handler in getattr(each, "handlers", []):
                yield from _defined(handler.body)


def _problem(code: str, key: str, message: str, *, value: Any = None, hint: str = "") -> Problem:
    return Problem(
        code=code, field=f"spec.plan.engine.{key}", value=value, message=message, hint=hint
    )
