"""`plan job | search | explain | estimate | calibrate | schema`: the planner without a run."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from airflow_training.cli.documents import (
    FileArgument,
    JobOption,
    ParamOption,
    RuntimeOption,
    SetOption,
    only_job,
    parse_params,
    run_variables,
)
from airflow_training.cli.output import (
    fail,
    next_step,
    note,
    print_json,
    print_warnings,
)
from airflow_training.cli.plan_files import Destination, read_lines
from airflow_training.cli.plan_questions import (
    Options,
    PlanQuestion,
    constants_of,
    pairs,
    pricing_of,
)
from airflow_training.cli.program import command_group
from airflow_training.errors import InputError

__all__ = ["app"]

app = command_group("plan", "Find how to split a model and where to place it.")

OutputOption = Annotated[
    str,
    typer.Option(
        "--output", "-o", metavar="table|json|FILE", help="How to print, or the file to write."
    ),
]
PlotOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Draw the best plan: .svg or .png.")
]
ModelOption = Annotated[
    str,
    typer.Option(metavar="MODEL", help="A YAML or JSON file, or module:function to trace."),
]
ClusterOption = Annotated[Path | None, typer.Option(metavar="FILE", help="A cluster document.")]
BatchOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Samples per step; required with --model.")
]
PrecisionOption = Annotated[str, typer.Option(help="fp32, tf32, fp16, bf16 or fp8.")]
ObjectiveOption = Annotated[str, typer.Option(help="time, money, or {tokens: N, budget: M}.")]
ConstraintOption = Annotated[
    list[str] | None,
    typer.Option("--constraint", "-c", metavar="KEY=VALUE", help="tp=8, 'pp={max: 4}', ..."),
]
FrameworkOption = Annotated[str, typer.Option(help="The training framework that will run it.")]
ConstantsOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Of `plan calibrate`, instead of the shipped constants."),
]
TopOption = Annotated[int, typer.Option(min=1, help="How many plans to show.")]


@app.command()
def job(
    file: FileArgument,
    params: ParamOption = None,
    overrides: SetOption = None,
    name: JobOption = "",
    runtime: RuntimeOption = "",
    output: OutputOption = "table",
    plot: PlotOption = None,
) -> None:
    """Plan a job as its run would, without running it."""
    from airflow_training.admission.check import check_file
    from airflow_training.admission.plan.step import plan_job
    from airflow_training.cli.context import history, settings
    from airflow_training.planning.answers.text import plan_lines
    from airflow_training.supervise.runtimes import make_runtime

    target = Destination(output)
    known = settings()
    given = parse_params(params)
    checked = check_file(
        file,
        params=given.values,
        overrides=overrides or (),
        variables=run_variables(""),
        runtime=runtime or None,
        fetch=True,
        planner=lambda job, resolved: (
            plan_job(
                job,
                resolved,
                runtime=lambda made: make_runtime(made.runtime, known, connection=made.connection),
                history=history(),
            )
            if name in ("", job.metadata.name)
            else None
        ),
    )
    given.check(checked, path=file)
    chosen = only_job(checked, name=name, path=str(file))
    print_warnings(chosen.warnings, path=str(file))
    plan = chosen.resolved.plan if chosen.resolved else None
    if plan is None:
        raise fail("spec.plan", "the job asks for no plan", code="missing", hint="write spec.plan")
    target.show(plan.document, plan_lines(plan.document))
    _draw(plot, plan.document)
    next_step("run", file)


@app.command()
def search(
    model: ModelOption = "",
    cluster: ClusterOption = None,
    global_batch: BatchOption = None,
    precision: PrecisionOption = "bf16",
    objective: ObjectiveOption = "time",
    constraint: ConstraintOption = None,
    runtime: FrameworkOption = "generic",
    constants: ConstantsOption = None,
    top_k: TopOption = 5,
    requests: Annotated[
        Path | None,
        typer.Option("--input", metavar="FILE", help="Requests, a JSON document a line."),
    ] = None,
    output: OutputOption = "table",
    plot: PlotOption = None,
) -> None:
    """Find the best plans for a model on a cluster.

    With --input, answer a file of requests: a line each.
    """
    target = Destination(output)
    if requests is not None:
        from airflow_training.planning.answers.requests import answers

        _refuse_with_input(model=model, cluster=cluster, plot=plot)
        documents = (document for _, document in read_lines(requests))
        pricing = pricing_of(constants)
        answered = list(answers(documents, pricing=pricing, clock=time.perf_counter))
        target.write_lines(answered)
        _complain(answered, what="request")
        return
    from airflow_training.cli.plan_tables import search_lines

    asked = _constraints(locals())
    found = _search(asked.question(), top_k=top_k)
    target.show(found, search_lines(found))
    _draw(plot, found["plans"][0])


@app.command()
def explain(
    model: ModelOption = "",
    cluster: ClusterOption = None,
    global_batch: BatchOption = None,
    precision: PrecisionOption = "bf16",
    objective: ObjectiveOption = "time",
    constraint: ConstraintOption = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option("--strategy", "-s", metavar="KEY=VALUE", help="Explain this split: tp=8 ..."),
    ] = None,
    runtime: FrameworkOption = "generic",
    constants: ConstantsOption = None,
    output: OutputOption = "table",
    plot: PlotOption = None,
) -> None:
    """Show where the time and the memory of a plan go, and why others lost.

    Of the best plan, or of the split that --strategy names.
    """
    from airflow_training.cli.plan_tables import explained_lines

    asked = _constraints(locals())
    question = asked.question()
    found = _search(question, top_k=1)
    (best,) = found.pop("plans")
    plan, slower = best, None
    if strategy:
        plan = _estimated(question, pairs("--strategy", strategy))
        slower = plan["step_time_s"] / best["step_time_s"] - 1
    explained = {"plan": plan, "best": best, "slower_than_best": slower, **found}
    Destination(output).show(explained, explained_lines(explained))
    _draw(plot, plan)


@app.command()
def estimate(
    rows: Annotated[
        Path, typer.Option("--input", metavar="FILE", help="Rows, a JSON document a line.")
    ],
    output: OutputOption = "json",
    constants: ConstantsOption = None,
) -> None:
    """Estimate step time and memory of strategies: a line for each row.

    A row names a model, a cluster and a strategy. Keys nobody knows are ignored. A row that makes
    no sense is answered by its error.
    """
    from airflow_training.planning.answers.estimating import answers

    documents = (document for _, document in read_lines(rows))
    answered = list(answers(documents, constants_of(constants)))
    Destination(output).write_lines(answered)
    _complain(answered, what="row")


@app.command()
def calibrate(
    rows: Annotated[
        Path,
        typer.Option("--input", metavar="FILE", help="Measured rows, a JSON document a line."),
    ],
    output: OutputOption = "table",
    constants: ConstantsOption = None,
) -> None:
    """Fit the constants of the cost model to steps that you measured.

    A row is one of `plan estimate` with `measured: {step_time_s}`. Few rows move little. Give the
    file that --output names to the other commands, or to [training] planner_constants.
    """
    from airflow_training.cli.plan_tables import calibrated_lines
    from airflow_training.planning.cost.refining import refine
    from airflow_training.planning.sources.calibration import (
        constants_document,
        mean_error,
        measured_rows,
    )

    measured = measured_rows(read_lines(rows))
    if not measured:
        message = "holds no row with measured: {step_time_s}"
        raise fail("--input", message, code="missing", value=str(rows))
    before = constants_of(constants)
    after = refine(measured, before)
    document = constants_document(after, source=f"fitted to {len(measured)} rows of {rows.name}")
    moved = [
        (each.name, getattr(before, each.name), getattr(after, each.name))
        for each in dataclasses.fields(after)
        if getattr(before, each.name) != getattr(after, each.name)
    ]
    errors = (mean_error(measured, before), mean_error(measured, after))
    Destination(output).show(document, calibrated_lines(moved, *errors, rows=len(measured)))


@app.command()
def schema() -> None:
    """Print the JSON Schema of cluster documents, for editors."""
    from airflow_training.planning.sources.cluster_document import cluster_schema

    print_json(cluster_schema())


def _constraints(typed: Mapping[str, Any]) -> Options:
    """Return what `search` and `explain` are both told, by the names of their parameters."""
    return Options(**{each.name: typed[each.name] for each in dataclasses.fields(Options)})


def _search(question: PlanQuestion, *, top_k: int) -> dict[str, Any]:
    """Return the answer of a search as a document; raises InputError."""
    from airflow_training.planning.answers.report import answer_document
    from airflow_training.planning.search import search as search_plan

    started = time.perf_counter()
    answer = search_plan(
        question.workload,
        question.cluster,
        constraints=question.constraints,
        objective=question.objective,
        top_k=top_k,
        pricing=question.pricing,
    )
    return {
        **answer_document(answer),
        "seconds": round(time.perf_counter() - started, 3),
        "measurements": question.measurements,
    }


def _estimated(question: PlanQuestion, split: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan of a split that was typed; raises InputError."""
    from airflow_training.planning.answers.report import plan_document
    from airflow_training.planning.search.space import limits_of, undivided
    from airflow_training.planning.sources.documents import parse_strategy
    from airflow_training.planning.view.capacity import missing_devices

    workload = question.workload
    known = {"global_batch": workload.global_batch, "precision": workload.precision}
    strategy = parse_strategy({**known, **split}, at=("strategy",))
    problems = missing_devices(strategy, question.cluster)
    if problems:
        raise InputError(problems)
    for each in undivided(strategy, limits_of(workload, question.cluster)):
        note(f"warning: {each}: the largest share is counted")
    return plan_document(question.pricing.estimate(workload, question.cluster, strategy))


def _refuse_with_input(**given: object) -> None:
    """Raise InputError for options that a file of requests leaves no room for."""
    for name, value in given.items():
        if value:
            raise fail(
                f"--{name}", "is no option beside --input", code="conflict", value=str(value)
            )


def _complain(answered: Sequence[Mapping[str, Any]], *, what: str) -> None:
    """Name the lines that were answered by an error, and exit with 2 where there are some."""
    bad = [(place, each) for place, each in enumerate(answered, start=1) if "error" in each]
    for place, each in bad:
        name = f"number {place}" if each["id"] is None else each["id"]
        note(f"error: {what} {name}: {each['error']}")
    if bad:
        raise typer.Exit(2)


def _draw(plot: Path | None, plan: Mapping[str, Any]) -> None:
    if plot is not None:
        from airflow_training.cli.plan_pictures import draw

        draw(plan, plot)
        note(f"wrote {plot}")
