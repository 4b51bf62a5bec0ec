"""What runs cost and what was used each day, in a real browser over a store with prices."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from airflow_training.state.account_records import Price
from airflow_training.state.store import Store
from tests.web.screenshots import add_history
from tests.web.site import CHROMIUM, JOBS, Site, check_page, serve

pytest.importorskip("playwright.sync_api")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]


def _prepare(folder: Path) -> None:
    """Three users' runs of the last week, and prices of GPUs and of instances."""
    add_history(folder)
    store = Store(f"sqlite:///{folder / 'airflow_training.db'}")
    for resource, hourly in (("nvidia.com/gpu", "2.5"), ("instance", "3600")):
        price = Price(resource=resource, valid_from=0.0, hourly=Decimal(hourly))
        store.accounts.set_price(price)
    store.close()


@pytest.fixture(scope="module")
def priced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("priced")
    with serve(folder, {"broken": JOBS["broken"]}, prepare=_prepare) as served:
        yield served


def test_the_top_of_a_run_says_what_it_cost_and_roles_that_failed_say_so(priced: Site):
    with priced.page() as page:
        priced.open(page, "broken")
        cost = page.get_by_title("EUR: what its instances requested")
        amount, currency = cost.inner_text().split()
        assert currency == "EUR"
        assert float(amount) > 0
        assert page.get_by_text("Cost", exact=True).is_visible(), "it is over"
        roles = page.locator("section").filter(has=page.get_by_role("heading", name="Roles"))
        assert roles.get_by_text("Failed", exact=True).count() >= 1
        page.get_by_role("row", name="master-0").get_by_text("failed").wait_for()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440])
def test_usage_has_money_and_bars_of_days_with_a_table_behind_them(
    priced: Site, width: int, dark: bool
):
    with priced.page(width=width, dark=dark) as page:
        page.get_by_role("link", name="Usage").click()
        page.get_by_role("columnheader", name="Cost, EUR").wait_for()
        users = page.get_by_role("row", name="ann")
        # 8 and 4 GPUs on 4 workers for 7,000 s each, of which the second was two days before
        assert users.get_by_role("cell").last.inner_text().startswith("337,")
        bars = page.get_by_role("img", name="GPU hours of each day from 20")
        bars.wait_for()
        page.get_by_label("Bars of").select_option("Cost, EUR")
        page.get_by_role("img", name="Cost, EUR of each day").wait_for()
        page.get_by_text("The days as a table").focus()
        page.keyboard.press("Enter")
        days = page.get_by_role("row").filter(has_text="20")
        page.get_by_role("columnheader", name="Day (UTC)").wait_for()
        assert days.count() >= 4
        check_page(page, "usage with money")
        page.get_by_role("button", name="Today").click()
        bars.wait_for(state="detached")


def test_days_of_a_whole_year_fit_on_a_phone(priced: Site):
    with priced.page(width=360) as page:
        page.get_by_role("link", name="Usage").click()
        page.get_by_role("button", name="1 year").click()
        bars = page.get_by_role("img", name="GPU hours of each day from 20")
        page.wait_for_function(
            "() => document.querySelector('[role=img]')?.childElementCount >= 365"
        )
        box = bars.bounding_box()
        assert box is not None
        assert box["width"] >= 3 * 365, "each can be pointed at; the rest is scrolled to"
        check_page(page, "usage of a year")
