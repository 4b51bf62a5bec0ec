"""A process that was replaced can neither commit nor be the one that training goes on from."""

from __future__ import annotations

from tests.checkpoints.interleaving import race


def test_in_no_order_of_operations_anything_stale_counts_or_anything_acknowledged_is_lost():
    outcomes = [race(seed) for seed in range(300)]
    # the orders tried are worth something: there were saves by both, and refusals
    assert sum(outcome.refused for outcome in outcomes) > 100
    assert {step for o in outcomes for step in o.went_on_from.values()} >= {20, 30, 40}
