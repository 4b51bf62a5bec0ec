"""`plan` and jobs with a plan, as a user types them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import job_file

GPT = {"hidden": 1024, "layers": 24, "heads": 16, "seq": 1024, "vocab": 50304}
TINY = {"hidden": 64, "layers": 2, "heads": 4, "seq": 64, "vocab": 512}
NODE: dict[str, Any] = {
    "name": "one node",
    "nodes": [
        {
            "count": 1,
            "device": "A100-SXM4-80GB",
            "devices_per_node": 8,
            "price_per_device_hour": 2.0,
        }
    ],
}
ONE_DEVICE = {"devices": 1}
MEASURED: dict[str, Any] = {
    "ranks": [
        {
            "host": "a",
            "device": "NVIDIA A100-SXM4-80GB",
            "memory_bytes": 8e10,
            "matmul_flops": {"bf16": 250e12},
            "memory_bandwidth": 1.7e12,
        }
    ]
    * 8
}
"""What `measure_cluster` writes, of one node."""


@pytest.fixture
def question(home) -> list[str]:
    """Return the options that name a model and a cluster, with their files."""
    Path("model.yaml").write_text(yaml.safe_dump(GPT))
    Path("cluster.yaml").write_text(yaml.safe_dump(NODE))
    return ["--model", "model.yaml", "--cluster", "cluster.yaml", "--global-batch", "64"]


def request(**changes) -> str:
    document = {
        "id": "one",
        "model": GPT,
        "cluster": NODE,
        "global_batch": 64,
        "precision": "bf16",
        "constraints": {"tp": 2},
        "top_k": 2,
    }
    return json.dumps({**document, **changes})


# a job with a plan --------------------------------------------------------------------------------
@pytest.mark.e2e
def test_a_job_with_a_plan_runs_and_keeps_it(command, home):
    path = job_file(
        Path("job.yaml"),
        ("worker", 3),
        command=["sh", "-c", 'echo "$DP_SIZE of $WORLD_SIZE, $MICRO_BATCH_SIZE"; cat $PLAN_FILE'],
        framework="pytorch",
        runtime={"name": "local"},
        restart={"maxRestarts": 0},
        plan={"model": TINY, "globalBatch": 16, "constraints": {**ONE_DEVICE, "micro_batch": 4}},
    )
    done = command("run", str(path), "--run-id", "one", "-o", "json")
    assert done.code == 0, done.stderr
    plan = done.json["plan"]
    assert plan["strategy"]["micro_batch"] == 4
    assert plan["applied"]["replicas"] == {"worker": 1}
    assert done.json["roles"]["worker"]["desired"] == 1
    assert f"plan {plan['id']} of" in done.stderr
    log = command("logs", "show", "one", "--role", "worker").stdout
    said, _, written = log.partition("\n")
    assert said == "1 of 1, 4"
    assert json.loads(written)["strategy"] == plan["strategy"]
    events = command("events", "one", "-o", "json").json["events"]
    assert [each["data"] for each in events if each["reason"] == "Planned"] == [
        {"plan": plan["id"]}
    ]
    shown = command("status", "one")
    assert f"plan {plan['id']}: no split = 1 device" in shown.stdout
    assert command("status", "one", "-o", "json").json["plan"] == plan


@pytest.mark.e2e
def test_a_run_that_goes_on_is_not_planned_anew(command, home):
    Path("cluster.yaml").write_text(yaml.safe_dump(NODE))
    path = job_file(
        Path("job.yaml"),
        ("worker", 1),
        framework="pytorch",
        plan={
            "model": TINY,
            "globalBatch": 16,
            "cluster": "cluster.yaml",
            "constraints": ONE_DEVICE,
        },
    )
    first = command("run", str(path), "--run-id", "one", "-o", "json").json["plan"]
    Path("cluster.yaml").unlink()
    again = command("run", str(path), "--run-id", "one", "-o", "json")
    assert again.code == 0, again.stderr
    assert again.json["plan"] == first
    refused = command("run", str(path), "--run-id", "two")
    assert refused.code == 2
    assert "cluster.yaml: cannot be read" in refused.stderr


REPORTING = """
for step in $(seq 24); do
  sleep 0.25
  time=$((1700000000 + step / 4)).$((step % 4 * 25))
  echo "{\\"step\\": $step, \\"time\\": $time, \\"metrics\\": {\\"peak_memory_bytes\\": 5e8}}"
done >> "$TRAINING_PROGRESS_FILE"
"""
"""Says that a step takes 0.25 s, however long it really takes."""


@pytest.mark.e2e
def test_the_second_run_of_a_plan_says_what_the_first_one_measured(command, home):
    Path("model.yaml").write_text(yaml.safe_dump(TINY))
    Path("cluster.yaml").write_text(yaml.safe_dump(NODE))
    plan = {"model": "model.yaml", "cluster": "cluster.yaml", "globalBatch": 16}
    fixed = {**plan, "precision": "bf16", "constraints": {**ONE_DEVICE, "micro_batch": 4}}
    path = job_file(Path("job.yaml"), ("worker", 1), command=["bash", "-c", REPORTING], plan=fixed)
    assert "measured" not in command("plan", "job", str(path)).stdout
    first = command("run", str(path), "--run-id", "one", "-o", "json").json["plan"]
    took = first["measured"]["step_time_s"]
    assert took == pytest.approx(0.25)
    assert took > 10 * first["step_time_s"]
    assert f"measured: {took * 1000:.3g} ms a step over" in command("status", "one").stdout

    known = command("plan", "job", str(path), "-o", "json").json
    assert known["step_time_s"] == pytest.approx(took, rel=0.05)
    assert known["peak_memory_bytes"] == 5e8
    assert {part["origin"] for part in known["breakdown"]["time_s"]} == {"measured"}
    second = command("run", str(path), "--run-id", "two")
    assert "(measured)" in second.stderr
    assert "by 1 run of 1 split: a step takes" in second.stderr
    told = ["--model", "model.yaml", "--cluster", "cluster.yaml", "--global-batch", "16"]
    split = ["--runtime", "custom", "-c", "devices=1", "-c", "micro_batch=4"]
    explained = command("plan", "explain", *told, *split).stdout
    assert "measured by" in explained
    assert "static" not in explained


@pytest.mark.e2e
def test_a_single_instance_is_planned_for_itself(command, home):
    path = job_file(
        Path("job.yaml"), ("master", 1), ("worker", 3), framework="pytorch",
        command=["sh", "-c", 'echo "$DP_SIZE of $WORLD_SIZE"'],
        plan={"model": TINY, "globalBatch": 16, "role": "worker"},
    )  # fmt: skip
    done = command("run", str(path), "--single", "--run-id", "one", "-o", "json")
    assert done.code == 0, done.stderr
    assert done.json["plan"]["devices"] == len(done.json["instances"]) == 1


def test_a_job_that_fits_nowhere_starts_nothing(typed):
    path = job_file(
        Path("job.yaml"), ("worker", 1), framework="pytorch",
        plan={"model": {**GPT, "hidden": 16384, "layers": 96}, "globalBatch": 16, "cluster": NODE},
    )  # fmt: skip
    refused = typed("run", str(path), "--run-id", "one")
    assert refused.code == 2
    assert "the smallest cluster that would fit has" in refused.stderr
    assert typed("status", "one").code == 2


def test_validate_finds_what_is_wrong_with_a_plan_where_it_is_written(typed):
    path = job_file(
        Path("job.yaml"), plan={"model": {**TINY, "heads": 5}, "globalBatch": 16, "cluster": "nods"}
    )
    answer = typed("validate", str(path), "-o", "json")
    assert answer.code == 2
    errors = answer.json["files"][0]["errors"]
    assert {(each["field"], each["line"]) for each in errors} == {
        ("spec.plan.model.heads", 1),
        ("spec.plan.cluster", 1),
    }


def test_plan_job_shows_the_plan_and_starts_nothing(typed):
    path = job_file(
        Path("job.yaml"), ("worker", 2), framework="pytorch",
        plan={"model": TINY, "globalBatch": 16, "cluster": NODE},
    )  # fmt: skip
    shown = typed("plan", "job", str(path))
    assert shown.code == 0
    assert shown.stdout.startswith("plan ")
    assert "applied    worker x" in shown.stdout
    assert typed("plan", "job", str(path), "-o", "json").json["cluster"] == "one node"
    assert typed("list", "-o", "json").json == {"runs": []}


def test_a_measured_cluster_stands_where_a_cluster_file_can(typed, question):
    Path("cluster-measured.json").write_text(json.dumps(MEASURED))
    path = job_file(
        Path("job.yaml"), ("worker", 2), framework="pytorch",
        plan={"model": TINY, "globalBatch": 16, "cluster": "cluster-measured.json"},
    )  # fmt: skip
    assert typed("plan", "job", str(path), "-o", "json").json["cluster"] == "measured"
    words = [each.replace("cluster.yaml", "cluster-measured.json") for each in question]
    found = typed("plan", "search", *words, "-c", "tp=2", "--top-k", "1", "-o", "json").json
    assert found["plans"][0]["strategy"]["tp"] == 2


def test_plan_job_needs_a_plan(typed):
    refused = typed("plan", "job", str(job_file(Path("job.yaml"))))
    assert refused.code == 2
    assert "the job asks for no plan" in refused.stderr


MLP = """\
import torch
from torch import nn

def example():
    sizes = (64, 4096, 128, 1024, 10)
    layers = [nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])]
    return nn.Sequential(*layers), (torch.zeros(16, 64),)

def broken():
    raise RuntimeError("no weights here")

def half():
    return nn.Linear(2, 2)

def wrong():
    return nn.Linear(64, 10), (torch.zeros(16, 3),)
"""


def test_a_module_of_ones_own_is_traced_and_planned(typed):
    pytest.importorskip("torch", reason="of the extra `examples`")
    Path("net_of_test_plan.py").write_text(MLP)
    path = job_file(
        Path("job.yaml"), ("worker", 1), framework="pytorch",
        plan={"model": "net_of_test_plan:example", "globalBatch": 64, "cluster": NODE},
    )  # fmt: skip
    done = typed("plan", "job", str(path), "-o", "json")
    assert done.code == 0, done.stderr
    assert done.json["model"] == "Sequential"
    assert done.json["peak_memory_bytes"] > 0


@pytest.mark.parametrize(
    ("name", "says"),
    [
        pytest.param("broken", "cannot be called: RuntimeError: no weights here", id="raises"),
        pytest.param("half", "must return a module and a tuple", id="no-inputs"),
        pytest.param("wrong", "the module does not run on its inputs", id="wrong-inputs"),
        pytest.param("nobody", "AttributeError", id="no-such-function"),
    ],
)
def test_a_module_that_cannot_be_traced_is_one_message(typed, name, says):
    pytest.importorskip("torch", reason="of the extra `examples`")
    Path("net_of_test_plan.py").write_text(MLP)
    path = job_file(
        Path("job.yaml"), framework="pytorch",
        plan={"model": f"net_of_test_plan:{name}", "globalBatch": 64, "cluster": NODE},
    )  # fmt: skip
    refused = typed("plan", "job", str(path))
    assert refused.code == 2
    assert refused.stderr.startswith("error: job.yaml: spec.plan.model: ")
    assert says in refused.stderr


@pytest.mark.e2e
@pytest.mark.soak  # test_planning_e2e.py of Airflow looks at a run that its plan has sized
def test_the_digits_example_trains_as_its_plan_says(command, home):
    example = Path(__file__).parents[2] / "dags" / "examples" / "digits" / "planned.yaml"
    done = command("run", str(example), "-p", "epochs=1", "--run-id", "digits", "-o", "json")
    assert done.code == 0, done.stderr
    plan = done.json["plan"]
    assert plan["strategy"]["dp"] == len(done.json["instances"]) == plan["devices"]
    log = command("logs", "show", "digits", "--role", "master").stdout
    assert f"trained by {plan['devices']} ranks" in log


# search and explain -------------------------------------------------------------------------------
def test_search_lists_plans_best_first(typed, question):
    found = typed("plan", "search", *question, "-c", "tp=2", "--top-k", "3", "-o", "json").json
    assert [each["strategy"]["tp"] for each in found["plans"]] == [2, 2, 2]
    times = [each["step_time_s"] for each in found["plans"]]
    assert times == sorted(times)
    table = typed("plan", "search", *question, "-c", "tp=2").stdout.splitlines()
    assert table[0].split() == ["#", "STEP", "P10", "TO", "P90", "MEMORY", "PRICE", "PLAN"]
    assert table[1].startswith("1 ")


def test_search_writes_the_file_that_output_names(typed, question):
    done = typed("plan", "search", *question, "--output", "plans.json")
    assert done.code == 0
    assert done.stdout == ""
    assert json.loads(Path("plans.json").read_text())["plans"]


def test_explain_adds_up_and_says_how_far_a_split_is_from_the_best(typed, question):
    found = typed("plan", "explain", *question, "-s", "tp=8", "-o", "json").json
    plan = found["plan"]
    assert plan["strategy"]["tp"] == 8
    parts = plan["breakdown"]["time_s"]
    assert sum(each["value"] for each in parts) == pytest.approx(plan["step_time_s"])
    assert found["slower_than_best"] > 0
    text = typed("plan", "explain", *question, "-s", "tp=8").stdout
    assert "(this one +" in text
    assert "time against money" in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param(["-c", "tpp=2"], "did you mean 'tp'?", id="unknown-constraint"),
        pytest.param(["-c", "tp"], "is no KEY=VALUE", id="no-value"),
        pytest.param(["-c", "tp=8", "-c", "tp={max: 4}"], "'tp' is given twice", id="twice"),
        pytest.param(["-c", "tp", "-c", "pp=["], "is no YAML value", id="every-constraint"),
        pytest.param(["--model", "nobody:there"], "error: model: ", id="no-module"),
        pytest.param(["-c", "tp=3"], "hint: ", id="contradiction"),
        pytest.param(["--precision", "bf61"], "did you mean 'bf16'?", id="precision"),
        pytest.param(["--objective", "tme"], "did you mean 'time'?", id="objective"),
        pytest.param(["--output", "no/such/folder"], "cannot be written", id="output"),
        pytest.param(["--plot", "plan.gif"], "allowed: .png", id="picture"),
        pytest.param(["--input", "requests.jsonl"], "no option beside --input", id="two-ways"),
        pytest.param(["--model", "nothing.yaml"], "cannot be read", id="no-model"),
    ],
)
def test_a_mistake_is_one_message_that_says_what_would_work(typed, question, words, says):
    refused = typed("plan", "search", *question, *words)
    assert refused.code == 2
    assert says in refused.stderr


def test_a_model_needs_a_batch(typed, question):
    refused = typed("plan", "search", *question[:-2])
    assert (refused.code, refused.stderr) == (2, "error: --global-batch: is required\n")


def test_a_split_that_does_not_divide_the_model_is_explained_with_a_warning(typed, question):
    done = typed("plan", "explain", *question, "-s", "tp=3", "-s", "dp=2", "-s", "micro_batch=3")
    assert done.code == 0, done.stderr
    assert "warning: tp 3 does not divide 16" in done.stderr
    assert "warning: dp 2 x micro-batch 3 does not divide the batch of 64" in done.stderr
    even = typed("plan", "explain", *question, "-s", "tp=4", "-s", "dp=2")
    assert "divide" not in even.stderr


def test_a_split_on_nodes_that_are_not_there_is_refused(typed, question):
    split = ["-s", "pp=2", "-s", "stage_devices=[nodes-1, nodes-2]"]
    refused = typed("plan", "explain", *question, *split)
    assert refused.code == 2
    assert "the cluster has no group of nodes called 'nodes-2'" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_file_of_requests_is_answered_line_by_line(typed):
    lines = [request(), request(id="two", constraints={"tpp": 2}), request(id="three")]
    Path("requests.jsonl").write_text("\n".join(lines))
    done = typed("plan", "search", "--input", "requests.jsonl", "--output", "out.jsonl")
    assert done.code == 2, "one request makes no sense"
    assert "request two: constraints.tpp" in done.stderr
    one, two, three = map(json.loads, Path("out.jsonl").read_text().splitlines())
    assert set(one) == {"id", "plans", "evaluated", "seconds"}
    assert [set(each) for each in one["plans"]] == 2 * [
        {"strategy", "step_time_s", "peak_memory_bytes", "placement", "price_per_step"}
    ]
    assert {"ep", "stage_layers", "stage_devices", "overlap"} <= set(one["plans"][0]["strategy"])
    assert set(two) == {"id", "error"}
    assert three["plans"] == one["plans"]


def test_a_line_that_is_no_json_is_named(typed):
    Path("requests.jsonl").write_text(request() + "\n{")
    refused = typed("plan", "search", "--input", "requests.jsonl", "--output", "out.jsonl")
    assert refused.code == 2
    assert "line 2 is no JSON" in refused.stderr


# estimate and schema ------------------------------------------------------------------------------
def test_estimate_answers_every_row_and_never_reads_what_was_measured(typed):
    row = {
        "id": "a",
        "model": {**GPT, "unheard_of": 1},
        "cluster": NODE,
        "strategy": {"dp": 8, "global_batch": 64, "micro_batch": 4},
        "runtime": "megatron-lm",
        "measured": {"step_time_s": 1.0},
        "source": "nobody",
    }
    rows = [row, {**row, "id": "b", "measured": "nonsense"}]
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    done = typed("plan", "estimate", "--input", "rows.jsonl", "--output", "out.jsonl")
    assert done.code == 0, done.stderr
    one, other = map(json.loads, Path("out.jsonl").read_text().splitlines())
    assert set(one) == {
        "id", "step_time_s", "p10", "p90", "peak_memory_bytes", "fits", "breakdown"
    }  # fmt: skip
    assert one["p10"] < one["step_time_s"] < one["p90"]
    assert {**other, "id": "a"} == one


def test_calibration_fits_the_constants_that_other_commands_take(typed):
    def row(number: int, seconds: float) -> str:
        strategy = {"dp": 8, "global_batch": 64, "micro_batch": number}
        return json.dumps(
            {
                "id": number,
                "model": GPT,
                "cluster": NODE,
                "strategy": strategy,
                "runtime": "ours",
                "measured": {"step_time_s": seconds},
            }
        )

    Path("rows.jsonl").write_text("\n".join(row(size, 1.0) for size in (1, 2, 4)))

    def estimated(*words: str) -> list[float]:
        done = typed("plan", "estimate", "--input", "rows.jsonl", *words)
        return [json.loads(line)["step_time_s"] for line in done.stdout.splitlines()]

    before = estimated()
    Path("rows.jsonl").write_text(
        "\n".join(row(size, 1.3 * time) for size, time in zip((1, 2, 4), before, strict=True))
    )
    done = typed("plan", "calibrate", "--input", "rows.jsonl", "--output", "mine.json")
    assert done.code == 0, done.stderr
    after = estimated("--constants", "mine.json")
    assert all(1.1 * old < new < 1.4 * old for old, new in zip(before, after, strict=True))
    assert (
        "mean error on these 3 rows" in typed("plan", "calibrate", "--input", "rows.jsonl").stdout
    )


def test_constants_that_are_none_are_refused(typed):
    Path("rows.jsonl").write_text("{}")
    Path("mine.json").write_text("[]")
    refused = typed("plan", "estimate", "--input", "rows.jsonl", "--constants", "mine.json")
    assert refused.code == 2
    assert "is no file of `plan calibrate`" in refused.stderr


def test_the_schema_of_clusters_is_json_schema(typed):
    import jsonschema

    schema = typed("plan", "schema").json
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(NODE)


# pictures -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "begins"), [("plan.png", b"\x89PNG"), ("plan.svg", b"<?xml")])
def test_a_plan_is_drawn(typed, question, name, begins):
    pytest.importorskip("matplotlib", reason="of the extra `plots`")
    done = typed("plan", "search", *question, "-c", "pp=4", "--plot", name)
    assert done.code == 0, done.stderr
    assert Path(name).read_bytes().startswith(begins)


IGNORING = """
import json, os, time
for step in range(3):
    with open(os.environ["TRAINING_PROGRESS_FILE"], "a") as file:
        file.write(json.dumps({"step": step + 1, "time": time.time()}) + "\\n")
"""


@pytest.mark.e2e
@pytest.mark.parametrize(("text", "warned"), [("", True), ("print(os.environ['TP_SIZE'])", False)])
def test_a_script_that_ignores_its_plan_is_noticed_and_one_that_reads_it_is_not(
    command, home, text, warned
):
    Path("train.py").write_text(IGNORING + text)
    path = job_file(
        Path("job.yaml"),
        ("master", 1),
        ("worker", 1),
        framework="pytorch",
        command=["python", "train.py"],
        runtime={"name": "local"},
        plan={"model": TINY, "globalBatch": 16, "constraints": {"devices": 2, "tp": 2}},
    )
    done = command("run", str(path), "--run-id", "one", "-o", "json")
    assert done.code == 0, done.stderr
    found = [
        each
        for each in command("events", "one", "-o", "json").json["events"]
        if each["reason"] == "PlanNotApplied"
    ]
    assert bool(found) is warned
    if warned:
        [event] = found
        assert event["level"] == "warning"
        assert event["data"] == {"plan": done.json["plan"]["id"]}
        assert "the plan wants tp 2" in event["message"]
        assert re.search(r"nothing in the \d files? of its script names", event["message"])
