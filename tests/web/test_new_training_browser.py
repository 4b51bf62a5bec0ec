"""A training is put together in a form beside its YAML, and begins, in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from airflow_training.documents.schema import json_schema
from airflow_training.state.store import Store
from tests.waiting import wait_until
from tests.web.site import CHROMIUM, Site, check_page, serve
from tests.web.test_hostile_browser import PAYLOADS

pytest.importorskip("playwright.sync_api")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]

JOB = """\
# how it was typed
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {name: first}   # a name
spec:
  framework: custom
  command: [python, -c, "print('done')"]
  env: [{name: LR, value: "0.1"}]
  roles:
    - {name: worker, replicas: 2}  # two
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Path]]:
    folder = tmp_path_factory.mktemp("new")
    (folder / "digits").mkdir()
    (folder / "digits/train-0.csv").write_text("1,2\n" * 500)
    with serve(folder, jobs={"first": JOB}, scripts={}) as site:
        yield site, folder


def runs(folder: Path) -> dict[str, Any]:
    store = Store(f"sqlite:///{folder / 'airflow_training.db'}")
    try:
        return {each.key.run_id: each for each in store.runs(limit=50)}
    finally:
        store.close()


def opened(page: Any, site: Site, query: str = "") -> None:
    page.goto(f"{site.base}/new{query and '?' + query}")
    page.locator(".cm-content").wait_for(state="attached")
    checked(page)


def checked(page: Any) -> None:
    page.locator("[data-checked]").wait_for()


def text(page: Any) -> str:
    """The whole text, which the editor draws in part only."""
    link = page.get_by_role("link", name="Download").get_attribute("href")
    return str(page.evaluate("link => decodeURIComponent(link.slice(link.indexOf(',') + 1))", link))


def typed(page: Any, document: str) -> None:
    """Put a document into the editor, as if it were pasted."""
    page.locator(".cm-content").click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(document)
    page.wait_for_function(
        "size => Math.abs(decodeURIComponent(document.querySelector('a[download]').href).length - size) < 60",
        arg=len(document) + len("data:text/yaml;charset=utf-8,"),
    )


def test_from_a_preset_to_a_running_training_in_four_clicks(served):
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    site, folder = served
    before = set(runs(folder))
    with site.page() as page:
        page.get_by_role("link", name="New training").first.click()
        page.get_by_role("link", name="PyTorch script").click()
        page.get_by_role("button", name="Run", exact=True).click()
        page.wait_for_url("**/runs/*")
        page.get_by_role("heading", name="pytorch-script", exact=True).wait_for()
        [name] = set(runs(folder)) - before
        assert name.startswith("pytorch-script-")
        wait_until(lambda: runs(folder)[name].finished_at is not None, "it runs to its end")
        page.get_by_text("succeeded", exact=True).first.wait_for()
        page.goto(f"{site.base}/new")
        page.get_by_role("heading", name="New training", exact=True).wait_for()
        assert page.get_by_text("Not sent yet").count() == 0


def test_the_text_fills_the_form_and_the_form_changes_its_bytes_in_the_text_alone(served):
    site, _ = served
    with site.page() as page:
        opened(page, site, f"run=~/{site.uids['first']}")
        typed(page, JOB)
        assert text(page) == JOB
        replicas = page.get_by_label("Replicas")
        assert replicas.input_value() == "2"
        replicas.fill("3")
        page.get_by_label("Value of LR").fill("yes")
        page.get_by_label("Starting model").fill("s3://models/<b>x</b>")
        wanted = JOB.replace("replicas: 2", "replicas: 3").replace('"0.1"', '"yes"')
        assert text(page) == f"{wanted}  data: {{initialModel: s3://models/<b>x</b>}}\n"
        page.get_by_label("Starting model").fill("")
        assert text(page) == wanted
        typed(page, wanted.replace("replicas: 3", "replicas: 5"))
        assert replicas.input_value() == "5"
        # what cannot be read keeps the form as it was
        typed(page, f"{wanted}broken: [")
        page.get_by_text("The form waits until the text can be read").wait_for()
        assert replicas.input_value() == "5"
        assert replicas.is_disabled()
        assert page.get_by_role("button", name="Run", exact=True).is_disabled()


def test_mistakes_stand_beside_the_field_and_the_line_in_the_words_of_validate(served):
    site, _ = served
    with site.page() as page:
        opened(page, site, "preset=own-image")
        page.get_by_label("Replicas").fill("<b>many</b>")
        said = page.locator("[data-field='spec.roles[0].replicas']").get_by_text("whole number")
        said.wait_for()
        page.locator("[data-checked]").filter(has_text="1 mistake").wait_for()
        assert page.get_by_role("button", name="Run", exact=True).is_disabled()
        page.get_by_role("button", name="Parallel (1)").wait_for()
        page.locator("[data-field='spec.roles[0].replicas']").get_by_role("button").click()
        page.wait_for_function("document.activeElement.classList.contains('cm-content')")
        page.get_by_label("Replicas").fill("2")
        page.get_by_text("no mistakes", exact=True).wait_for()


def test_nothing_typed_is_lost_until_it_runs(served):
    site, folder = served
    with site.page() as page:
        opened(page, site, f"run=~/{site.uids['first']}")
        page.get_by_label("Name", exact=True).fill("kept")
        page.keyboard.press("Escape")
        page.wait_for_url("**/new?draft=*")
        page.reload()
        page.get_by_role("heading", name="New training: kept").wait_for()
        assert page.get_by_label("Name", exact=True).input_value() == "kept"
        other = page.context.new_page()  # as after the tab was closed
        other.goto(f"{site.base}/new")
        other.get_by_role("region", name="Not sent yet").get_by_role("link", name="kept").click()
        other.get_by_role("heading", name="New training: kept").wait_for()
        checked(other)
        other.get_by_role("button", name="Run", exact=True).click()
        other.wait_for_url("**/runs/*")
        other.goto(f"{site.base}/new")
        other.get_by_role("heading", name="Presets", exact=True).wait_for()
        assert other.get_by_text("Not sent yet").count() == 0
        [name] = [each for each in runs(folder) if each.startswith("kept-")]
        wait_until(lambda: runs(folder)[name].finished_at is not None, "it runs to its end")


def test_a_fork_of_a_run_has_its_digest(served):
    site, folder = served
    with site.page() as page:
        site.open(page, "first", "configuration")
        page.get_by_role("link", name="New training from this").click()
        page.locator(".cm-content").wait_for(state="attached")
        checked(page)
        page.get_by_role("button", name="Run", exact=True).click()
        page.wait_for_url("**/runs/*")
        uid = page.url.rpartition("/")[2].partition("?")[0]
    forked = {each.uid: each for each in runs(folder).values()}
    assert forked[uid].document_digest == runs(folder)["first"].document_digest
    wait_until(lambda: runs(folder)[forked[uid].key.run_id].finished_at is not None, "it ends")


def test_a_link_fills_in_and_never_runs_anything(served):
    site, folder = served
    before = set(runs(folder))
    sets = [
        "spec.roles.master.replicas=1",
        "spec.checkpoint.keep=7",
        "spec.nosuch=1",
        "run=1",
        "submit",
        *(
            f"spec.env.HOSTILE{index}={json.dumps(each)}"
            for index, each in enumerate(PAYLOADS[:20])
        ),
    ]
    query = "&".join(
        ["preset=pytorch-script", "submit=1", *(f"set={quote(each)}" for each in sets)]
    )
    with site.page() as page:
        posts: list[str] = []
        page.on("request", lambda each: posts.extend([each.url] * (each.method == "POST")))
        opened(page, site, query)
        assert "keep: 7" in text(page)
        page.get_by_text("Nothing runs before you press Run.").wait_for()
        page.get_by_text("Not filled in: submit").wait_for()
        assert page.locator("[data-struck], x-struck").count() == 0
        assert page.evaluate("window.struck") is None
        assert {each.rpartition("/")[2] for each in posts} == {"check"}
        check_page(page, "a hostile link")
    assert set(runs(folder)) == before


def test_a_preset_is_saved_in_versions_and_begun_with(served):
    site, _ = served
    with site.page() as page:
        opened(page, site, f"run=~/{site.uids['first']}")
        page.get_by_role("button", name="Save as preset").click()
        page.get_by_label("Save as preset", exact=True).fill("my-preset")
        page.get_by_label("What it is for").fill(PAYLOADS[0])
        page.get_by_role("button", name="Save", exact=True).click()
        page.get_by_text("Saved as my-preset, version 1").wait_for()
        page.get_by_label("Longest time").fill("600")
        page.get_by_role("button", name="Save", exact=True).click()
        page.get_by_text("Saved as my-preset, version 2").wait_for()
        page.goto(f"{site.base}/new")
        page.get_by_role("link", name="my-preset").click()
        checked(page)
        assert page.get_by_label("Longest time").input_value() == "600"
        # and from the page of a run
        site.open(page, "first", "configuration")
        page.get_by_role("button", name="Save as preset").click()
        page.get_by_role("button", name="Save", exact=True).click()
        page.get_by_text("Saved as first, version 1").wait_for()


def test_files_are_chosen_by_their_names_and_sizes(served):
    site, _ = served
    with site.page() as page:
        opened(page, site, f"run=~/{site.uids['first']}")
        page.get_by_label("Address", exact=True).fill("digits")
        page.get_by_role("button", name="Look for files").click()
        page.get_by_text("train-0.csv").click()
        page.get_by_text("2.0 KiB chosen").wait_for()
        assert "files: [train-0.csv]" in text(page)


EXPAND = """async () => {
    const advanced = document.getElementById("section-advanced");
    const closed = () => [...advanced.querySelectorAll("[aria-expanded=false]")].filter(each => {
        const name = each.parentElement.dataset.field ?? "";
        return !/\\.template$|volume/i.test(name) && name.split(/[.[]/).length < 5;
    });
    for (let turn = 0; turn < 9 && closed().length > 0; turn += 1) {
        for (const each of closed()) each.click();
        await new Promise(resolve => setTimeout(resolve, 50));
    }
    return [...document.querySelectorAll("[data-field]")].map(each => each.dataset.field);
}"""


def fields(schema: Any, root: Any, path: str = "") -> Iterator[str]:
    """The fields that one gets to without adding an item, three blocks deep."""
    while "$ref" in schema or "anyOf" in schema or "oneOf" in schema:
        if "$ref" in schema:
            schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
            continue
        ways = [
            each for each in schema.get("anyOf") or schema["oneOf"] if each.get("type") != "null"
        ]
        if len(ways) > 1:
            return  # a value stands there, or fields once somebody asks for them
        [schema] = ways
    for name, each in schema.get("properties", {}).items():
        if name.startswith("$"):
            continue
        inner = f"{path}.{name}" if path else name
        yield inner
        if len(inner.split(".")) < 4 and not re.search("template$|volume", inner, re.I):
            yield from fields(each, root, inner)


def test_every_field_of_the_spec_is_reached(served):
    site, _ = served
    root = json_schema()
    wanted = {each for each in fields(root, root) if re.match(r"spec\.|metadata\.", each)}
    assert len(wanted) > 100
    with site.page() as page:
        opened(page, site, "preset=own-image")
        reached = set(page.evaluate(EXPAND))
        assert wanted - reached == set()
        page.get_by_label("Find a field").fill("tolerations")
        page.get_by_role("region", name="Fields found").get_by_text("field").first.wait_for()
        page.get_by_label("Find a field").fill("spec.restart.maxRestarts")
        page.get_by_role("region", name="Fields found").locator("input, select").first.wait_for()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440])
def test_the_form_fits_and_is_accessible(served, width: int, dark: bool):
    site, _ = served
    with site.page(width=width, dark=dark) as page:
        page.goto(f"{site.base}/new")
        page.get_by_role("heading", name="Presets", exact=True).wait_for()
        check_page(page, "what a training begins with")
        page.get_by_role("link", name="Your own image").click()
        checked(page)
        page.get_by_label("Replicas").fill("x")
        page.locator("[data-field='spec.roles[0].replicas']").get_by_text("whole number").wait_for()
        page.get_by_role("button", name="Save as preset").click()
        check_page(page, "the form")
        if width == 360:
            page.get_by_role("button", name="YAML", exact=True).click()
            page.locator(".cm-content").wait_for()
            check_page(page, "its YAML")


def test_with_the_keyboard_alone(served):
    site, folder = served
    with site.page() as page:
        page.goto(f"{site.base}/new")
        link = page.get_by_role("link", name="first").first
        link.focus()
        page.keyboard.press("Enter")
        checked(page)
        page.get_by_label("Name", exact=True).focus()
        page.keyboard.press("Control+A")
        page.keyboard.type("by-keys")
        # into the editor and out of it again
        page.locator(".cm-content").focus()
        page.keyboard.press("Control+End")
        page.keyboard.type("# typed")
        page.keyboard.press("Escape")
        page.keyboard.press("Tab")
        page.wait_for_function("!document.activeElement.closest('.cm-editor')")
        checked(page)
        for _ in range(150):
            page.keyboard.press("Shift+Tab")
            if page.evaluate("document.activeElement.innerText === 'Run'"):
                break
        page.keyboard.press("Enter")
        page.wait_for_url("**/runs/*")
    [name] = [each for each in runs(folder) if each.startswith("by-keys-")]
    wait_until(lambda: runs(folder)[name].finished_at is not None, "it ends")


def test_what_the_command_line_refuses_is_said_and_the_draft_stays(served):
    site, folder = served
    with site.page(refused="422") as page:
        opened(page, site, f"run=~/{site.uids['first']}")
        page.get_by_label("Name", exact=True).fill("refused")
        checked(page)
        page.route(
            "**/training/api/check",
            lambda route: route.fulfill(json={"mistakes": [], "warnings": []}),
        )
        page.get_by_label("Replicas").fill("x")
        checked(page)
        page.get_by_role("button", name="Run", exact=True).click()
        page.get_by_role("alert").filter(has_text="spec.roles[0].replicas").wait_for()
        assert page.get_by_label("Name", exact=True).input_value() == "refused"
    assert not [each for each in runs(folder) if each.startswith("refused")]
