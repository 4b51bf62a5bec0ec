"""Which room may import which: one table for the whole project, checked in the source."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "airflow_training"
NAME = PACKAGE.name

# A room may import itself and the rooms of the lines above its own.
LINES: tuple[tuple[str, ...], ...] = (
    ("builtin_runtimes",),
    ("errors", "settings", "peer_causes"),
    ("documents",),
    ("frameworks",),
    ("networks",),
    ("planning", "control", "interchange", "interception"),
    ("capture", "environments"),
    ("state", "runtimes", "checkpoints", "logs", "agent"),
    ("accounts", "execution", "remote_data"),
    ("alignment", "trainer"),
    ("admission",),
    ("supervise", "airflow_compat"),
    ("triggers", "operators", "sensors", "compiler"),
    ("web",),
    ("cloud",),
    ("cli",),
    ("preload",),
    ("listener",),
    ("plugin", "provider"),
)
TOGETHER = frozenset({"triggers", "operators", "sensors", "compiler"})
"""The shells around Airflow build on each other; they are one layer."""

MAY_ALSO = frozenset({("runtimes", "agent"), ("checkpoints", "agent")})
"""The local runtime reads the files that its agents write; checkpoints report progress as scripts do."""

CLIENTS = ("kubernetes", "kubernetes_asyncio", "aiohttp")

FORBIDDEN: dict[str, tuple[str, ...]] = {
    "documents": ("airflow", *CLIENTS, "sqlalchemy"),
    "frameworks": ("airflow", *CLIENTS, "sqlalchemy"),
    "planning": ("airflow", *CLIENTS, "sqlalchemy"),
    "networks": ("airflow", *CLIENTS, "sqlalchemy", "torch"),
    "control": ("airflow", *CLIENTS, "sqlalchemy"),
    "interchange": ("airflow", *CLIENTS, "sqlalchemy"),
    "capture": ("airflow", *CLIENTS, "sqlalchemy", "torch"),
    "logs": ("airflow", *CLIENTS, "sqlalchemy"),
    "checkpoints": ("airflow", *CLIENTS, "sqlalchemy"),
    "remote_data": ("airflow", *CLIENTS, "sqlalchemy", "torch"),
    "execution": ("airflow", *CLIENTS, "sqlalchemy"),
    "trainer": ("airflow", *CLIENTS, "sqlalchemy"),
    "alignment": ("airflow", *CLIENTS, "sqlalchemy"),
    "state": ("airflow", *CLIENTS),
    "runtimes": ("airflow", "sqlalchemy"),
    "accounts": ("airflow", *CLIENTS, "sqlalchemy"),
    "admission": ("airflow", *CLIENTS, "sqlalchemy"),
    "supervise": ("airflow", *CLIENTS, "sqlalchemy"),
    "environments": ("airflow", *CLIENTS, "sqlalchemy", "torch"),
    "cli": ("airflow", *CLIENTS, "sqlalchemy"),
}
"""Distributions that a room never imports, not even inside a function."""

BASE = frozenset(
    f"documents.{module}"
    for module in (
        "base",
        "instances",
        "loading",
        "paths",
        "problems",
        "quantities",
        "spelling",
        "text",
    )
)
"""What rooms that stand alone use of the documents: how a file is read, a mistake is told and an instance is called."""

ALONE: dict[str, frozenset[str]] = {
    "planning": BASE | {"networks.nets", "networks.reading", "networks.resolving"},
    "networks": BASE | {"documents.draft", "settings", "settings.layer_types_folder"},
    "logs": BASE,
    "interchange": BASE | {"documents.merge"},
    "environments": BASE,
    "capture": BASE,
    "checkpoints": frozenset({"agent.progress_tail", "agent.proc", "agent.progress"}),
    "interception": frozenset(),
    "remote_data": frozenset(
        {
            "capture.model",
            "checkpoints.errors",
            "checkpoints.store",
            "interception.asking",
            "interception.classification",
            "interception.protocol",
        }
    ),
    "trainer": frozenset(
        {
            "agent.progress",
            "checkpoints.Checkpointer",
            "execution.distributing",
            "execution.execution_plan",
            "execution.mesh",
            "execution.training",
            "networks.trainer",
        }
    ),
    "execution": frozenset(
        {
            "agent.progress",
            "checkpoints.checkpointer",
            "checkpoints.documents",
            "checkpoints.errors",
            "checkpoints.rejoin_decision",
            "checkpoints.resharding",
            "checkpoints.sampler",
            "checkpoints.saver",
            "checkpoints.torch_boundary",
            "checkpoints.torch_rejoining",
            "checkpoints.torch_rendezvous",
            "checkpoints.torch_state",
            "checkpoints.torch_transfer",
            "checkpoints.tree",
            "planning.sources",
            "planning.view",
        }
    ),
}
"""Rooms that can be read, tested and imported without the others, and all that they use of them."""

PARTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "documents": (
        (
            "core_schema",
            "graph",
            "instances",
            "merge",
            "paths",
            "quantities",
            "right_places",
            "shapes",
            "spelling",
            "yaml_mistakes",
        ),
        ("resolved_blocks", "stop_conditions", "times", "text"),
        ("dates", "loading", "resolved", "schedules"),
        ("problems", "templates"),
        ("base", "draft", "overrides", "podmodel"),
        ("dag", "layers", "logs", "plan", "policies", "roles", "trainer"),
        ("models", "params", "pods"),
        ("expressions",),
        ("checks",),
        ("parsing",),
        ("schema",),
    ),
    "networks": (
        ("digest", "document", "shapes"),
        ("formulas", "layer_type"),
        ("own_types",),
        ("catalogue",),
        ("names", "params"),
        ("expansion",),
        ("inference", "nets"),
        ("resolving",),
        ("forking", "generator", "reading"),
        ("diagram",),
    ),
    "environments": (
        ("marks",),
        ("addresses", "contents", "model", "orders", "programs", "scan"),
        ("cache", "framework_builds", "interpreters", "markers"),
        ("differences", "locks", "preparing"),
        ("ready", "recording"),
        ("catalogue",),
        ("matching", "named"),
        ("building", "builtin"),
        ("storage",),
        ("provided",),
        ("command",),
    ),
    "interception": (
        ("asking", "classification", "module_changes", "parameters", "protocol"),
        ("ranges", "sampler_order", "wraps"),
        ("hook",),
        ("starting",),
        ("bootstrap",),
    ),
    "remote_data": (
        ("errors", "guard", "known_digests", "order", "chunks"),
        ("manifest",),
        ("leases", "roots", "skeleton", "source_address"),
        ("range_files",),
        ("fetcher", "mailbox", "server"),
        ("fetching",),
        ("starting",),
    ),
    "planning": (("view",), ("reshard", "cost"), ("search", "sources"), ("answers",)),
    "execution": (
        (
            "connections",
            "execution_plan",
            "forwarding",
            "loss_scale",
            "parameter_splits",
            "random_bits",
            "replicated_norm",
            "sample_shares",
            "stage_backward",
            "stage_cuts",
            "timeline",
        ),
        (
            "engine_settings",
            "mesh",
            "microbatches",
            "position_streams",
            "precision",
            "rejoining",
            "replica_speed",
            "replicas",
            "saved_state",
            "stage_inputs",
            "tensor_parallel",
        ),
        (
            "pipeline_stages",
            "rank_group",
            "recomputation",
            "screening",
            "step_recording",
            "trial_run",
        ),
        ("training",),
        ("distributing",),
        ("runner",),
    ),
    "alignment": (
        ("records", "report", "sketch", "tolerance"),
        ("assembling", "bisecting", "gradient_noise", "recording"),
        ("comparing",),
        ("rank_program",),
        ("running",),
    ),
    "interchange": (
        ("report", "targets"),
        ("accounts", "comments"),
        ("metadata",),
        ("pod_templates", "run_policy"),
        ("batch_job",),
        ("operator_jobs", "replicated_jobs"),
        ("jobset_policies",),
        ("jobset",),
        ("other_operator_jobs", "pytorchjob"),
        ("volcano_policies",),
        ("frameworkcontroller", "rayjob", "trainjob", "volcano"),
        ("options", "shell_script"),
        ("launch", "sbatch_options"),
        ("deepspeed_launcher", "mpirun", "torch_launchers"),
        ("launchers",),
        ("srun",),
        ("script_steps",),
        ("sbatch",),
        ("importing",),
        ("our_jobs",),
        ("export_policies",),
        ("export_jobset", "export_pytorchjob", "export_sbatch", "export_volcano"),
        ("exporting",),
    ),
    "capture": (
        (
            "ignore",
            "installed",
            "known_contents",
            "links",
            "model",
            "path_expressions",
            "roots",
            "secret_patterns",
        ),
        ("git", "imports", "kinds", "layout", "notebook", "search_places", "secret_values"),
        ("import_lines", "import_problems", "module_search", "secrets", "summary"),
        ("code_places", "command", "files"),
        ("closure", "contents"),
        ("project",),
        ("report",),
    ),
    "state": (
        ("account_records", "codec", "models", "outage", "records"),
        (
            "account_models",
            "database",
            "leases",
            "network_models",
            "past_waits",
            "sparklines",
        ),
        ("accounts", "checkpoint_events", "deployment", "metrics", "migrations", "run_lookup"),
        (
            "addresses",
            "airflow_facts",
            "data_readings",
            "history",
            "measurements",
            "networks",
            "system_metrics",
        ),
        ("environment", "nodes", "presets", "progress", "queue", "subtasks", "upgrade", "usage"),
        ("ledger", "log_values", "reservations"),
        ("runs",),
        ("overviews", "reading"),
        ("store",),
    ),
    "runtimes": (
        ("agent_reasons", "clock", "faults", "progress", "terminal"),
        ("port",),
        ("adapter", "simulated"),
        ("registry", "simulation"),
        ("environment_orders", "rendering"),
        ("folders",),
        ("kubernetes", "local", "memory", "slurm"),
    ),
    "logs": (
        ("model", "lines"),
        ("reading", "health"),
        ("engine",),
        ("metrics",),
        ("diagnosis", "live"),
    ),
    "accounts": (
        ("keys", "prices", "refusals"),
        ("bills",),
        ("limits",),
        ("enforcement", "estimates", "reservation", "run_bills"),
        ("operations",),
    ),
    "admission": (
        ("own_programs",),
        (
            "environment_lookups",
            "job_templates",
            "log_patterns",
            "plan",
            "queueing",
            "single",
            "startable",
            "trainer",
            "trust",
        ),
        ("launch", "request", "run_accounts"),
        ("defaults", "environment"),
        ("layout",),
        ("check",),
        ("explain",),
    ),
    "supervise": (("owners", "retrying", "waiting"), ("absences", "watcher"), ("followers",)),
    "web": (
        (
            "configuration",
            "data",
            "data_files",
            "document_check",
            "environment",
            "instance_usage",
            "new_runs",
        ),
        ("networks",),
        (
            "page",
            "parquet_rows",
            "prediction_files",
            "presets",
            "progress",
            "reduction",
            "request_size",
        ),
        (
            "checkpoints",
            "instance_reports",
            "run_cache",
            "series",
            "static_files",
            "status",
            "usage",
        ),
        ("models",),
        (
            "airflow_runs",
            "answers",
            "bands",
            "checkpoint_loading",
            "command_runs",
            "derived_series",
            "newest_points",
            "predictions",
            "tunings",
        ),
        ("details", "rights", "run_series"),
        ("airflow_rights", "live"),
        ("api",),
        ("app",),
        ("logs", "standalone"),
        ("openapi",),
    ),
}
"""Inside a room: a folder or module may import itself and those of the lines before, and nothing that is not named."""

CLOCKS = ("time", "random", "logging")
"""A pure room is told the time and returns what it has to say."""

EXEMPT = {"__init__", "__main__", "examples"}
"""The package's lazy front door, and examples that only use what users use."""


def modules() -> list[Path]:
    """Return every module of the package, those behind the symlinked folders too."""
    found: list[Path] = []
    folders = [PACKAGE]
    while folders:
        for path in sorted(folders.pop().iterdir()):
            if path.is_dir():
                folders.append(path)
            elif path.suffix == ".py":
                found.append(path)
    return sorted(found)


def room_of(path: Path) -> str:
    """Return the room of a module: the trainer lies in another, whose rules it does not share."""
    parts = path.relative_to(PACKAGE).parts
    return "trainer" if parts[:2] == ("networks", "trainer") else parts[0].removesuffix(".py")


@cache
def imports(path: Path) -> tuple[tuple[int, str], ...]:
    """Return line and dotted name of everything a module imports, at any depth, types too."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: relative import"
            module = node.module or ""
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"


def circles(arrows: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return what is left of arrows without all that lead to an end."""
    while leaves := [part for part, others in arrows.items() if not others]:
        arrows = {p: others - {*leaves} for p, others in arrows.items() if p not in leaves}
    return arrows


def place(room: str) -> int | None:
    return next((number for number, line in enumerate(LINES) if room in line), None)


def allowed(room: str, other: str) -> bool:
    """Return whether the arrow from `room` to `other` is in the table."""
    if room == other:
        return True
    if room in TOGETHER and other in TOGETHER:
        return True
    if (room, other) in MAY_ALSO:
        return True
    mine, theirs = place(room), place(other)
    return mine is not None and theirs is not None and theirs < mine


MODULES = [path for path in modules() if room_of(path) not in EXEMPT]


def test_every_module_belongs_to_a_room():
    unknown = {room_of(path) for path in MODULES if place(room_of(path)) is None}
    assert unknown == set(), "a new room needs a place in the table"


def test_imports_follow_the_arrows():
    wrong = []
    for path in MODULES:
        room = room_of(path)
        for line, name in imports(path):
            parts = name.split(".")
            if parts[0] != NAME or len(parts) == 1 or parts[1].startswith("__"):
                continue
            if not allowed(room, parts[1]):
                wrong.append(f"{path.relative_to(PACKAGE.parent)}:{line}: {room} -> {parts[1]}")
    assert wrong == []


@pytest.mark.parametrize("room", sorted(ALONE))
def test_a_room_that_stands_alone_uses_a_small_base(room):
    wrong = []
    for path in MODULES:
        if room_of(path) != room:
            continue
        for line, name in imports(path):
            parts = name.split(".")
            if parts[0] != NAME or parts[1] in (room, "errors", "builtin_runtimes", "peer_causes"):
                continue
            if ".".join(parts[1:3]) not in ALONE[room]:
                wrong.append(f"{path.relative_to(PACKAGE.parent)}:{line}: {name}")
    assert wrong == []


@pytest.mark.parametrize("room", sorted(PARTS))
def test_imports_follow_the_arrows_inside_a_room(room):
    lines = PARTS[room]
    number = {part: i for i, line in enumerate(lines) for part in line}
    wrong = []
    for path in MODULES:
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[0] != room or parts[1] not in number:
            continue
        for line, name in imports(path):
            other = name.split(".")
            if other[:2] != [NAME, room] or other[2] == parts[1]:
                continue
            if number.get(other[2], len(lines)) >= number[parts[1]]:
                wrong.append(f"{path.relative_to(PACKAGE.parent)}:{line}: {name}")
    assert wrong == []


def test_no_module_imports_itself_by_way_of_others():
    """Not inside a function either, nor for its types: such a knot can only be read as a whole."""
    names = {".".join((NAME, *p.relative_to(PACKAGE).with_suffix("").parts)): p for p in MODULES}
    arrows = {
        module: {
            other
            for _, name in imports(path)
            for other in (name, name.rpartition(".")[0])
            if other in names and other != module
        }
        for module, path in names.items()
    }
    assert circles(arrows) == {}


@pytest.mark.parametrize("room", sorted({room_of(p) for p in MODULES if p.parent != PACKAGE}))
def test_no_part_of_a_room_imports_itself_by_way_of_others(room):
    """Of folders too: two that import each other can only be read together."""
    folder = PACKAGE / ("networks/trainer" if room == "trainer" else room)
    inside = {
        p: p.relative_to(folder).with_suffix("").parts[0] for p in MODULES if room_of(p) == room
    }
    arrows: dict[str, set[str]] = {part: set() for part in inside.values()}
    for path, part in inside.items():
        for _, name in imports(path):
            other = name.split(".")
            if other[:2] == [NAME, room] and other[2] in arrows and other[2] != part:
                arrows[part].add(other[2])
    assert circles(arrows) == {}


PUBLIC_AIRFLOW = re.compile(
    r"airflow\.(?:sdk(?:\.(?:[A-Z]\w*|get_parsing_context|task|task_group))?"
    r"|sdk\.(?:exceptions|configuration)\.\w+|triggers\.base\.\w+"
    r"|plugins_manager\.AirflowPlugin|listeners\.hookimpl|dag_processing\.bundles\.base\.BaseDagBundle"
    r"|providers\..+)"
)
"""Modules that Airflow's documentation names for authors of DAGs, providers and plugins."""


def test_private_parts_of_airflow_are_in_one_module():
    wrong = [
        f"{path.relative_to(PACKAGE.parent)}:{line}: {name}"
        for path in MODULES
        if path.name != "airflow_compat.py"
        for line, name in imports(path)
        if name.startswith("airflow.") and not PUBLIC_AIRFLOW.fullmatch(name)
    ]
    assert wrong == []


def test_folders_are_imported_by_their_package_name_only():
    """`import operators.run` would work too, as a second module."""
    wrong = [
        f"{path.relative_to(PACKAGE.parent)}:{line}: {name}"
        for path in MODULES
        for line, name in imports(path)
        if name.split(".")[0] in ("operators", "sensors", "frameworks")
    ]
    assert wrong == []


@pytest.mark.parametrize("room", sorted(FORBIDDEN))
def test_a_room_keeps_heavy_company_out(room):
    wrong = [
        f"{path.relative_to(PACKAGE.parent)}:{line}: {name}"
        for path in MODULES
        if room_of(path) == room and "kubernetes" not in path.relative_to(PACKAGE).parts[1:-1]
        for line, name in imports(path)
        if name.split(".")[0] in FORBIDDEN[room]
    ]
    assert wrong == []


@pytest.mark.parametrize("room", ["control", "interchange", "networks", "planning"])
def test_a_pure_room_has_no_clock_and_no_dice(room):
    wrong = [
        f"{path.relative_to(PACKAGE.parent)}:{line}: {name}"
        for path in MODULES
        if room_of(path) == room
        for line, name in imports(path)
        if name.split(".")[0] in CLOCKS
    ]
    assert wrong == []


def test_the_agent_starts_with_nothing_but_python():
    """It is packed as one file and runs in images that know nothing of this project."""
    wrong = []
    for path in MODULES:
        if room_of(path) != "agent":
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            module = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
            top = (module or "").split(".")[0]
            if top not in sys.stdlib_module_names and not (module or "").startswith(
                f"{NAME}.agent"
            ):
                wrong.append(f"{path.relative_to(PACKAGE.parent)}:{node.lineno}: {module}")
    assert wrong == []


@pytest.mark.parametrize(
    ("room", "other", "expected"),
    [
        ("control", "documents", True),
        ("control", "errors", True),
        ("documents", "control", False),
        ("control", "planning", False),
        ("state", "runtimes", False),
        ("supervise", "triggers", False),
        ("admission", "supervise", False),
        ("operators", "triggers", True),
        ("cli", "operators", True),
        ("cli", "web", True),
        ("web", "cli", False),
    ],
)
def test_the_table_says_what_the_architecture_says(room, other, expected):
    assert allowed(room, other) is expected


def test_interception_is_nothing_but_python():
    """It runs in whatever Python a training has, and is copied or packed alone."""
    wrong = [
        f"{path.relative_to(PACKAGE.parent)}:{line}: {name}"
        for path in MODULES
        if room_of(path) == "interception"
        for line, name in imports(path)
        if name.split(".")[0] not in sys.stdlib_module_names
        and not name.startswith(f"{NAME}.interception")
    ]
    assert wrong == []


def test_interception_can_be_read_by_python_3_8():
    for path in MODULES:
        if room_of(path) == "interception":
            ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
