"""Whatever is in a document: every leaf has one fate, what was kept is there, and nothing crashes."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from airflow_training.documents.loading import load_documents
from airflow_training.documents.paths import split_path
from airflow_training.interchange.importing import ImportedDocument, import_text

POD = """
            metadata: {labels: {team: vision}, creationTimestamp: null}
            spec:
              restartPolicy: OnFailure
              schedulerName: volcano
              serviceAccountName: trainer
              initContainers: [{name: fetch, image: b, command: [fetch], restartPolicy: Always}]
              containers:
                - name: NAME
                  image: a
                  command: [torchrun, train.py]
                  args: ["--host", "digits-worker-0:2222", "{{ x }}"]
                  env:
                    - {name: LEVEL, value: info}
                    - {name: WHO, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
                  ports: [{name: p, containerPort: 2222}]
                  resources: {limits: {cpu: "1", nvidia.com/gpu: 1}}
                  volumeMounts: [{name: data, mountPath: /data}]
              volumes: [{name: data, downwardAPI: {items: [{path: x, fieldRef: {fieldPath: metadata.uid}}]}}]
              topologySpreadConstraints:
                - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {a: b}}}
"""
HEAD = "metadata: {name: digits, namespace: n, labels: {kueue.x-k8s.io/queue-name: q}, annotations: {a: b}}\n"
JOB_SPEC = """
          parallelism: 2
          completions: 2
          completionMode: Indexed
          backoffLimit: 1
          activeDeadlineSeconds: 60
          podFailurePolicy:
            rules:
              - {action: FailJob, onExitCodes: {operator: In, values: [3]}}
              - {action: Count, onPodConditions: [{type: DisruptionTarget, status: "True"}]}
"""
REPLICAS = f"""
      ROLE:
          replicas: 2
          restartPolicy: ExitCode
          template:{POD}
"""
RUN_POLICY = """
  runPolicy:
    cleanPodPolicy: All
    backoffLimit: 3
    activeDeadlineSeconds: 60
    ttlSecondsAfterFinished: 60
    suspend: false
    schedulingPolicy: {minAvailable: 2, queue: q, priorityClass: p, scheduleTimeoutSeconds: 60}
"""


def operator_job(kind: str, replicas: str, container: str, role: str, extra: str = "") -> str:
    body = REPLICAS.replace("ROLE", role).replace("NAME", container)
    return f"apiVersion: kubeflow.org/v1\nkind: {kind}\n{HEAD}spec:{RUN_POLICY}{extra}  {replicas}:{body}"


SOURCES = {
    "Job": f"""apiVersion: batch/v1
kind: Job
{HEAD}spec:
          ttlSecondsAfterFinished: 60
          suspend: true
          successPolicy: {{rules: [{{succeededCount: 1}}]}}{JOB_SPEC}
          template:{POD.replace("NAME", "main")}
""",
    "JobSet": f"""apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
{HEAD}spec:
  network: {{enableDNSHostnames: true, subdomain: digits, publishNotReadyAddresses: true}}
  suspend: true
  ttlSecondsAfterFinished: 60
  startupPolicy: {{startupPolicyOrder: InOrder}}
  successPolicy: {{operator: All, targetReplicatedJobs: [worker]}}
  failurePolicy:
    maxRestarts: 3
    restartStrategy: Recreate
    rules:
      - {{name: a, action: FailJobSet, onJobFailureReasons: [PodFailurePolicy], targetReplicatedJobs: [worker]}}
  coordinator: {{replicatedJob: worker, jobIndex: 0, podIndex: 0}}
  replicatedJobs:
    - name: worker
      replicas: 2
      groupName: g
      template:
        metadata: {{labels: {{a: b}}}}
        spec:{JOB_SPEC}
          template:{POD.replace("NAME", "main")}
    - name: eval
      dependsOn: [{{name: worker, status: Complete}}]
      template:
        spec:
          template:{POD.replace("NAME", "main")}
""",
    "PyTorchJob": operator_job(
        "PyTorchJob", "pytorchReplicaSpecs", "pytorch", "Worker",
        "  nprocPerNode: auto\n  elasticPolicy: {minReplicas: 1, maxReplicas: 4, rdzvBackend: c10d, rdzvPort: 1,"
        " rdzvHost: h, rdzvId: i, rdzvConf: [{key: a, value: b}], standalone: false, maxRestarts: 2, metrics: [1]}\n",
    ),
    "TFJob": operator_job(
        "TFJob", "tfReplicaSpecs", "tensorflow", "Worker", "  successPolicy: AllWorkers\n  enableDynamicWorker: false\n"
    ),
    "XGBoostJob": operator_job("XGBoostJob", "xgbReplicaSpecs", "xgboost", "Master"),
    "PaddleJob": operator_job("PaddleJob", "paddleReplicaSpecs", "paddle", "Worker", "  elasticPolicy: {minReplicas: 1}\n"),
    "Volcano": f"""apiVersion: batch.volcano.sh/v1alpha1
kind: Job
{HEAD}spec:
  schedulerName: volcano
  minAvailable: 2
  minSuccess: 2
  queue: q
  priorityClassName: p
  maxRetry: 4
  ttlSecondsAfterFinished: 60
  runningEstimate: 1h
  networkTopology: {{mode: hard}}
  plugins: {{env: [], svc: [--a], ssh: [], pytorch: [--master=master]}}
  volumes: [{{mountPath: /data, volumeClaimName: c}}, {{mountPath: /more, volumeClaim: {{accessModes: [a]}}}}]
  policies:
    - {{event: PodEvicted, action: RestartJob}}
    - {{events: [PodFailed, Unknown], action: AbortJob, timeout: 1m}}
    - {{exitCode: 3, action: TerminateJob}}
  tasks:
    - name: worker
      replicas: 2
      minAvailable: 1
      maxRetry: 2
      topologyPolicy: none
      policies: [{{event: TaskCompleted, action: CompleteJob}}]
      template:{POD.replace("NAME", "main")}
    - name: ps
      dependsOn: {{name: [worker], iteration: any}}
      template:{POD.replace("NAME", "main")}
""",
    "Framework": f"""apiVersion: frameworkcontroller.microsoft.com/v1
kind: Framework
{HEAD}spec:
  description: d
  executionType: Create
  retryPolicy: {{fancyRetryPolicy: true, maxRetryCount: 2}}
  taskRoles:
    - name: worker
      taskNumber: 2
      frameworkAttemptCompletionPolicy: {{minFailedTaskCount: 1, minSucceededTaskCount: 2}}
      task:
        retryPolicy: {{fancyRetryPolicy: false, maxRetryCount: -2}}
        podGracefulDeletionTimeoutSec: 5
        pod:{POD.replace("NAME", "main")}
""",
    "RayJob": f"""apiVersion: ray.io/v1
kind: RayJob
{HEAD}spec:
  entrypoint: python train.py
  runtimeEnvYAML: "pip: [a]"
  backoffLimit: 1
  shutdownAfterJobFinishes: true
  ttlSecondsAfterFinished: 60
  activeDeadlineSeconds: 60
  submissionMode: K8sJobMode
  entrypointNumCpus: 1
  metadata: {{a: b}}
  suspend: false
  rayClusterSpec:
    rayVersion: "2"
    enableInTreeAutoscaling: false
    headGroupSpec:
      serviceType: ClusterIP
      rayStartParams: {{dashboard-host: 0.0.0.0, block: "true"}}
      template:{POD.replace("NAME", "ray")}
    workerGroupSpecs:
      - groupName: small
        replicas: 2
        minReplicas: 1
        maxReplicas: 3
        numOfHosts: 2
        rayStartParams: {{num-cpus: "2"}}
        template:{POD.replace("NAME", "ray")}
""",
    "Runtime": f"""apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
{HEAD}spec:
  mlPolicy: {{numNodes: 2, torch: {{numProcPerNode: 2}}}}
  podGroupPolicy: {{coscheduling: {{scheduleTimeoutSeconds: 5}}}}
  template:
    metadata: {{labels: {{a: b}}}}
    spec:
      network: {{publishNotReadyAddresses: true}}
      successPolicy: {{operator: All, targetReplicatedJobs: [node]}}
      replicatedJobs:
        - name: model
          template: {{spec: {{template: {{spec: {{containers: [{{name: a, image: b}}]}}}}}}}}
        - name: node
          dependsOn: [{{name: model, status: Complete}}]
          template:
            spec:
              backoffLimit: 2
              template:{POD.replace("NAME", "node").replace(chr(10), chr(10) + "    ")}
""",
    "MPIJob": operator_job("MPIJob", "mpiReplicaSpecs", "mpi", "Launcher", "  slotsPerWorker: 2\n  cleanPodPolicy: All\n"),
}  # fmt: skip
JUNK: tuple[Any, ...] = (None, 7, -1, True, "junk", "", [], {}, [None, 1, "x"], {"x": [1]})


def places(value: Any, loc: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in inside:
        yield (*loc, key)
        yield from places(item, (*loc, key))


def at(data: Any, loc: tuple[str | int, ...]) -> Any:
    for part in loc:
        data = data[part]
    return data


def leaves(data: Any) -> set[tuple[str | int, ...]]:
    return {
        loc
        for loc in places(data)
        if not at(data, loc) or not isinstance(at(data, loc), dict | list)
    }


def check(imported: ImportedDocument, source: Any) -> None:
    """Every leaf has one fate, and what was kept says the same where it is said to be."""
    written = [each for each in imported.report.fields if not each.default]
    assert [split_path(each.field) for each in written] == [
        *dict.fromkeys(split_path(e.field) for e in written)
    ]
    assert {split_path(each.field) for each in written} == leaves(source)
    (loaded,) = load_documents(imported.text)
    ours = loaded.data
    for each in imported.report.of("kept"):
        assert each.default or at(ours, split_path(each.to) or ()) == each.value, each


@pytest.mark.parametrize("kind", SOURCES)
def test_every_leaf_has_one_fate_and_what_was_kept_is_there(kind):
    (imported,) = import_text(SOURCES[kind])
    assert list(imported.problems) == []
    check(imported, yaml.safe_load(SOURCES[kind]))


@pytest.mark.parametrize(
    "step", [7, pytest.param(1, marks=pytest.mark.e2e)], ids=["sample", "whole"]
)
@pytest.mark.parametrize("kind", SOURCES)
def test_whatever_stands_in_a_field_is_told_or_accounted_for(kind, step):
    source = yaml.safe_load(SOURCES[kind])
    for number, loc in itertools.islice(enumerate(places(source)), 0, None, step):
        broken = copy.deepcopy(source)
        at(broken, loc[:-1])[loc[-1]] = copy.deepcopy(JUNK[number % len(JUNK)])
        (imported,) = import_text(json.dumps(broken)) or (None,)
        if imported is not None and not imported.problems and imported.text:
            check(imported, broken)


@pytest.mark.parametrize("kind", SOURCES)
def test_a_new_field_is_refused_wherever_it_stands(kind):
    source = yaml.safe_load(SOURCES[kind])
    for loc in [(), *places(source)]:
        if isinstance(at(source, loc), dict) and not {"template", "pod", "metadata"} & {*loc}:
            with_new = copy.deepcopy(source)
            at(with_new, loc)["brandNew"] = 1
            (imported,) = import_text(json.dumps(with_new))
            fate = {split_path(e.field): e for e in imported.report.fields}.get((*loc, "brandNew"))
            assert imported.problems or (fate is not None and fate.fate != "kept"), loc
