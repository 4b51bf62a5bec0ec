"""Metrics over all ranks are those that one process finds."""

from __future__ import annotations

import numpy
import pytest

from airflow_training.networks.trainer.metrics import auc, ndcg_of_lists


def test_auc_counts_pairs_and_equal_scores_half():
    scores = numpy.array([0.1, 0.4, 0.35, 0.8, 0.4])
    positive = numpy.array([False, False, True, True, True])
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[positive] for b in scores[~positive]]
    assert auc(scores, positive) == pytest.approx(sum(pairs) / len(pairs))


def test_auc_of_one_class_says_nothing():
    assert auc(numpy.array([0.1, 0.9]), numpy.array([True, True])) == 0.5


def test_ndcg_is_one_for_the_best_order_and_counts_pieces_of_a_list_together():
    scores = numpy.array([[4.0, 3.0], [2.0, 9.0]])
    relevance = numpy.array([[3.0, 2.0], [1.0, 3.0]])
    # one list of three documents in two pieces; the last place only repeats one
    found = ndcg_of_lists(scores, relevance, numpy.array([2, 1]), numpy.array([0, 0]), None)
    assert found == [pytest.approx(1.0)]


def test_ndcg_at_one_of_a_wrong_first_place():
    found = ndcg_of_lists(
        numpy.array([[1.0, 0.0]]), numpy.array([[0.0, 1.0]]), numpy.array([2]), numpy.array([0]), 1
    )
    assert found == [0.0]
