"""What holds a pod says why: Kueue's Workload, PodGroups, events, nodes, each asked rarely."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.kubernetes.api_errors import Forbidden, NotFound
from airflow_training.runtimes.kubernetes.facts import facts_of
from airflow_training.runtimes.kubernetes.group_status import (
    by_events,
    by_pod_group,
    by_workload,
    is_held,
    place_in_queue,
)
from airflow_training.runtimes.kubernetes.group_watch import GroupStatuses
from airflow_training.runtimes.kubernetes.kinds import (
    COSCHEDULING_GROUPS,
    EVENTS,
    KUEUE_WAITING,
    KUEUE_WORKLOADS,
    NODES,
    PODS,
    ResourceKind,
)
from airflow_training.runtimes.kubernetes.observing import observe
from airflow_training.runtimes.kubernetes.pod_view import PodView
from tests.kubernetes.samples import RUN, a_container, a_job, a_pod, a_role
from tests.kubernetes.test_observing import NOW, at, condition, container, waiting

FULL = (
    "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default,"
    " 3 more needed"
)
BEYOND = (
    "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default,"
    " previously considered podsets requests (0) + current podset request (12) > maximum capacity (9)"
)


def true(kind: str, reason: str = "", message: str = "") -> dict[str, Any]:
    return {"type": kind, "status": "True", "reason": reason, "message": message}


def pending(message: str) -> dict[str, Any]:
    return {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": message}


def workload(
    *conditions: Any, active: bool = True, name: str = "g", **status: Any
) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"active": active},
        "status": {"conditions": [*conditions], **status},
    }


@pytest.mark.parametrize(
    ("found", "reason", "told"),
    [
        pytest.param(workload(pending(FULL)), "", [FULL], id="the-queue-is-full"),
        pytest.param(workload(pending(BEYOND)), "NeverFits", ["(12) > maximum capacity (9)"], id="larger-than-the-queue"),
        pytest.param(
            workload(true("Evicted", "Preempted", "Preempted to accommodate a workload"), pending(FULL)),
            "", ["Kueue ended it before: Preempted: Preempted to accommodate a workload", FULL], id="preempted",
        ),
        pytest.param(
            workload(
                true("Evicted", "PodsReadyTimeout", "Exceeded the PodsReady timeout"), pending(FULL),
                requeueState={"count": 2, "requeueAt": "2027-01-15T08:00:00Z"},
            ),
            "", ["PodsReadyTimeout: Exceeded", "again at 2027-01-15T08:00:00Z, time 2"], id="not-ready-in-time",
        ),
        pytest.param(
            workload(true("Evicted", "DeactivatedDueToRequeuingLimitExceeded", "requeued too often"), active=False),
            "Deactivated", ["deactivated", "requeued too often"], id="deactivated",
        ),
        pytest.param(
            workload(
                true("QuotaReserved", "QuotaReserved"),
                admissionChecks=[{"name": "provision", "state": "Pending", "message": "no machine"}],
            ),
            "", ["has its quota", "provision (Pending: no machine)"], id="an-admission-check",
        ),
        pytest.param(workload(), "", ["waits in its queue"], id="not-looked-at-yet"),
    ],
)  # fmt: skip
def test_a_workload_says_what_it_waits_for(found, reason, told):
    holder = by_workload(found)
    assert holder is not None
    assert holder.reason == reason
    assert all(each in holder.message for each in told), holder.message


def test_an_admitted_workload_holds_nothing():
    assert by_workload(workload(true("QuotaReserved"), true("Admitted"))) is None


def test_the_place_in_a_queue_is_told():
    queue = [
        {"metadata": {"name": "other"}, "positionInLocalQueue": 0, "positionInClusterQueue": 4},
        {"metadata": {"name": "g"}, "positionInLocalQueue": 1, "positionInClusterQueue": 7},
    ]
    place = place_in_queue(queue, "g")
    assert place == "place 2 of 2 in its queue, 8 in the whole cluster queue"
    assert place_in_queue(queue, "h") == ""
    holder = by_workload(workload(pending(FULL)), place=place)
    assert holder is not None
    assert holder.message == f"{FULL}; {place}"


@pytest.mark.parametrize(
    ("group", "told"),
    [
        pytest.param(
            {"status": {"phase": "Inqueue", "conditions": [true("Unschedulable", "NotEnoughResources", "3/4 tasks in gang unschedulable")]}},
            "its gang is Inqueue: 3/4 tasks in gang unschedulable", id="volcano",
        ),
        pytest.param(
            {"spec": {"minMember": 4}, "status": {"phase": "Scheduling", "scheduled": 2}},
            "its gang is Scheduling, 2 of 4 placed", id="coscheduling",
        ),
        pytest.param({"status": {"phase": "Running"}}, None, id="placed"),
        pytest.param({}, None, id="nothing-is-said"),
    ],
)  # fmt: skip
def test_a_pod_group_says_what_it_waits_for(group, told):
    holder = by_pod_group(group)
    assert (None if holder is None else holder.message) == told


def event(
    reason: str, message: str, *, kind: str = "Warning", uid: str = "u", when: float = -5
) -> Any:
    about = {"kind": "Pod", "uid": uid}
    return {"involvedObject": about, "type": kind, "reason": reason, "message": message, "lastTimestamp": at(when)}  # fmt: skip


def test_the_newest_warning_about_a_pod_is_told():
    events = [
        event("FailedScheduling", "no place", when=-60),
        event("FailedMount", 'secret "key" not found', when=-9),
        event("FailedMount", "of another pod", uid="v", when=-1),
        event("Pulled", "Container image is present", kind="Normal", when=0),
    ]
    holder = by_events(events, "u")
    assert holder is not None
    assert holder.message == 'FailedMount: secret "key" not found'
    assert by_events(events, "w") is None
    pulls = by_events([event("Pulling", 'Pulling image "train:1"', kind="Normal", when=-90)], "u")
    assert pulls is not None
    assert pulls.message == f'Pulling image "train:1" since {at(-90)}'


# pods --------------------------------------------------------------------------------------------
def waits(gang: str = "none", *, node: str = "", uid: str = "u", **status: Any) -> dict[str, Any]:
    job = a_job(a_role(main=a_container(resources={"requests": {"cpu": "73"}})), gang=gang)
    made = a_pod(job, facts=facts_of(RUN, job))
    made["metadata"] |= {"uid": uid, "resourceVersion": "1"}
    made["status"] = {"phase": "Pending", **status}
    if node:
        made["spec"]["nodeName"] = node
    return made


def gated(uid: str = "u") -> dict[str, Any]:
    words = "Scheduling is blocked due to non-empty scheduling gates"
    pod = waits(
        "kueue", uid=uid, conditions=[condition("PodScheduled", "False", "SchedulingGated", words)]
    )
    pod["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "research"
    return pod


def refused(gang: str = "none", *, uid: str = "u") -> dict[str, Any]:
    words = "0/1 nodes are available: 1 Insufficient cpu."
    return waits(
        gang, uid=uid, conditions=[condition("PodScheduled", "False", "Unschedulable", words)]
    )


def starting(*, seconds: float) -> dict[str, Any]:
    return waits(
        node="a", conditions=[condition("PodScheduled", "True", when=-seconds)],
        containerStatuses=[container(waiting("ContainerCreating"))],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("pod", "held"),
    [
        pytest.param(gated(), True, id="gated"),
        pytest.param(refused(), True, id="no-place"),
        pytest.param(waits(), True, id="nobody-has-looked"),
        pytest.param(starting(seconds=31), True, id="starts-slowly"),
        pytest.param(starting(seconds=5), False, id="starts"),
        pytest.param(waits(node="a", phase="Running"), False, id="runs"),
    ],
)
def test_only_a_pod_that_waits_for_others_is_asked_about(pod, held):
    assert is_held(PodView.of(pod), now=NOW) == held


class Server:
    """Answers with the objects that it was given, and counts what is asked."""

    def __init__(self, answers: dict[ResourceKind, Any], *pods: Any) -> None:
        self.answers = answers
        self.pods = pods
        self.asked: Counter[ResourceKind] = Counter()

    async def list(
        self, kind: ResourceKind, namespace: str = "", **_: Any
    ) -> tuple[list[Any], str]:
        self.asked[kind] += 1
        found = self.answers.get(kind, NotFound(404, "NotFound", "no such kind"))
        if isinstance(found, Exception):
            raise found
        return found, "1"

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Any:
        if kind == PODS:
            return next(pod for pod in self.pods if pod["metadata"]["name"] == name)
        return {"items": (await self.list(kind))[0]}


async def asked(server: Server, *pods: Any, times: int = 1) -> dict[str, str]:
    """Return uid -> reason and message of a pod, once its holder was asked."""
    holders = GroupStatuses(server, "team")  # type: ignore[arg-type]  # only what it asks for
    views = [PodView.of(pod) for pod in pods]
    looked = [await holders.of(views) for _ in range(times)]
    found = looked[-1]
    seen = {pod.uid: observe(pod, now=NOW, holder=found.get(pod.uid)) for pod in views}
    return {uid: f"{each.state} {each.reason}: {each.message}" for uid, each in seen.items()}


async def test_a_gated_pod_has_the_words_of_its_workload():
    pod = gated()
    group = pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"]
    waiting = [
        {"metadata": {"name": group}, "positionInLocalQueue": 0, "positionInClusterQueue": 2}
    ]
    server = Server(
        {KUEUE_WORKLOADS[0]: [workload(pending(FULL), name=group)], KUEUE_WAITING[1]: waiting}
    )
    said = await asked(server, pod, gated(uid="v"), times=3)
    words = (
        f"pending SchedulingGated: {FULL}; place 1 of 1 in its queue, 3 in the whole cluster queue"
    )
    assert said == {"u": words, "v": words}
    # of what is not there it was asked once, of what is there once a look, however many pods wait
    assert server.asked == {KUEUE_WORKLOADS[0]: 3, KUEUE_WAITING[0]: 1, KUEUE_WAITING[1]: 3}


async def test_what_may_not_be_read_is_asked_for_once():
    no = Forbidden(403, "Forbidden", "may not list")
    server = Server(dict.fromkeys((*KUEUE_WORKLOADS, EVENTS, NODES), no))
    said = await asked(server, gated(), refused(uid="v"), times=3)
    assert said["u"] == "pending SchedulingGated: waits for its turn in queue 'research'"
    assert "Insufficient cpu" in said["v"]
    assert set(server.asked.values()) == {1}


async def test_a_pod_without_a_place_is_compared_with_the_nodes():
    pod = refused()
    small = {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "72"}}}
    large = {"metadata": {"name": "b"}, "status": {"allocatable": {"cpu": "96"}}}
    said = await asked(Server({NODES: [small]}, pod), pod)
    assert said["u"].startswith("pending NeverFits: no node could take it, even when empty")
    assert "the largest is a with 72" in said["u"]
    said = await asked(Server({NODES: [small, large]}, pod), pod)
    assert said["u"].startswith("pending Unschedulable: 0/1 nodes are available")


async def test_a_later_attempt_that_asks_for_more_is_looked_at_by_itself():
    first, later = refused(), refused(uid="v")
    later["metadata"]["labels"]["airflow-training/attempt"] = "1"
    later["metadata"]["name"] += "-later"
    later["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "99"}}
    first["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    small = {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "72"}}}
    said = await asked(Server({NODES: [small]}, first, later), first, later)
    assert said["u"].startswith("pending Unschedulable")
    assert said["v"].startswith("pending NeverFits")


async def test_a_gangs_words_are_added_to_the_schedulers():
    pod = refused("coscheduling")
    name = pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"]
    group = {"metadata": {"name": name}, "spec": {"minMember": 2}, "status": {"phase": "Scheduling", "scheduled": 1}}  # fmt: skip
    said = await asked(Server({COSCHEDULING_GROUPS: [group], NODES: []}, pod), pod)
    assert said["u"].endswith("1 Insufficient cpu.; its gang is Scheduling, 1 of 2 placed")


async def test_a_pod_that_starts_slowly_says_why():
    pod = starting(seconds=40)
    server = Server({EVENTS: [event("FailedMount", 'secret "key" not found')]})
    assert await asked(server, pod) == {
        "u": 'pending Starting: FailedMount: secret "key" not found'
    }


async def test_a_cluster_that_does_not_answer_leaves_what_the_pod_says():
    server = Server({NODES: RuntimeUnavailable("away")})
    assert "Insufficient cpu" in (await asked(server, refused()))["u"]
