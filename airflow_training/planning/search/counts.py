"""How many devices a plan may take: divisors, and the device counts worth a try on a cluster."""

from __future__ import annotations

from airflow_training.planning.view.cluster import ClusterView


def divisors(number: int) -> list[int]:
    """Return the divisors of a number from 1 up, in ascending order."""
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return small + [number // n for n in reversed(small) if n * n != number]


def device_counts(cluster: ClusterView) -> list[int]:
    """Return the device counts that a search on equal devices tries, in ascending order.

    Below one node they are all that divide it, above it whole nodes: every number of nodes up to 32,
    beyond that those that split well (2^a 3^b 5^c), those that divide the cluster, and the cluster.
    Sizes with other prime factors can hardly be filled by a model whose sizes they do not divide.
    """
    per_node = min(group.devices_per_node for group in cluster.groups)
    nodes = sum(group.devices // per_node for group in cluster.groups)
    whole = [n for n in range(1, nodes + 1) if n <= 32 or nodes % n == 0 or splits_well(n)]
    return sorted({*divisors(per_node), *(n * per_node for n in whole)})


def splits_well(number: int) -> bool:
    """Return whether a number has no prime factors but 2, 3 and 5."""
    for prime in (2, 3, 5):
        while number % prime == 0:
            number //= prime
    return number == 1
