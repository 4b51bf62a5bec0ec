"""Lines that come again and again are passed over only where no signature can match one like them."""

from __future__ import annotations

import re

import pytest

from airflow_training.logs.engine import Pattern
from airflow_training.logs.engine.automaton import LiteralAutomaton
from airflow_training.logs.engine.layouts import layout_of
from airflow_training.logs.engine.learning import LayoutTable, may_match
from airflow_training.logs.engine.required_texts import needs_of
from airflow_training.logs.engine.scanning import BLOCK_BYTES, Machine
from airflow_training.logs.engine.stretches import scan_stretch
from airflow_training.logs.metrics import formats
from airflow_training.logs.model import Origin
from tests.logs.engine.sources import Dribble

FORMATS = formats()


@pytest.mark.parametrize(
    ("line", "pattern", "expected"),
    [
        pytest.param("rank 3 ended with exit code 1", "exit code 137", True, id="other-digits"),
        pytest.param("rank 3 ended, exit code 1", "ended with exit code", False, id="other-words"),
        pytest.param("read 12 of 5 shards", "12 of 17", True, id="over-two-numbers"),
        pytest.param("comm 0xab12 is up", "0xC0000005", False, id="letters-that-never-vary"),
        pytest.param("fault 0xc1 in 7", "0xC0000005", True, id="letters-that-are-there"),
        pytest.param("node el 5 is up", "EL0004: ", False, id="a-sign-that-is-not-there"),
        pytest.param("CUDA \x1b[1mout\x1b[0m of 5", "CUDA out of", True, id="under-colours"),
        pytest.param("loss: 2.5 at step 5", "loss: (?:nan|inf)", False, id="no-finite-number"),
        pytest.param("step: 5 loss: 0.5", "loss: 1e-05", True, id="a-value"),
        pytest.param(" 5%|#| 5/9 [00:12<01:10, 2it/s]", "5%\\|==", True, id="the-drawing-of-a-bar"),
        pytest.param("took 5 s", "took too long|took \\d+ s$", True, id="one-of-two-ways"),
    ],
)
def test_whether_a_signature_may_match_lines_like_one(
    line, pattern, expected, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = line.encode()
    layout = layout_of(text, FORMATS.parse_line(text))
    for _ in range(2):  # the second time from the cache folder
        needs_of.cache_clear()
        needs = needs_of((Pattern(name="x", pattern=pattern),))
        assert may_match(text, layout, needs) is expected


def test_a_line_that_never_comes_again_is_not_learned():
    learned = LayoutTable(FORMATS)
    for word in ("alpha", "beta", "gamma", "beta"):
        assert learned.read(f"epoch of {word} 12".encode()) is None
    assert [line for line, _ in learned.new] == [b"epoch of beta 12"]


def test_a_signature_in_a_number_is_found_among_thousands_of_such_lines():
    pytest.importorskip("numba")
    from airflow_training.logs.engine.compiled_walker import CompiledWalker

    signatures = [Pattern(name="killed", pattern=r"exit code 137")]
    lines = [b"worker %d of 64: exit code %d" % (n % 64, n % 100) for n in range(20_000)]
    lines += [b"shard %d of run %d was read" % (n, n * 7) for n in range(20_000)]
    lines[19_000] = b"worker 7 of 64: exit code 137"
    data = b"\n".join(lines) + b"\n"
    walker = CompiledWalker(signatures, size=BLOCK_BYTES)
    machine = Machine(signatures, None, automaton=LiteralAutomaton(signatures, ()), walker=walker)
    found = scan_stretch(machine, Origin(file="x"), Dribble(data, [65_536]), 0, None)
    assert found.ends == len(lines)
    assert [hit.line for hit in found.hits.kept()] == [19_001]
    shapes = {re.sub(rb"\d+", b"0", b"0".join(one.texts)) for one in walker.layouts}
    assert len(shapes) == 2  # both kinds were learned, without metrics being asked for
