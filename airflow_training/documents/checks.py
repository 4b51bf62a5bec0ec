"""Cross-field checks of a job that need no framework and no runtime. Pure.

Each function takes the spec and yields the mistakes of one kind; `check` runs them all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from airflow_training.documents.graph import find_cycles
from airflow_training.documents.models import ResumeFrom, TrainingJobSpec
from airflow_training.documents.params import check_value
from airflow_training.documents.paths import Loc, format_path
from airflow_training.documents.plan import Objective, Plan
from airflow_training.documents.policies import ExitCodes
from airflow_training.documents.roles import NetworkRule, Role
from airflow_training.documents.schedules import cron_of, has_fixed_offset, uneven_step
from airflow_training.documents.spelling import did_you_mean
from airflow_training.documents.text import counted
from airflow_training.documents.trainer import Trainer
from airflow_training.errors import Problem

__all__ = ["check", "warnings_of"]

_LONGEST_ADDRESS = 500
"""Characters of `checkpoint.uri`: with run id and digest it makes a reference, of which 1 KB is promised."""


def check(
    spec: TrainingJobSpec,
    document: Mapping[str, Any],
    *,
    params: Collection[str] | None = None,
) -> list[Problem]:
    """Return the mistakes of a job whose fields are each right by themselves.

    Args:
        spec: as the models read it.
        document: what it was read from, or what `job.to_dict()` gives.
        params: names of parameters known besides those of `dag.params`; None: any name may come.
    """
    from airflow_training.documents.expressions import check_expressions
    from airflow_training.documents.pods import check_pods

    return [
        *_role_names(spec),
        *_unknown_roles(spec),
        *_dependencies(spec),
        *_cycles(spec),
        *_elastic(spec),
        *_spot(spec),
        *_thresholds(spec),
        *_success(spec),
        *_rules(spec),
        *_restart(spec),
        *_gang(spec),
        *_checkpoint(spec),
        *_code(spec),
        *_data(spec),
        *_dag(spec),
        *_plan(spec),
        *_framework(spec),
        *_trainer(spec),
        *check_pods(document),
        *check_expressions(document, spec=spec, params=params),
    ]


def warnings_of(spec: TrainingJobSpec, document: Mapping[str, Any]) -> list[Problem]:
    """Advice on a job that is valid; arguments as in `check`."""
    from airflow_training.documents.expressions import shell_warnings
    from airflow_training.documents.pods import pod_warnings

    return [
        *shell_warnings(document),
        *pod_warnings(document),
        *_fixed_offset(spec),
        *_uneven(spec),
        *_idle(spec),
    ]


def _role_names(spec: TrainingJobSpec) -> Iterator[Problem]:
    seen: set[str] = set()
    for i, role in enumerate(spec.roles):
        if role.name in seen:
            message = "two roles have this name"
            yield _problem("duplicate", ("roles", i, "name"), role.name, message)
        seen.add(role.name)


def _unknown_roles(spec: TrainingJobSpec) -> Iterator[Problem]:
    known = list(dict.fromkeys(role.name for role in spec.roles))
    for loc, name in _role_references(spec):
        if name not in known:
            yield Problem(
                code="unknown_role",
                field=format_path(("spec", *loc)),
                value=name,
                message=f"no role is called '{name}'",
                allowed=known,
                hint=did_you_mean(name, known),
            )


def _network_rules(role: Role) -> Iterator[tuple[str, Sequence[NetworkRule]]]:
    policy = role.network_policy
    if policy is not None:
        yield "ingress", policy.ingress or ()
        yield "egress", policy.egress or ()


def _role_references(spec: TrainingJobSpec) -> Iterator[tuple[Loc, str]]:
    for i, role in enumerate(spec.roles):
        for j, dependency in enumerate(role.depends_on):
            yield ("roles", i, "dependsOn", j, "role"), dependency.role
        for way, allowed in _network_rules(role):
            for j, each in enumerate(allowed):
                for k, name in enumerate(each.roles):
                    yield ("roles", i, "networkPolicy", way, j, "roles", k), name
    if spec.success_policy is not None:
        for i, name in enumerate(spec.success_policy.target_roles):
            yield ("successPolicy", "targetRoles", i), name
    if spec.failure_policy is not None:
        for i, name in enumerate(spec.failure_policy.target_roles):
            yield ("failurePolicy", "targetRoles", i), name
        for i, rule in enumerate(spec.failure_policy.rules):
            for j, name in enumerate(rule.target_roles):
                yield ("failurePolicy", "rules", i, "targetRoles", j), name
    if spec.output is not None and spec.output.role is not None:
        yield ("output", "role"), spec.output.role
    if spec.plan.role is not None:
        yield ("plan", "role"), spec.plan.role


def _dependencies(spec: TrainingJobSpec) -> Iterator[Problem]:
    by_name = {role.name: role for role in spec.roles}
    for i, role in enumerate(spec.roles):
        seen: set[tuple[str, str]] = set()
        for j, dependency in enumerate(role.depends_on):
            loc: Loc = ("roles", i, "dependsOn", j)
            if dependency.role == role.name:
                message = f"'{role.name}' cannot wait for itself"
                yield _problem("self_dependency", (*loc, "role"), dependency.role, message)
            if (dependency.role, dependency.status) in seen:
                message = f"'{role.name}' waits for this already"
                yield _problem("duplicate", (*loc, "role"), dependency.role, message)
            seen.add((dependency.role, dependency.status))
            target = by_name.get(dependency.role)
            if target is not None and target.replicas == 0 and dependency.require == "Any":
                message = f"'{target.name}' has 0 replicas, so none of them can ever be there"
                yield _problem("unsatisfiable_policy", (*loc, "require"), "Any", message)


def _cycles(spec: TrainingJobSpec) -> Iterator[Problem]:
    edges = {
        role.name: [d.role for d in role.depends_on if d.role != role.name] for role in spec.roles
    }
    for cycle in find_cycles(edges):
        waiting, awaited = cycle[-2], cycle[-1]
        shown = " -> ".join(cycle)
        for i, role in enumerate(spec.roles):
            if role.name == waiting:
                j = next(j for j, d in enumerate(role.depends_on) if d.role == awaited)
                loc: Loc = ("roles", i, "dependsOn", j, "role")
                yield _problem("cycle", loc, awaited, f"the roles wait for each other: {shown}")
                break


def _elastic(spec: TrainingJobSpec) -> Iterator[Problem]:
    for i, role in enumerate(spec.roles):
        low, high, loc = role.min_replicas, role.max_replicas, ("roles", i)
        if low is not None and high is None:
            message = "minReplicas makes a role elastic and needs maxReplicas beside it"
            yield _problem("conflict", (*loc, "minReplicas"), low, message)
        if high is not None and low is None:
            message = "maxReplicas makes a role elastic and needs minReplicas beside it"
            yield _problem("conflict", (*loc, "maxReplicas"), high, message)
        if low is not None and high is not None and low > high:
            message = f"minReplicas {low} is more than maxReplicas {high}"
            yield _problem("conflict", (*loc, "minReplicas"), low, message)
        elif low is not None and low > role.replicas:
            message = f"must be at most replicas, which is {role.replicas}"
            yield _problem("out_of_range", (*loc, "minReplicas"), low, message)
        elif high is not None and high < role.replicas:
            message = f"must be at least replicas, which is {role.replicas}"
            yield _problem("out_of_range", (*loc, "maxReplicas"), high, message)


def _spot(spec: TrainingJobSpec) -> Iterator[Problem]:
    for i, role in enumerate(spec.roles):
        if role.spot is not None and role.spot.replicas > role.replicas:
            message = f"must be at most replicas, which is {role.replicas}"
            loc = ("roles", i, "spot", "replicas")
            yield _problem("out_of_range", loc, role.spot.replicas, message)


def _thresholds(spec: TrainingJobSpec) -> Iterator[Problem]:
    for i, role in enumerate(spec.roles):
        pairs = (
            ("minSucceeded", role.min_succeeded, "succeed"),
            ("minFailed", role.min_failed, "fail"),
        )
        for key, threshold, verb in pairs:
            if isinstance(threshold, int) and threshold > role.replicas:
                message = f"{threshold} of {counted(role.replicas, 'instance')} can never {verb}"
                yield _problem("unsatisfiable_policy", ("roles", i, key), threshold, message)
        if role.replicas == 0 and role.min_succeeded == "Any":
            message = "a role of 0 replicas has none that could succeed"
            yield _problem("unsatisfiable_policy", ("roles", i, "minSucceeded"), "Any", message)


def _success(spec: TrainingJobSpec) -> Iterator[Problem]:
    targeted = spec.success_policy is not None and spec.success_policy.target_roles
    if spec.roles and not targeted and all(role.tracked is False for role in spec.roles):
        message = "no role is tracked, so nothing can decide that the job succeeded"
        yield _problem("unsatisfiable_policy", ("successPolicy",), None, message)


def _rules(spec: TrainingJobSpec) -> Iterator[Problem]:
    seen: set[str] = set()
    rules = spec.failure_policy.rules if spec.failure_policy is not None else ()
    for i, rule in enumerate(rules):
        if rule.name and rule.name in seen:
            loc: Loc = ("failurePolicy", "rules", i, "name")
            yield _problem("duplicate", loc, rule.name, "two rules have this name")
        seen.add(rule.name)


def _restart(spec: TrainingJobSpec) -> Iterator[Problem]:
    backoff = spec.restart.backoff
    if backoff.max_seconds < backoff.initial_seconds:
        message = f"maxSeconds is less than initialSeconds, which is {backoff.initial_seconds:g}"
        yield _problem(
            "conflict", ("restart", "backoff", "maxSeconds"), backoff.max_seconds, message
        )
    codes = spec.restart.exit_codes
    if isinstance(codes, ExitCodes):
        for code in sorted(set(codes.retryable) & set(codes.permanent)):
            loc: Loc = ("restart", "exitCodes", "permanent", codes.permanent.index(code))
            yield _problem("conflict", loc, code, f"exit code {code} is retryable and permanent")


def _gang(spec: TrainingJobSpec) -> Iterator[Problem]:
    wanted = spec.scheduling_policy.min_available
    total = sum(role.replicas for role in spec.roles)
    if wanted is not None and wanted > total:
        message = f"the job has only {counted(total, 'instance')}"
        loc: Loc = ("schedulingPolicy", "minAvailable")
        yield _problem("min_available_too_large", loc, wanted, message)


def _checkpoint(spec: TrainingJobSpec) -> Iterator[Problem]:
    checkpoint = spec.checkpoint
    if checkpoint is None:
        return
    if len(checkpoint.uri) > _LONGEST_ADDRESS:
        message = (
            f"is longer than {_LONGEST_ADDRESS} characters: a reference to it would be above 1 KB"
        )
        yield _problem("out_of_range", ("checkpoint", "uri"), checkpoint.uri, message)
    given = [
        key
        for key, value in (
            ("everySeconds", checkpoint.every_seconds),
            ("everySteps", checkpoint.every_steps),
            ("every", checkpoint.every),
        )
        if value is not None
    ]
    for key in given[1:]:
        message = f"{key} and {given[0]} exclude each other"
        yield _problem("conflict", ("checkpoint", key), None, message)
    resume = checkpoint.resume
    if isinstance(resume, ResumeFrom):
        if resume.from_run is not None and resume.asset is not None:
            message = "fromRun and asset exclude each other"
            yield _problem("conflict", ("checkpoint", "resume", "asset"), resume.asset, message)
        elif resume.from_run is None and resume.asset is None:
            message = "needs fromRun or asset"
            yield _problem("missing", ("checkpoint", "resume"), None, message)
        elif resume.step is not None and resume.from_run is None:
            message = "step and asset exclude each other: it is a step of a run"
            yield _problem("conflict", ("checkpoint", "resume", "step"), resume.step, message)


def _code(spec: TrainingJobSpec) -> Iterator[Problem]:
    if spec.code is not None and spec.code.archive is not None and spec.code.packages:
        message = "packages and archive exclude each other"
        yield _problem("conflict", ("code", "packages"), None, message)


def _data(spec: TrainingJobSpec) -> Iterator[Problem]:
    if spec.data is not None and spec.data.shard is not None and not spec.data.files:
        message = "data.shard shares out data.files, and there are none"
        yield _problem("missing", ("data", "files"), None, message)


def _dag(spec: TrainingJobSpec) -> Iterator[Problem]:
    for name, param in (spec.dag.params if spec.dag is not None else {}).items():
        loc: Loc = ("spec", "dag", "params", name)
        if not name.isidentifier():
            message = "a parameter's name is made of letters, digits and '_'"
            yield Problem(code="bad_name", field=format_path(loc), value=name, message=message)
        if "default" in param.model_fields_set:
            yield from check_value(param, param.default, (*loc, "default"))


def _fixed_offset(spec: TrainingJobSpec) -> Iterator[Problem]:
    dag = spec.dag
    if dag is None or not dag.start_date or dag.timezone or not cron_of(dag.schedule):
        return
    if has_fixed_offset(dag.start_date):
        yield Problem(
            code="conflict",
            field="spec.dag.startDate",
            value=dag.start_date,
            message="its offset is that of the schedule all year: it does not follow the clocks",
            hint="name the place: timezone: America/Chicago",
        )


def _uneven(spec: TrainingJobSpec) -> Iterator[Problem]:
    cron = cron_of(spec.dag.schedule) if spec.dag is not None else ""
    if cron and (said := uneven_step(cron)):
        yield Problem(
            code="conflict",
            field="spec.dag.schedule",
            value=cron,
            message=said,
            hint="take a step that divides 60 minutes, or 24 hours",
        )


def _idle(spec: TrainingJobSpec) -> Iterator[Problem]:
    """A job that succeeds at once, as it trains nothing; one that may grow is scaled later."""
    if spec.roles and not any(role.replicas or role.max_replicas for role in spec.roles):
        yield Problem(
            code="conflict",
            field="spec.roles",
            value=0,
            message="no role has an instance: the job succeeds at once and trains nothing",
            hint="write replicas: 1, or more",
        )


def _plan(spec: TrainingJobSpec) -> Iterator[Problem]:
    plan = spec.plan
    if not plan.model_fields_set:
        return
    if plan.model is None and spec.trainer is None:  # else it is the network that is trained
        yield _problem("missing", ("plan", "model"), None, "is required")
    pinned = plan.constraints.get("globalBatch", plan.constraints.get("global_batch"))
    if plan.global_batch is None and pinned is None:
        message = "is required: the samples of one step"
        yield _problem("missing", ("plan", "globalBatch"), None, message)
    elif plan.global_batch is not None and pinned not in (None, plan.global_batch):
        message = f"constraints pin another global batch, {pinned}"
        yield _problem("conflict", ("plan", "globalBatch"), plan.global_batch, message)
    yield from _engine(spec)
    goal = plan.objective
    if isinstance(goal, Objective) and (goal.by == "tokens" or goal.tokens or goal.budget):
        for key in ("tokens", "budget"):
            if getattr(goal, key) is None:
                message = "is required: tokens and budget go together"
                yield _problem("missing", ("plan", "objective", key), None, message)


def _engine(spec: TrainingJobSpec) -> Iterator[Problem]:
    """Yield what is wrong with a training that the plan is to start itself."""
    plan, engine = spec.plan, spec.plan.engine
    if "engine" not in plan.apply:
        if engine is not None:
            message = "has no effect: apply does not name engine"
            yield _problem("conflict", ("plan", "engine"), None, message)
        return
    for needed in ("env", "microBatch"):
        if needed not in plan.apply:
            message = f"engine carries out what {needed} gives: name both"
            yield _problem("conflict", ("plan", "apply"), "engine", message)
    if plan.precision == "fp8":
        message = "is not carried out by engine: torch casts no module to it by itself"
        yield _problem("conflict", ("plan", "precision"), plan.precision, message)
    if spec.trainer is not None:
        yield from _split_trainer(spec.trainer, plan)
        return
    if engine is None:
        message = "is required: how long to train, as epochs: 3"
        yield _problem("missing", ("plan", "engine"), None, message)
    elif (engine.steps is None) == (engine.epochs is None):
        code = "missing" if engine.steps is None else "conflict"
        message = "how long to train is said by either steps or epochs"
        yield _problem(code, ("plan", "engine", "steps"), engine.steps, message)
    for loc, shorthand in [((), spec), *((("roles", i), r) for i, r in enumerate(spec.roles))]:
        for key in ("command", "args"):
            if getattr(shorthand, key):
                message = (
                    "engine starts the training itself: leave it out, or take engine out of apply"
                )
                yield _problem("conflict", (*loc, key), None, message)


def _split_trainer(trainer: Trainer, plan: Plan) -> Iterator[Problem]:
    """Yield what is wrong with a network that is trained by the plan."""
    if plan.engine is not None:
        message = "has no effect: trainer says what is trained, and how long"
        yield _problem("conflict", ("plan", "engine"), None, message)
    if isinstance(plan.model, str) or (plan.model and plan.model.get("kind") != "Network"):
        message = "is not what is planned for: engine trains the network of trainer"
        yield _problem("conflict", ("plan", "model"), None, message)
    for key, name in (("batchSize", "batch_size"), ("updateInterval", "update_interval")):
        message = "has no effect with engine: leave it out; plan.globalBatch is the samples of an update, which the plan cuts"
        if name in trainer.model_fields_set:
            yield _problem("conflict", ("trainer", key), getattr(trainer, name), message)
        if key in trainer.from_params:
            yield _problem("conflict", ("trainer", "fromParams", key), None, message)


def _framework(spec: TrainingJobSpec) -> Iterator[Problem]:
    if "framework" not in spec.model_fields_set and spec.trainer is None:
        yield _problem("missing", ("framework",), None, "is required")


def _trainer(spec: TrainingJobSpec) -> Iterator[Problem]:
    """Yield what is wrong with a training of a network, as far as its network is not needed for it."""
    trainer = spec.trainer
    if trainer is None:
        return
    yield from _network_source(trainer)
    yield from _trainer_data(trainer, spec)
    if trainer.optimizer.momentum is not None and trainer.optimizer.name not in ("SGD", "RMSprop"):
        message = f"{trainer.optimizer.name} has no momentum: it is of SGD and RMSprop"
        where = ("trainer", "optimizer", "momentum")
        yield _problem("conflict", where, trainer.optimizer.momentum, message)
    for loc, shorthand in [((), spec), *((("roles", i), r) for i, r in enumerate(spec.roles))]:
        tracked = getattr(shorthand, "tracked", None) is not False
        for key in ("command", "args") if tracked else ():
            if getattr(shorthand, key):
                message = "trainer starts the training itself: leave it out, or take trainer out"
                yield _problem("conflict", (*loc, key), None, message)


def _network_source(trainer: Trainer) -> Iterator[Problem]:
    source = trainer.network
    given = [key for key in ("name", "file", "document") if getattr(source, key) is not None]
    if len(given) != 1:
        message = "is said by exactly one of name, file and document"
        code = "conflict" if given else "missing"
        yield _problem(code, ("trainer", "network"), given or None, message)
    if source.version is not None and source.name is None:
        message = "is of a saved network, which name names"
        yield _problem("conflict", ("trainer", "network", "version"), source.version, message)


def _trainer_data(trainer: Trainer, spec: TrainingJobSpec) -> Iterator[Problem]:
    data = trainer.data
    if spec.data is None or not (spec.data.uri or spec.data.files):
        message = "is required: the files that trainer trains on, in data.uri and data.files"
        yield _problem("missing", ("data",), None, message)
    elif spec.data.shard is not None:
        message = "trainer cuts the files itself, by bytes: leave shard out"
        yield _problem("conflict", ("data", "shard"), spec.data.shard, message)
    for place, name in enumerate(spec.data.files if spec.data else ()):
        if "{{" in name:
            message = "has an expression, which trainer does not fill in here: data.uri takes them"
            yield _problem("not_supported", ("data", "files", place), name, message)
    if data.format in ("csv", "parquet") and data.label is None and not data.inputs:
        message = f"is required: {data.format} does not say which column is the label"
        yield _problem("missing", ("trainer", "data", "label"), None, message)
    unused = {
        "libsvm": ("label", "inputs", "classes"),
        "images": ("label", "inputs", "query"),
        "text": ("label", "inputs", "query", "classes"),
    }
    for key in unused.get(data.format, ()):
        if getattr(data, key):
            message = f"has no effect: format {data.format} brings its own"
            yield _problem("conflict", ("trainer", "data", key), getattr(data, key), message)
    if "delimiter" in data.model_fields_set and data.format != "csv":
        message = "has no effect: it is of format csv"
        yield _problem("conflict", ("trainer", "data", "delimiter"), data.delimiter, message)


def _problem(code: str, loc: Sequence[str | int], value: Any, message: str) -> Problem:
    return Problem(code=code, field=format_path(("spec", *loc)), value=value, message=message)
