"""Documents for the tests of this room: a small valid one, one that uses every field, and edits."""

from __future__ import annotations

import copy
from typing import Any

from airflow_training.documents.loading import dump_yaml
from airflow_training.documents.parsing import ParsedDocument, parse
from airflow_training.errors import Problem

MINIMAL: dict[str, Any] = {
    "apiVersion": "airflow-training/v1",
    "kind": "TrainingJob",
    "metadata": {"name": "digits"},
    "spec": {
        "framework": "custom",
        "image": "busybox",
        "command": ["true"],
        "roles": [{"name": "master"}, {"name": "worker", "replicas": 3}],
    },
}

FULL_TEXT = """
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {name: digits, namespace: research, labels: {team.example.com/name: vision}, annotations: {note: "{{ free }}"}}
spec:
  framework: {name: mine, ref: ./mine.yaml, digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
  parameters: {nprocPerNode: 1, threadsPerInstance: 4}
  runtime: {name: kubernetes, connection: my_cluster}
  image: ghcr.io/acme/digits:1.4
  command: [python, train.py]
  args: ["--lr", "{{ params.lr }}"]
  env: [{name: OMP_NUM_THREADS, value: "1"}]
  envFrom: [{configMapRef: {name: settings}}]
  workingDir: .
  resources: {limits: {nvidia.com/gpu: 1, memory: 2Gi}}
  ports: [{name: peers, containerPort: 23456}]
  volumes: [{name: sets, emptyDir: {sizeLimit: 1Gi}}]
  volumeMounts: [{name: sets, mountPath: /sets}]
  data: {uri: "s3://sets/digits", files: [a.npz, b.npz], shard: byInstance, initialModel: "s3://models/digits/2026-01"}
  roles:
    - name: master
      image: ghcr.io/acme/digits:1.5
    - name: worker
      replicas: 3
      minReplicas: 1
      maxReplicas: 4
      template:
        metadata: {labels: {tier: batch}}
        spec:
          tolerations: [{key: gpu, operator: Exists}]
          containers: [{name: pytorch, livenessProbe: {httpGet: {path: /, port: 8080}}}]
      spot: {replicas: 2, label: cloud.google.com/gke-spot, value: "true"}
      warmSpares: 1
      networkPolicy:
        ingress: [{roles: [master, worker], ports: [peers, 8080]}]
        egress: [{roles: [master, worker]}, {peers: [{ipBlock: {cidr: 10.0.0.0/8}}], ports: [443]}]
      dependsOn:
        - {role: master, status: AddressKnown, require: All, listener: Each, answer: Auto, timeoutSeconds: 600, pollSeconds: 1.5}
      restartPolicy: OnFailure
      backoffLimit: 3
      minSucceeded: "50%"
      minFailed: 2
      tracked: true
  successPolicy: {operator: All, targetRoles: [master]}
  failurePolicy:
    operator: Any
    targetRoles: []
    rules:
      - name: host-maintenance
        action: RestartJobAndIgnoreMaxRestarts
        onClasses: [preemption]
        onReasons: [Evicted]
        onExitCodes: {operator: In, values: [143]}
        onMessagePattern: "node .* gone"
        targetRoles: [worker]
  restart:
    scope: Instance
    maxRestarts: 3
    window: {seconds: 3600, maxRestarts: 3}
    backoff: {initialSeconds: 2, factor: 2, maxSeconds: 300}
    exitCodes: {retryable: [143], permanent: [1, 2]}
    then: FreshJob
    maxFreshJobs: 1
    freshFrom: newest
    readyTimeoutSeconds: 60
    onOutOfMemory: {factor: 1.5, upTo: 64Gi}
    keepFailedSeconds: 1800
  schedulingPolicy:
    gang: volcano
    minAvailable: 4
    startup: auto
    queue: research
    priorityClassName: high
    priority: 7
    scheduleTimeoutSeconds: 600
    neverFits: Fail
    excludedNodes: Ignore
    preemptionPolicy: PreemptLowerPriority
    unfitNodes:
      action: Move
      maxMoves: 3
      conditions: [XidCriticalError]
      taints: [example.com/maintenance]
      labels: {example.com/gpu-health: bad}
    spread: {topologyKey: kubernetes.io/hostname, maxSkew: 1, whenUnsatisfiable: ScheduleAnyway}
  preflight:
    timeoutSeconds: 120
    gpus: {count: 8, freeMemory: 70Gi}
    disk: {path: /scratch, free: 100Gi, bandwidth: 200Mi}
    network: {bandwidth: 1Gi, latencyMilliseconds: 2, waitSeconds: 60}
  activeDeadlineSeconds: 86400
  ttlSecondsAfterFinished: 3600
  cleanPodPolicy: Running
  reconcileSeconds: 10
  suspend: false
  checkpoint:
    uri: "s3://models/digits/ckpt"
    everySeconds: 600
    keep: 3
    keepEvery: 10
    resume: {fromRun: abc}
    watch: ckpt/
    progress: {stallSeconds: 30, stallFactor: 5, sections: {eval: 600}}
  output: {uri: "s3://models/digits/final", role: master}
  plan:
    model: {hidden: 64, layers: 2, heads: 4, seq: 16, vocab: 100}
    cluster: request
    globalBatch: 8
    precision: bf16
    objective: {tokens: 1000000, budget: 10.5}
    constraints: {tp: 1, pp: {max: 2}, zero: {not: [3]}}
    apply: [replicas, env, microBatch]
    role: worker
  dag:
    schedule: {assets: ["s3://sets/digits"], operator: any}
    startDate: 2026-01-01
    timezone: America/Chicago
    params: {lr: {type: number, default: 0.1, minimum: 0, description: learning rate}}
    outlets: ["s3://models/digits/final"]
    tags: [retraining]
    maxActiveRuns: 1
    catchup: false
    owner: research
"""


def parsed(document: Any, **options: Any) -> ParsedDocument:
    """Return a document read through YAML, as a file would be."""
    (only,) = parse(dump_yaml(document), "job.yaml", **options)
    return only


def edited(path: str, value: Any, *, base: dict[str, Any] = MINIMAL) -> dict[str, Any]:
    """Return a copy of a document with one value set; `a.b.0.c` makes what is not there."""
    document = copy.deepcopy(base)
    here: Any = document
    *parents, last = path.split(".")
    for part in parents:
        here = here[int(part)] if isinstance(here, list) else here.setdefault(part, {})
    here[int(last) if isinstance(here, list) else last] = value
    return document


def found(document: Any, **options: Any) -> list[tuple[str, str]]:
    """Return (code, field) of every problem of a document."""
    return [(problem.code, problem.field) for problem in parsed(document, **options).problems]


def only_problem(document: Any, **options: Any) -> Problem:
    """Return the one problem a document has."""
    (problem,) = parsed(document, **options).problems
    return problem
