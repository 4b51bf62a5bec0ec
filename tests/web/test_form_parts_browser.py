"""Parts of the form for a new training in a real browser: auto-tune, the network drawn, long documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.web.site import CHROMIUM, Site, check_page, serve
from tests.web.test_new_training_browser import checked, opened, runs, text, typed

pytest.importorskip("playwright.sync_api")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]

FIT = """\
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {name: fit}
spec:
  framework: custom
  command: [python, fit.py, "{{ params.lr }}"]
  roles: [{name: worker}]
  output: {uri: models}
  dag: {params: {lr: {type: number, default: 0.5}}}   # what is tried
"""
SCRIPT = """\
import json, os, sys, time
from pathlib import Path

line = {"step": 1, "metrics": {"accuracy": 1 - abs(float(sys.argv[1]) - 0.3)}, "time": time.time()}
with Path(os.environ["TRAINING_PROGRESS_FILE"]).open("a") as file:
    file.write(json.dumps(line) + "\\n")
(Path(os.environ["TRAINING_OUTPUT_DIR"]) / "model.txt").write_text(sys.argv[1])
"""
NETWORK = """\
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {name: drawn}
spec:
  roles: [{name: master}]
  data: {uri: "sample://digits"}
  trainer:
    network:
      document:
        apiVersion: airflow-training/v1
        kind: Network
        metadata: {name: lenet}
        spec:
          layers:
            - {name: image, type: Input, params: {shape: [1, 8, 8]}}
            - {name: label, type: Input, params: {shape: [], dtype: int64}}
            - {name: conv1, type: Conv2d, inputs: [image], params: {out_channels: 6, kernel_size: 3}}
            - {name: act1, type: ReLU}
            - {name: drop, type: Dropout, phase: [train], params: {p: 0.5}}
            - {name: flat, type: Flatten}
            - name: body
              repeat: 3
              layers:
                - {name: dense, type: Linear, params: {out_features: 16}}
                - {name: act, type: ReLU}
            - {name: logits, type: Linear, params: {out_features: 10}}
            - {name: loss, type: CrossEntropyLoss, inputs: [logits, label]}
            - {name: accuracy, type: Accuracy, inputs: [logits, label]}
    data: {format: images, test: [test]}
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Path]]:
    folder = tmp_path_factory.mktemp("parts")
    with serve(folder, jobs={"fit": FIT}, scripts={"fit.py": SCRIPT}) as site:
        yield site, folder


def test_trials_of_a_parameter_begin_from_the_form_and_are_compared(served):
    site, folder = served
    with site.page(refused="404") as page:
        opened(page, site, f"run=~/{site.uids['fit']}")
        typed(page, FIT)
        tune = page.get_by_role("group", name="Auto-tune")
        tune.get_by_label("Parameter to try values of").select_option("lr")
        assert 'output: {uri: "models/{{ run_id }}"}' in text(page), "each has its own"
        assert "# what is tried" in text(page)
        tune.get_by_label("Values of lr", exact=True).fill("0.9, fast")
        tune.get_by_text("space.lr[1]: must be of type number").wait_for()
        assert page.get_by_role("button", name="Run", exact=False).first.is_disabled()
        tune.get_by_label("Values of lr", exact=True).fill("0.9, 0.31, 0.5")
        tune.get_by_label("Compare by the metric").fill("accuracy")
        page.reload()  # what is typed stays
        checked(page)
        assert tune.get_by_label("Values of lr", exact=True).input_value() == "0.9, 0.31, 0.5"
        page.get_by_role("button", name="Run 3 trials").wait_for()
        check_page(page, "a tuning")
        page.locator("[data-tuned]").scroll_into_view_if_needed()
        page.get_by_role("button", name="Run 3 trials").click()
        page.get_by_role("heading", name="Trials of fit").wait_for()
        page.get_by_text("3 of 3 trials have ended.").wait_for(timeout=240_000)
        best = page.get_by_role("row").filter(has_text="best")
        assert "0.31" in best.inner_text()
        assert page.get_by_role("row").count() == 4
        check_page(page, "trials")
        tried = [each for each in runs(folder).values() if "-tuning-" in each.key.run_id]
        assert len(tried) == 3
        assert len(list((folder / "models").glob("fit-tuning-*"))) == 3
        page.get_by_role("link", name="New training with the best").click()
        checked(page)
        assert "default: 0.31" in text(page)
        page.go_back()
        page.get_by_role("link", name="Compare all").click()
        page.get_by_role("heading", name="3 trainings compared").wait_for()
        page.goto(f"{site.base}/?tuning=0123456789ab")
        page.get_by_text("there is no tuning 0123456789ab here").wait_for()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440])
def test_the_network_is_drawn_and_goes_with_its_text(served, width: int, dark: bool):
    site, _ = served
    with site.page(width=width, dark=dark) as page:
        opened(page, site, f"run=~/{site.uids['fit']}")
        if width == 360:
            page.get_by_role("button", name="YAML", exact=True).click()
        typed(page, NETWORK)
        if width == 360:
            page.get_by_role("button", name="Form", exact=True).click()
        graph = page.get_by_role("group", name="Graph of lenet")

        def layer(name: str) -> Any:
            return graph.get_by_role("button", name=name.replace(" x ", " \u00d7 "))

        layer("conv1 Conv2d gives 6 x 6 x 6").wait_for()
        assert layer("dense x 3 Linear").count() == 1
        assert layer("drop training Dropout only in the training net").count() == 1
        assert graph.get_by_text("1 \u00d7 8 \u00d7 8", exact=True).count() == 1
        graph.scroll_into_view_if_needed()
        check_page(page, "the graph")
        # with the keyboard alone
        layer("image").focus()
        for key in ("ArrowDown", "ArrowDown", "ArrowDown"):
            page.keyboard.press(key)
        assert page.evaluate("document.activeElement.innerText").startswith("drop")
        page.get_by_text("drop: Dropout(p=0.5)").wait_for()
        page.get_by_label("Which net is drawn").select_option("test")
        layer("accuracy").wait_for()
        assert layer("drop").count() == layer("loss").count() == 0
        page.get_by_label("Which net is drawn").select_option("both")
        # a mistake stands at its layer, and the others stay
        if width == 360:
            page.get_by_role("button", name="YAML", exact=True).click()
        typed(page, NETWORK.replace("kernel_size: 3", "kernel_size: 30"))
        if width == 360:
            page.get_by_role("button", name="Form", exact=True).click()
        graph.locator("[data-wrong]").wait_for()
        assert graph.locator("[data-wrong]").inner_text().startswith("conv1")
        graph.locator("[data-wrong]").click()
        assert layer("logits").count() == 1
        graph.scroll_into_view_if_needed()
        check_page(page, "a mistake in the graph")


def long_document(lines: int) -> str:
    files = "".join(f"      - part-{number:06}.csv  # {number}\n" for number in range(lines))
    return FIT.replace(
        "  output: {uri: models}\n", f"  data:\n    uri: s3://data\n    files:\n{files}"
    )


def test_a_long_document_is_read_beside_the_page(served):
    site, _ = served
    document = long_document(6000)
    with site.page() as page:
        page.goto(f"{site.base}/new")
        file = {"name": "long.yaml", "mimeType": "text/yaml", "buffer": document.encode()}
        page.get_by_label("Job file").set_input_files(files=[file])
        page.get_by_text("50 of 6000 are shown.").wait_for()
        # two edits in a row, and one that takes something away, are made in their order
        page.get_by_label("Name", exact=True).fill("longer")
        page.get_by_label("Longest time").fill("600")
        page.get_by_label("Remove Files 1", exact=True).click()
        page.get_by_label("Add to Files").click()
        page.get_by_label("Files 6000", exact=True).fill("last.csv")
        page.wait_for_function(
            "() => decodeURIComponent(document.querySelector('a[download]').href).includes('last.csv')"
        )
        changed = text(page)
        assert changed.count("\n") == document.count("\n") + 1
        assert "metadata: {name: longer}" in changed
        assert "activeDeadlineSeconds: 600" in changed
        assert "part-000000" not in changed
        assert "      - part-000001.csv  # 1\n" in changed
        assert page.get_by_label("Files 1", exact=True).input_value() == "part-000001.csv"
        # what is typed in between is in it too
        page.locator(".cm-content").focus()
        page.keyboard.press("Control+Home")
        page.get_by_label("Longest time").fill("700")
        page.locator(".cm-content").focus()
        page.keyboard.type("# typed\n")
        page.wait_for_function(
            "() => decodeURIComponent(document.querySelector('a[download]').href).includes('Seconds: 700')"
        )
        page.wait_for_function(
            "() => decodeURIComponent(document.querySelector('a[download]').href).includes('# typed')"
        )
        assert text(page).count("# typed\n") == 1
        assert "activeDeadlineSeconds: 700" in text(page)
        checked(page)
        page.reload()
        page.get_by_role("heading", name="New training: longer").wait_for()
        assert page.get_by_label("Longest time").input_value() == "700"
