// Made by `make pages` from the API's OpenAPI document.

export interface Answers {
  ActionRefused: ActionRefused;
  ActionRequest: ActionRequest;
  ActionTaken: ActionTaken;
  AgainOffer: AgainOffer;
  AgainRequest: AgainRequest;
  AgainTaken: AgainTaken;
  AttemptAnswer: AttemptAnswer;
  BandAnswer: BandAnswer;
  CheckAnswer: CheckAnswer;
  CheckRequest: CheckRequest;
  CheckpointAnswer: CheckpointAnswer;
  ConfigurationAnswer: ConfigurationAnswer;
  Confusion: Confusion;
  DataPage: DataPage;
  DependencyAnswer: DependencyAnswer;
  Detail: Detail;
  DeviceKind: DeviceKind;
  EnvironmentAnswer: EnvironmentAnswer;
  EnvironmentChange: EnvironmentChange;
  EnvironmentDifference: EnvironmentDifference;
  EnvironmentGroup: EnvironmentGroup;
  EventAnswer: EventAnswer;
  EventPage: EventPage;
  FieldAnswer: FieldAnswer;
  FileAnswer: FileAnswer;
  FilePage: FilePage;
  HeatMapAnswer: HeatMapAnswer;
  Histogram: Histogram;
  Imbalance: Imbalance;
  InstanceData: InstanceData;
  InstanceUsage: InstanceUsage;
  LastCheckpoint: LastCheckpoint;
  LinePage: LinePage;
  LinePlace: LinePlace;
  LogLine: LogLine;
  LogPage: LogPage;
  LossPage: LossPage;
  Me: Me;
  NextError: NextError;
  NodeAnswer: NodeAnswer;
  PredictionFile: PredictionFile;
  PredictionPage: PredictionPage;
  PredictionTable: PredictionTable;
  ProblemAnswer: ProblemAnswer;
  ProgressAnswer: ProgressAnswer;
  Restarts: Restarts;
  RoleAnswer: RoleAnswer;
  SeriesAnswer: SeriesAnswer;
  SeriesPage: SeriesPage;
  SingleOffer: SingleOffer;
  StallAnswer: StallAnswer;
  Summary: Summary;
  SummaryPage: SummaryPage;
  UsageAnswer: UsageAnswer;
  UsageSum: UsageSum;
}
/**
 * What is, instead of what the user saw.
 */
export interface ActionRefused {
  actions: ("pause" | "resume" | "stop" | "kill" | "scale")[];
  detail: string;
  phrase:
    | "platform received the job"
    | "sending it to the cluster"
    | "sent"
    | "sending failed"
    | "queued"
    | "running"
    | "state unknown"
    | "received the stop command"
    | "paused"
    | "stopped"
    | "failed"
    | "succeeded";
  seen: string;
}
export interface ActionRequest {
  action: "pause" | "resume" | "stop" | "kill" | "scale";
  reason: string;
  replicas: number | null;
  role: string;
  seen: string;
}
export interface ActionTaken {
  action: "pause" | "resume" | "stop" | "kill" | "scale";
  request: number;
}
/**
 * Whether the job can be started again from here.
 */
export interface AgainOffer {
  possible: boolean;
  why: string;
}
export interface AgainRequest {
  document: string | null;
  step: number | null;
}
/**
 * The new run, which may not be there yet.
 */
export interface AgainTaken {
  dag: string;
  run_id: string;
  uid: string;
}
export interface AttemptAnswer {
  attempt: number;
  epoch: number;
  finished_at: string | null;
  index: number;
  job_attempt: number;
  role: string;
  started_at: string;
}
/**
 * What very many series of one name say together; a place in each list is a stretch of x.
 */
export interface BandAnswer {
  count: number;
  high: number[];
  low: number[];
  maximum: number[];
  median: number[];
  minimum: number[];
  name: string;
  x: number[];
}
export interface CheckAnswer {
  mistakes: ProblemAnswer[];
  warnings: ProblemAnswer[];
}
/**
 * A mistake or a warning, as `validate` tells it.
 */
export interface ProblemAnswer {
  allowed: string[];
  field: string;
  hint: string;
  line: number | null;
  message: string;
}
export interface CheckRequest {
  document: string;
}
export interface CheckpointAnswer {
  at: string;
  bytes: number | null;
  step: number;
  uri: string;
}
export interface ConfigurationAnswer {
  defaults: FieldAnswer[];
  document: string;
  draft: string;
  problem: string;
  single: SingleOffer;
}
/**
 * A field that need not be written, with the value it had.
 */
export interface FieldAnswer {
  field: string;
  from: string;
  value: string;
}
/**
 * The job as one process of one machine.
 */
export interface SingleOffer {
  document: string;
  why: string;
}
/**
 * How often each label got each prediction.
 */
export interface Confusion {
  accuracy: number;
  classes: string[];
  counts: number[][];
  others: boolean;
}
export interface DataPage {
  imbalance: Imbalance | null;
  instances: InstanceData[];
  read_per_second: number | null;
  samples: number | null;
  samples_per_second: number | null;
  stalls: StallAnswer[];
}
/**
 * How unevenly samples are spread over instances.
 */
export interface Imbalance {
  least: string;
  mean: number;
  most: string;
  percent: number;
}
/**
 * What one instance has read. None: it tells nothing of that.
 */
export interface InstanceData {
  files_done: number;
  files_known: number;
  index: number;
  node: string;
  rank: number | null;
  read: number | null;
  read_per_second: number | null;
  role: string;
  samples: number | null;
  samples_per_second: number | null;
  stall_count: number;
  stall_seconds: number;
  stalled_seconds: number | null;
  state: string;
  step: number | null;
}
export interface StallAnswer {
  index: number;
  over: boolean;
  role: string;
  seconds: number;
  started_at: string;
  step: number | null;
}
export interface DependencyAnswer {
  role: string;
  status: string;
}
/**
 * Everything about one run but its logs, series and events.
 */
export interface Detail {
  actions: ("pause" | "resume" | "stop" | "kill" | "scale")[];
  attempts: AttemptAnswer[];
  checkpoints: CheckpointAnswer[];
  held: boolean;
  last_checkpoint: LastCheckpoint | null;
  metrics: {
    [k: string]: {
      [k: string]: number | null;
    };
  };
  progress: ProgressAnswer;
  restarts: Restarts;
  roles: RoleAnswer[];
  seen: string;
  status: {
    [k: string]: unknown;
  };
  summary: Summary;
  usage: {
    [k: string]: InstanceUsage;
  };
}
export interface LastCheckpoint {
  at: string;
  step: number;
}
/**
 * How far all instances are together; the slowest counts.
 */
export interface ProgressAnswer {
  elapsed_seconds: number | null;
  eta_seconds: number | null;
  fraction: number | null;
  samples_per_second: number | null;
  slowest: string | null;
  step: number | null;
  total_steps: number | null;
}
export interface Restarts {
  allowed: number | null;
  used: number;
}
export interface RoleAnswer {
  command: string[] | null;
  depends_on: DependencyAnswer[];
  max_replicas: number | null;
  min_replicas: number | null;
  name: string;
  replicas: number;
}
/**
 * One run, as lists show it.
 */
export interface Summary {
  dag: string;
  dag_id: string | null;
  finished_at: string | null;
  framework: string | null;
  group_id: string | null;
  job: string;
  map_index: number;
  phrase:
    | "platform received the job"
    | "sending it to the cluster"
    | "sent"
    | "sending failed"
    | "queued"
    | "running"
    | "state unknown"
    | "received the stop command"
    | "paused"
    | "stopped"
    | "failed"
    | "succeeded";
  run_id: string;
  runtime: string;
  source: string;
  started_at: string | null;
  state: string;
  submitted_at: string;
  submitted_by: string | null;
  uid: string;
}
/**
 * What an instance used when its agent last looked; None: not told.
 */
export interface InstanceUsage {
  at: string;
  cpu_cores: number | null;
  cpu_limit: number | null;
  gpu_busy_percent: number | null;
  gpu_errors: string[];
  gpu_memory_bytes: number | null;
  gpu_memory_limit_bytes: number | null;
  gpus: number;
  memory_bytes: number | null;
  memory_limit_bytes: number | null;
}
export interface DeviceKind {
  bytes: number | null;
  count: number;
  name: string;
}
export interface EnvironmentAnswer {
  framework: string;
  groups: EnvironmentGroup[];
  nodes: NodeAnswer[];
  runtime: string;
}
/**
 * What instances have that do not differ. None: not told.
 */
export interface EnvironmentGroup {
  devices: DeviceKind[];
  executable: string | null;
  frameworks: {
    [k: string]: string;
  };
  image: string | null;
  instances: string[];
  machine: string | null;
  packages: {
    [k: string]: string;
  };
  packages_left_out: number;
  python: string | null;
  system: string | null;
}
export interface NodeAnswer {
  instances: string[];
  node: string;
}
/**
 * One thing that two runs have differently; None: one of them has it not, or has not told.
 */
export interface EnvironmentChange {
  after: string | null;
  before: string | null;
  name: string;
}
/**
 * What `after` has differently than `before`.
 */
export interface EnvironmentDifference {
  packages: EnvironmentChange[];
  packages_equal: number;
  packages_told: boolean;
  surroundings: EnvironmentChange[];
}
export interface EventAnswer {
  at: string;
  attempt: number | null;
  index: number | null;
  level: string;
  message: string;
  reason: string;
  role: string | null;
  rule: string | null;
  seq: number;
}
export interface EventPage {
  events: EventAnswer[];
  more: boolean;
}
/**
 * A file, and who reads it.
 */
export interface FileAnswer {
  index: number;
  name: string;
  node: string;
  read: number | null;
  role: string;
  total: number | null;
}
export interface FilePage {
  files: FileAnswer[];
  more: boolean;
}
/**
 * Ranks x time: of each cell the value that is farthest from the median of all.
 */
export interface HeatMapAnswer {
  rows: string[];
  values: (number | null)[][];
  x: number[];
}
export interface Histogram {
  edges: number[];
  labels: number[] | null;
  mean_absolute_error: number | null;
  predictions: number[];
}
/**
 * Lines by time; the texts are what to send for those before and after.
 */
export interface LinePage {
  after: string;
  before: string;
  begins: boolean;
  eof: boolean;
  lines: LogLine[];
}
/**
 * A line among those of other logs.
 */
export interface LogLine {
  attempt: number;
  index: number;
  offset: number;
  role: string;
  severity: "info" | "warning" | "error";
  text: string;
  time: number | null;
}
export interface LinePlace {
  bytes: number;
  ends: boolean;
  lines: number;
  offset: number | null;
}
/**
 * A stretch of a log; offsets are bytes.
 */
export interface LogPage {
  end: number;
  eof: boolean;
  errors: number[];
  generation: string;
  inside: boolean;
  start: number;
  text: string;
}
/**
 * What lists draw beside runs.
 */
export interface LossPage {
  losses: {
    [k: string]: (number | null)[];
  };
}
/**
 * Who asks, and whom.
 */
export interface Me {
  standalone: boolean;
  user: string;
  version: string;
}
export interface NextError {
  ends: boolean;
  offset: number | null;
  searched: number;
}
export interface PredictionFile {
  at: string | null;
  bytes: number;
  index: number;
  kind: "table" | "picture";
  name: string;
  role: string;
  step: number | null;
}
export interface PredictionPage {
  files: PredictionFile[];
  more: boolean;
}
export interface PredictionTable {
  columns: string[];
  confusion: Confusion | null;
  cut: boolean;
  histogram: Histogram | null;
  offset: number;
  problem: string;
  rows: (string | null)[][];
  rows_read: number;
}
export interface SeriesAnswer {
  index: number;
  name: string;
  rank: number | null;
  role: string;
  total: number;
  x_step: (number | null)[];
  x_time: number[];
  y: (number | null)[];
}
export interface SeriesPage {
  bands: BandAnswer[];
  names: string[];
  series: SeriesAnswer[];
}
export interface SummaryPage {
  more: boolean;
  next: string | null;
  trainings: Summary[];
}
export interface UsageAnswer {
  basis: "requested";
  by: "user" | "team" | "job";
  end: string;
  start: string;
  sums: UsageSum[];
  total: UsageSum;
}
export interface UsageSum {
  cpu_hours: number;
  dag_id: string | null;
  gpu_hours: number;
  instance_seconds: number;
  memory_gib_hours: number;
  name: string;
  runs: number;
  unrequested_seconds: number;
}
