"""What a runtime does not make for now is told: at once in other words, and with other numbers now and then."""

from __future__ import annotations

from airflow_training.control.observations import RefusedAttempt
from tests.builders import Bench, job, role


def test_what_all_instances_of_a_role_wait_for_is_told_once():
    bench = Bench(job(role("worker", 3), role("other", 1)))
    bench.decide()

    def refused(message: str) -> None:
        bench.refused = [
            RefusedAttempt(
                key=entry.key,
                attempt_id=entry.attempt_id,
                reason="WebhookUnavailable",
                message=f"{entry.key}: {message}" if entry.role == "other" else message,
            )
            for entry in bench.ledger.instances.values()
        ]
        bench.decide(seconds=1)

    refused("failed calling webhook: connection refused")
    assert [each.role for each in bench.said("WebhookUnavailable")] == ["worker", "other"]
    assert {bench.of("worker", each).reason for each in range(3)} == {"WebhookUnavailable"}
    refused("failed calling webhook: timeout")
    assert [each.role for each in bench.said("WebhookUnavailable")] == ["worker", "other"] * 2


def test_numbers_that_change_are_told_once_a_minute_for_all_instances_of_a_role():
    bench = Bench(job(role("worker", 3)))
    bench.decide()
    entries = sorted(bench.ledger.instances.values(), key=lambda each: each.key)

    def told(*used: int, seconds: float) -> list[str]:
        bench.refused = [
            RefusedAttempt(
                key=entry.key,
                attempt_id=entry.attempt_id,
                reason="QuotaExceeded",
                message=f"used: pods={number}",
            )
            for entry, number in zip(entries, used, strict=False)
        ]
        bench.decide(seconds=seconds)
        return [each.message for each in bench.said("QuotaExceeded")]

    assert told(1, seconds=1) == ["used: pods=1"]
    assert told(1, 2, 2, seconds=30) == ["used: pods=1"]
    assert told(3, 3, 3, seconds=31) == ["used: pods=1", "used: pods=3"]
    assert told(4, 4, 4, seconds=59)[2:] == []
    assert told(5, 5, 5, seconds=1)[2:] == ["used: pods=5"]


def test_a_quota_of_which_others_use_more_and_less_is_told_once_a_minute_and_other_words_at_once():
    bench = Bench(job(role("worker", 1)))
    bench.decide()
    entry = bench.of()

    def told(message: str) -> list[str]:
        bench.refused = [
            RefusedAttempt(
                key=entry.key,
                attempt_id=entry.attempt_id,
                reason="QuotaExceeded",
                message=f"exceeded quota: {message}",
            )
        ]
        bench.decide(seconds=1)
        return [each.message.partition(": ")[2] for each in bench.said("QuotaExceeded")]

    first = bench.now + 1
    for used in range(50):
        assert told(f"small, used: pods={used},cpu={used * 500}m") == ["small, used: pods=0,cpu=0m"]
    assert bench.last.wake_at == first + 60
    told("small, used: pods=51,cpu=2")
    assert told("other, used: pods=51,cpu=2")[1:] == ["other, used: pods=51,cpu=2"]
    bench.decide(seconds=60)
    assert told("other, used: pods=52,cpu=2Gi")[2:] == ["other, used: pods=52,cpu=2Gi"]
    assert bench.of().phase.refused_since == first
