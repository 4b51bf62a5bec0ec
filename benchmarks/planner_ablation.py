"""Which parts of the planner its answers need: each is replaced by the simplest thing in its place, in turn.

    python -m benchmarks.planner_ablation                    # every part
    python -m benchmarks.planner_ablation floors counts      # these
    python -m benchmarks.planner_ablation --asked "search small" "search network"    # few questions: minutes

A part has a process of its own, with at most `_MOST_SECONDS` of the processor. Answers and counted work do not
depend on the machine: `priced` strategies went through the whole time model, `weighed` ones through that of memory;
shardings times pieces were `lowered`, and `passes` over them priced, where searches are asked for the first time, and again.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from airflow_training.errors import InputError
from airflow_training.planning.cost import floors, refining, shardings, table_cache
from airflow_training.planning.cost import passes as cost_passes
from airflow_training.planning.cost.constants import FROZEN
from airflow_training.planning.reshard import reshard, steps
from airflow_training.planning.reshard.distribution import Distribution, Mesh
from airflow_training.planning.search import counts, heterogeneous, search, searching, space
from airflow_training.planning.search.constraints import parse
from airflow_training.planning.search.pricing import Pricing
from airflow_training.planning.sources.clusters import parse_cluster
from airflow_training.planning.sources.documents import parse_model
from airflow_training.planning.view import axis_names, lowering, splitting
from airflow_training.planning.view.builder import ViewBuilder
from airflow_training.planning.view.computation import ComputationView
from airflow_training.planning.view.plan import StrategyTable, Workload
from airflow_training.planning.view.stages import even_layers
from airflow_training.planning.view.transformer import computation
from benchmarks.fit_planner import errors
from benchmarks.planner_rows import by_set, calibration, published
from benchmarks.planner_search import A100, CASES, T4, model

_MOST_SECONDS = 90
_SAMPLE = 6
"""Of so many published configurations one is searched."""
_BASE = "(nothing)"
_PLANNING = Path(searching.__file__).parents[1]


class _NoMemoryFloor:
    """Everything may fit."""

    def bytes_held(self, rows: StrategyTable) -> Any:
        return np.zeros(len(rows.tp))

    def most_layers(self, rows: StrategyTable, _bytes: float, in_flight: Any) -> Any:
        return np.full(np.broadcast(rows.tp, in_flight).shape, np.inf)


def _no_overheads(*asked: Any, **_: Any) -> Any:
    return np.zeros(len(asked[2].tp)), np.zeros(len(asked[2].tp))


def _every_count(cluster: Any) -> list[int]:
    per_node = min(group.devices_per_node for group in cluster.groups)
    nodes = range(1, sum(group.devices // per_node for group in cluster.groups) + 1)
    return sorted({*counts.divisors(per_node), *(n * per_node for n in nodes)})


def _even_split(stages: Any, **asked: Any) -> list[tuple[int, ...]]:
    each, layers = stages.layers.shape
    return [] if asked["too_big"] else [tuple(even_layers(layers, each).tolist())]


def _no_arrangement(*_: Any, **__: Any) -> heterogeneous.ArrangementResult:
    return heterogeneous.ArrangementResult(best=(), candidates=0, priced=0, unexplored=np.inf)


def _nothing(*_: Any, **__: Any) -> Any:
    return iter(())


Patch = tuple[Any, str, Any]


class Part(NamedTuple):
    """A part of the planner, and what stands in its place (bounds are replaced in `_pricing`)."""

    file: str
    patches: Sequence[Patch] = ()
    asked: str = "search"
    """How the names of the questions begin in which the part has a say; the calibration rows are always asked."""


_WHOLE = Part("", asked="search")
_REFUSED = [(searching, "contradiction", lambda *_: InputError.of(code="", field="", message=""))]
_SMALLEST = [(searching, name, lambda *_, **__: None) for name in ("smallest", "first_fit")]
_COUNTS = [(space, "device_counts", _every_count), (heterogeneous, "splits_well", lambda _: True)]
_SUBSETS = [(steps, "combinations", lambda axes, n: [tuple(axes)] if n == len(axes) else [])]
PARTS: Mapping[str, Part] = {
    "contradictions": Part("search/contradictions.py", _REFUSED, "search refused"),
    "smallest": Part("search/smallest.py", _SMALLEST, "search does not fit"),
    "alternation": Part(
        "view/alternation.py", [(axis_names, "alternating", _nothing)], "search network"
    ),
    "seeding": Part("view/seeding.py", [(splitting, "seeds", _nothing)], "search small"),
    "reshard_subsets": Part("reshard/steps.py", _SUBSETS, "reshards"),
    "reshard_sharing": Part(
        "reshard/steps.py",
        [(steps, "permutations", lambda _, n: [()] if n == 0 else [])],
        "reshards",
    ),
    "reshard_masks": Part("reshard/steps.py", [(steps, "_masks", _nothing)], "reshards"),
    "reshard_landings": Part(
        "reshard/steps.py", [(steps, "_split_further", lambda *a: a[:1])], "reshards"
    ),
    "refining": Part(
        "cost/refining.py", [(refining, "fit", lambda _, constants, __: constants)], "refined"
    ),
    "kept_programs": Part("cost/table_cache.py", [(table_cache, "_NUMBERS", 0)]),
    "kept_prices": Part(
        "cost/table_cache.py", [(table_cache.Shardings, "passes", lambda *asked: asked[-1]())]
    ),
    "counts": Part("search/counts.py", _COUNTS),
    "heterogeneous": Part(
        "search/heterogeneous.py", [(searching, "rank_arranged", _no_arrangement)]
    ),
    "layer_split": Part("search/layer_split.py", [(heterogeneous, "layer_splits", _even_split)]),
    "overheads": Part("cost/floors.py", [(floors, "overheads", _no_overheads)]),
    "memory_floors": Part("cost/memory_floors.py"),
    "floors": Part("cost/floors.py"),
}


def main(parts: Sequence[str] = (), asked: Sequence[str] = ()) -> None:
    """Print a row for each part; `asked`: how the names of questions begin, instead of all."""
    head = (
        "without",
        "lines",
        "answers that change",
        "dearest",
        "error p50, p90",
        "refined",
        "reshards that change",
        "priced",
        "weighed",
        "lowered, again",
        "passes, again",
        "CPU",
    )
    print(f"\n### Planner without one of its parts\n\n| {' | '.join(head)} |")
    print("|---" * len(head) + "|", flush=True)
    base = _measured(_BASE, *(asked or {PARTS[part].asked for part in parts or PARTS}))
    for part in (_BASE, *(parts or PARTS)):
        found = base if part == _BASE else _measured(part, *(asked or [PARTS[part].asked]))
        print("| " + " | ".join(_cells(part, base, found)) + " |", flush=True)


def _cells(part: str, base: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    file = PARTS.get(part, _WHOLE).file
    known = {name: answer for name, answer in found.items() if name in base}
    yield part
    yield str(len((_PLANNING / file).read_text().splitlines())) if file else ""
    searches = [name for name in known if name.startswith("search ")]
    differ = sum(known[name]["answer"] != base[name]["answer"] for name in searches)
    late = "" if found.get("end") else ", then its time was up"
    yield f"{differ} of {len(searches)}{late}" if searches else ""
    dearer = [
        known[name]["seconds"] / base[name]["seconds"]
        for name in searches
        if known[name]["seconds"] and base[name]["seconds"]
    ]
    yield f"x {max(dearer):.3f}" if dearer else ""
    for name in ("errors", "refined"):
        yield known[name]["text"] if name in known else ""
    ways = [
        before != now
        for name in known
        if name == "reshards"
        for before, now in zip(base[name]["ways"], known[name]["ways"], strict=True)
    ]
    yield f"{sum(ways)} of {len(ways)}" if ways else ""
    work = [Counter(known[name]["work"]) for name in searches]
    same = [Counter(base[name]["work"]) for name in searches]
    for counted in ("priced", "weighed"):
        yield _ratio(work, same, counted)
    for counted in ("lowered", "passes"):
        yield f"{_ratio(work, same, counted)}, {_ratio(work, same, counted + ' again')}"
    yield f"{sum(known[name]['cpu'] for name in known):.0f} s"


def _ratio(work: Sequence[Counter[str]], base: Sequence[Counter[str]], name: str) -> str:
    there, here = sum(each[name] for each in base), sum(each[name] for each in work)
    return f"x {here / there:.2f}" if there else f"{here:,}"


def _measured(part: str, *asked: str) -> dict[str, Any]:
    """Answers of a process of its own; those that it gave until its time was up."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.planner_ablation", "--one", part, "--asked", *asked],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.endswith("}")]
    return {answer["name"]: answer for answer in answers}


def _measure(part: str, asked: tuple[str, ...]) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_MOST_SECONDS, _MOST_SECONDS))
    for owner, name, stub in PARTS.get(part, _WHOLE).patches:
        setattr(owner, name, stub)
    work: Counter[str] = Counter()
    pricing = _pricing(part, work)
    for name, ask in _questions(pricing, work):
        if name != "errors" and not name.startswith(asked):
            continue
        began = time.process_time()
        answer = ask()
        cpu = time.process_time() - began
        print(json.dumps({"name": name, **answer, "cpu": cpu}), flush=True)
    print(json.dumps({"name": "end", "cpu": 0.0}))


def _pricing(part: str, work: Counter[str]) -> Pricing:
    """The cost model, with its work counted and its bounds as the part asks."""
    usual = searching.MODEL
    lower, passes = lowering.lower, cost_passes.passes

    def counted(name: str, price: Callable[..., Any]) -> Callable[..., Any]:
        def count(*asked: Any, **more: Any) -> Any:
            work[name] += len(asked[2].tp)
            return price(*asked, **more)

        return count

    def lowered(view: Any, sharding: Any, **more: Any) -> Any:
        found = lower(view, sharding, **more)
        work["lowered"] += np.size(sharding.tp) * len(found.pieces)
        return found

    def passed(program: Any, *asked: Any, **more: Any) -> Any:
        work["passes"] += more["rows"] * len(program.pieces)
        return passes(program, *asked, **more)

    for owner, name, stub in (
        (table_cache, "lower", lowered),
        (shardings, "passes", passed),
    ):
        setattr(owner, name, stub)
    pricing = replace(
        usual,
        step_seconds=counted("priced", usual.step_seconds),
        memory_bytes=counted("weighed", usual.memory_bytes),
        arranged=counted("priced", usual.arranged),
    )
    if part == "floors":
        return replace(pricing, floors=lambda *_: lambda rows: np.zeros(len(rows.tp)))
    if part == "overheads":
        return replace(pricing, overheads=_no_overheads)
    if part == "memory_floors":
        return replace(pricing, memory_floors=lambda *_: _NoMemoryFloor())
    return pricing


Question = tuple[str, Callable[[], dict[str, Any]]]


def _questions(pricing: Pricing, work: Counter[str]) -> Iterator[Question]:
    """Yield what is asked: the calibration rows, reshards, then searches from small to large."""
    yield "errors", _calibration_errors
    yield "refined", _refined_errors
    yield "reshards", _reshards

    def asked(workload: Workload, cluster: Any, **more: Any) -> dict[str, Any]:
        work.clear()
        found, seconds = _answer(workload, cluster, pricing, more)
        counted = dict(work)
        if not isinstance(found, str):
            again = _answer(workload, cluster, pricing, more)[0]
            found = found if again == found else [found, again]
        for name in ("lowered", "passes"):
            counted[f"{name} again"] = work[name] - counted.get(name, 0)
        return {"answer": found, "seconds": seconds, "work": counted}

    for name, workload, cluster, more in _searches():
        yield f"search {name}", partial(asked, workload, cluster, **more)


def _answer(workload: Workload, cluster: Any, pricing: Pricing, more: Any) -> tuple[Any, float]:
    try:
        found = search(workload, cluster, pricing=pricing, **more)
    except InputError as error:
        return str(error), 0.0
    best = [(repr(plan.strategy), f"{plan.step_seconds:.9g}") for plan in found.plans]
    return [best, [repr(plan.strategy) for plan in found.front]], found.plans[0].step_seconds


def _searches() -> Iterator[tuple[str, Workload, Any, dict[str, Any]]]:
    node = parse_cluster({"name": "node", "nodes": [{"count": 1, **A100}]})
    mixed = parse_cluster({"name": "mixed", "nodes": [{"count": 1, **A100}, {"count": 1, **T4}]})
    small = Workload(view=computation(parse_model(model(2048, 24, 16))), global_batch=64)
    large = Workload(view=computation(parse_model(model(12288, 96, 96))), global_batch=64)
    alike, uneven = _network(*[4096] * 9), _network(1024, 8192, 512, 16384, 2048, 1024)
    for name, view in {"without names": alike, "of uneven layers": uneven}.items():
        yield f"network {name}", Workload(view=view, global_batch=1024, precision="fp32"), node, {}
        pinned = {"constraints": parse({"pp": 2})}
        yield f"{name}, pp 2", Workload(view=view, global_batch=64, precision="fp32"), node, pinned
    yield "small", small, node, {}
    yield "small on mixed nodes", replace(small, precision="fp16"), mixed, {}
    refused = {"tp": 5}, {"tp": 8, "pp": 3, "devices": 8}, {"zero": 1, "overlap": "fsdp-prefetch"}
    for rules in refused:
        yield f"refused {rules}", small, node, {"constraints": parse(rules)}
    yield "does not fit", large, node, {}
    yield "does not fit with pp 1", large, node, {"constraints": parse({"pp": 1, "zero": 0})}
    rows = sorted(published(), key=lambda row: row.measured.cluster.devices)
    for row in rows[::_SAMPLE]:
        yield row.id, row.measured.workload, row.measured.cluster, {"top_k": 1}
    for case in (case for case in CASES if "batch" not in case.name):
        workload = Workload(
            view=computation(parse_model(case.model)),
            global_batch=case.global_batch,
            precision=case.precision,  # type: ignore[arg-type]  # a text of the table above
            runtime="megatron-lm",
        )
        cluster = parse_cluster({"name": "c", "nodes": case.nodes})
        yield case.name, workload, cluster, {}
        if len(cluster.groups) == 1:
            lost = replace(cluster.groups[0], count=cluster.groups[0].count - 1)
            yield f"{case.name}, a node less", workload, replace(cluster, groups=(lost,)), {}


def _network(*sizes: int) -> ComputationView:
    """A network as tracing gives it: products with ReLU between them, no dimension has a name."""
    build = ViewBuilder("network", batch=32)
    x = build.tensor("x", (("batch", 32), ("", sizes[0])), kind="input")
    for place, (m, n) in enumerate(pairwise(sizes)):
        weight = build.parameter(f"w{place}", ("", m), ("", n))
        y, z = (build.tensor(f"{name}{place}", (("", 32), ("", n))) for name in "yz")
        build.operator(f"fc{place}", "matmul", (x, weight), (y,), equation="bm,mn->bn")
        build.operator(f"relu{place}", "elementwise", (y,), (z,), function="relu")
        build.unit(f"layer{place}")
        x = z
    build.tensor("labels", (("batch", 32),), dtype="int64", kind="input")
    build.tensor("loss", (("", 32),), dtype="float32", kind="output")
    build.operator("loss", "cross_entropy", (x, "labels"), ("loss",))
    build.unit("head")
    return build.view()


def _calibration_errors() -> dict[str, Any]:
    found = np.abs(errors(calibration(), FROZEN))
    return {"text": ", ".join(f"{np.quantile(found, share):.2%}" for share in (0.5, 0.9))}


def _refined_errors() -> dict[str, Any]:
    """What is left of the error where every other row of a set is a user's own."""
    rows, left = calibration(), []
    for places in by_set(rows).values():
        own, others = ([rows[place] for place in places[start::2]] for start in (0, 1))
        constants = refining.refine([row.measured for row in own], FROZEN)
        left.append(np.abs(errors(others, constants)))
    found = np.concatenate(left)
    return {"text": ", ".join(f"{np.quantile(found, share):.2%}" for share in (0.5, 0.9))}


def _reshards() -> dict[str, Any]:
    """What is received on the ways between all layouts on a mesh, and onto another one."""
    shape, mesh = (4, 6), Mesh.of({"a": 2, "b": 3})
    other = Mesh.of({"b": 3, "a": 2}, first=2)
    sources, targets = [*_layouts(mesh)], [*_layouts(mesh), *_layouts(other)]
    return {"ways": [_way(shape, *ends) for ends in product(sources, targets)]}


def _layouts(mesh: Mesh) -> Iterator[Distribution]:
    for uses in product(("", "sum", 0, 1), repeat=2):
        pairs = [*zip(mesh.axes, uses, strict=True)]
        for order in [pairs, pairs[::-1]] if uses[0] == uses[1] and uses[0] in (0, 1) else [pairs]:
            yield Distribution(
                mesh=mesh,
                dims=tuple(tuple(axis for axis, use in order if use == dim) for dim in (0, 1)),
                partial=tuple(axis for axis, use in order if use == "sum"),
            )


def _way(shape: Any, source: Distribution, target: Distribution) -> list[int]:
    """How much is received on the cheapest way, and in how many steps; nothing: there is no way."""
    try:
        way = reshard.cheapest(shape, source, target)
    except KeyError:
        return []
    return [sum(step.received for step in way), len(way)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="PART")
    parser.add_argument("--asked", nargs="+", default=(), metavar="QUESTION")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        _measure(given.one, tuple(given.asked))
    else:
        main(given.parts, given.asked)
