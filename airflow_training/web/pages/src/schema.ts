// Made by `make pages` from the API's OpenAPI document.

export interface Answers {
  ActionAnswer: ActionAnswer;
  ActionConflict: ActionConflict;
  ActionRequest: ActionRequest;
  AskedAction: AskedAction;
  AttemptAnswer: AttemptAnswer;
  BandAnswer: BandAnswer;
  CheckAnswer: CheckAnswer;
  CheckRequest: CheckRequest;
  CheckpointAnswer: CheckpointAnswer;
  CheckpointLineage: CheckpointLineage;
  CheckpointPage: CheckpointPage;
  CheckpointTurn: CheckpointTurn;
  ChosenEnvironment: ChosenEnvironment;
  ConfigurationAnswer: ConfigurationAnswer;
  Confusion: Confusion;
  ConnectionOffer: ConnectionOffer;
  CostAnswer: CostAnswer;
  CurrentUser: CurrentUser;
  DataFileAnswer: DataFileAnswer;
  DataFilesAnswer: DataFilesAnswer;
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
  FilesRequest: FilesRequest;
  HeatMapAnswer: HeatMapAnswer;
  Histogram: Histogram;
  Imbalance: Imbalance;
  InstanceData: InstanceData;
  InstanceUsage: InstanceUsage;
  KnownEnvironment: KnownEnvironment;
  KnownEnvironments: KnownEnvironments;
  LastCheckpoint: LastCheckpoint;
  LinePage: LinePage;
  LinePlace: LinePlace;
  ListedProgress: ListedProgress;
  LogLine: LogLine;
  LogPage: LogPage;
  LossPage: LossPage;
  NetworkAnswer: NetworkAnswer;
  NetworkCheckAnswer: NetworkCheckAnswer;
  NetworkLayerAnswer: NetworkLayerAnswer;
  NetworkRequest: NetworkRequest;
  NetworkVersion: NetworkVersion;
  NetworkVersionPage: NetworkVersionPage;
  NetworkVersionText: NetworkVersionText;
  NewTrainingOffer: NewTrainingOffer;
  NewTrainingRequest: NewTrainingRequest;
  NextError: NextError;
  NodeAnswer: NodeAnswer;
  OriginRun: OriginRun;
  PlanAnswer: PlanAnswer;
  PredictionFile: PredictionFile;
  PredictionPage: PredictionPage;
  PredictionTable: PredictionTable;
  PresetDocument: PresetDocument;
  PresetPage: PresetPage;
  ProblemAnswer: ProblemAnswer;
  ProgressAnswer: ProgressAnswer;
  RerunAnswer: RerunAnswer;
  RerunOffer: RerunOffer;
  RerunRequest: RerunRequest;
  Restarts: Restarts;
  ResumedFrom: ResumedFrom;
  RoleAnswer: RoleAnswer;
  RunLink: RunLink;
  RuntimeOffer: RuntimeOffer;
  SavePresetRequest: SavePresetRequest;
  SavedCheckpoint: SavedCheckpoint;
  SavedPresetAnswer: SavedPresetAnswer;
  SeriesAnswer: SeriesAnswer;
  SeriesPage: SeriesPage;
  ShippedPresetAnswer: ShippedPresetAnswer;
  SingleOffer: SingleOffer;
  StallAnswer: StallAnswer;
  StateCounts: StateCounts;
  Summary: Summary;
  SummaryPage: SummaryPage;
  TrialAnswer: TrialAnswer;
  TunedParameter: TunedParameter;
  Tuning: Tuning;
  TuningAnswer: TuningAnswer;
  TuningCheckAnswer: TuningCheckAnswer;
  TuningPage: TuningPage;
  TuningRequest: TuningRequest;
  UsageAnswer: UsageAnswer;
  UsageSum: UsageSum;
}
export interface ActionAnswer {
  action: "pause" | "resume" | "stop" | "kill" | "scale";
  request: number;
}
/**
 * What is, instead of what the user saw.
 */
export interface ActionConflict {
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
/**
 * What somebody asked of a run, and the loop has not taken up yet.
 */
export interface AskedAction {
  action: "pause" | "resume" | "stop" | "kill" | "scale";
  at: string;
  by: string;
  replicas: number | null;
  role: string;
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
/**
 * What was saved since training was begun, or begun anew.
 */
export interface CheckpointLineage {
  began: string;
  began_at: string | null;
  checkpoints: SavedCheckpoint[];
  number: number | null;
  turns: CheckpointTurn[];
}
export interface SavedCheckpoint {
  at: string;
  bytes: number | null;
  instance: string | null;
  kept: boolean;
  restorable: boolean;
  seconds: number | null;
  stall_seconds: number | null;
  state: "read back" | "partly read back" | "not read back" | "damaged";
  step: number;
  told: string;
  uri: string;
}
/**
 * Something that made a run restore another checkpoint than its newest.
 */
export interface CheckpointTurn {
  at: string;
  text: string;
}
export interface CheckpointPage {
  asked: boolean;
  every: string;
  keep: number;
  keep_every: number | null;
  lineages: CheckpointLineage[];
  passed_over: string[];
  resumed_from: ResumedFrom[];
  uri: string;
}
/**
 * What the run began with, while it had nothing of its own.
 */
export interface ResumedFrom {
  instance: string | null;
  run: RunLink | null;
  step: number;
  text: string;
  uri: string;
}
export interface RunLink {
  dag: string;
  run_id: string;
  uid: string;
}
/**
 * The environment that the job names, as its admission has found it.
 */
export interface ChosenEnvironment {
  digest: string;
  image: string | null;
  name: string;
  version: string;
}
export interface ConfigurationAnswer {
  defaults: FieldAnswer[];
  document: string;
  draft: string;
  has_package: boolean;
  problem: string;
  single: SingleOffer;
  written: {
    [k: string]: string;
  };
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
export interface ConnectionOffer {
  kind: string;
  name: string;
}
/**
 * What a run costs until now, by the prices of each moment.
 */
export interface CostAnswer {
  amount: string;
  currency: string;
  final: boolean;
}
/**
 * Who asks, and whom.
 */
export interface CurrentUser {
  standalone: boolean;
  user: string;
  version: string;
}
export interface DataFileAnswer {
  bytes: number;
  name: string;
}
export interface DataFilesAnswer {
  files: DataFileAnswer[];
  more: boolean;
  why: string;
}
export interface DataPage {
  imbalance: Imbalance | null;
  imbalances: {
    [k: string]: Imbalance;
  };
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
  asked: AskedAction | null;
  attempts: AttemptAnswer[];
  checkpoints: CheckpointAnswer[];
  cost: CostAnswer | null;
  heard: {
    [k: string]: string;
  };
  held: boolean;
  last_checkpoint: LastCheckpoint | null;
  metrics: {
    [k: string]: {
      [k: string]: number | null;
    };
  };
  progress: ProgressAnswer;
  rates: {
    [k: string]: number;
  };
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
  first_rank: number | null;
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
  progress: ListedProgress | null;
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
 * How far a run is, as lists show it: its slowest instance counts.
 */
export interface ListedProgress {
  eta_seconds: number | null;
  fraction: number | null;
  step: number;
  total_steps: number | null;
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
  environment: ChosenEnvironment | null;
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
  gpu: {
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
export interface FilesRequest {
  uri: string;
}
/**
 * Ranks x time: of each cell the value that is farthest from what is usual of all at its place.
 */
export interface HeatMapAnswer {
  distances: (number | null)[][];
  rows: string[];
  values: (number | null)[][];
  x: number[];
}
export interface Histogram {
  edges: number[];
  labels: number[] | null;
  mean_absolute_error: number | null;
  not_finite: number;
  predictions: number[];
}
/**
 * An environment that jobs may name.
 */
export interface KnownEnvironment {
  cached: boolean;
  digest: string;
  image: string | null;
  name: string;
  packages: string[];
  pinned: boolean;
  python: string;
  version: string;
}
export interface KnownEnvironments {
  environments: KnownEnvironment[];
  problem: string | null;
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
export interface NetworkAnswer {
  flops: number;
  layers: NetworkLayerAnswer[];
  name: string;
  parameters: number;
}
export interface NetworkLayerAnswer {
  field: string;
  flops: number;
  gives: number[];
  inputs: {
    [k: string]: string[];
  };
  kind: string;
  name: string;
  nets: ("train" | "test")[];
  parameters: number;
  takes: string[];
  type: string;
}
export interface NetworkCheckAnswer {
  network: NetworkAnswer | null;
  problems: ProblemAnswer[];
}
export interface NetworkRequest {
  document: string;
}
/**
 * One version of a saved network.
 */
export interface NetworkVersion {
  created: string;
  description: string;
  digest: string;
  name: string;
  user: string;
  version: number;
}
export interface NetworkVersionPage {
  networks: NetworkVersion[];
}
export interface NetworkVersionText {
  created: string;
  description: string;
  digest: string;
  document: string;
  name: string;
  user: string;
  version: number;
}
/**
 * What a new training can be made of.
 */
export interface NewTrainingOffer {
  connections: ConnectionOffer[];
  default_runtime: string;
  folder: string;
  frameworks: string[];
  lists_files: boolean;
  possible: boolean;
  runtimes: RuntimeOffer[];
  trainer_fields: string[];
  user: string;
  why: string;
}
export interface RuntimeOffer {
  name: string;
  why: string;
}
export interface NewTrainingRequest {
  document: string;
  origin: OriginRun | null;
}
/**
 * The run that a document came from.
 */
export interface OriginRun {
  dag: string;
  uid: string;
}
export interface NextError {
  ends: boolean;
  offset: number | null;
  searched: number;
}
/**
 * The plan that a job would get.
 */
export interface PlanAnswer {
  plan: {
    [k: string]: unknown;
  } | null;
  why: string;
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
export interface PresetDocument {
  document: string;
}
export interface PresetPage {
  saved: SavedPresetAnswer[];
  shipped: ShippedPresetAnswer[];
}
/**
 * The newest version of a preset that somebody has saved.
 */
export interface SavedPresetAnswer {
  created: string;
  description: string;
  name: string;
  user: string;
  version: number;
}
export interface ShippedPresetAnswer {
  description: string;
  document: string;
  name: string;
  title: string;
}
/**
 * The new run, which may not be there yet.
 */
export interface RerunAnswer {
  dag: string;
  run_id: string;
  uid: string;
}
/**
 * Whether the job can be started again from here.
 */
export interface RerunOffer {
  possible: boolean;
  why: string;
}
export interface RerunRequest {
  document: string | null;
  step: number | null;
}
export interface SavePresetRequest {
  description: string;
  document: string;
  name: string;
}
export interface SeriesAnswer {
  index: number;
  name: string;
  rank: number | null;
  role: string;
  total: number;
  x_samples: (number | null)[];
  x_step: (number | null)[];
  x_time: number[];
  y: (number | null)[];
}
export interface SeriesPage {
  bands: BandAnswer[];
  names: string[];
  series: SeriesAnswer[];
}
/**
 * How many runs there are that the user may read.
 */
export interface StateCounts {
  ended: {
    [k: string]: number;
  };
  running: number;
  waiting: number;
}
export interface SummaryPage {
  more: boolean;
  next: string | null;
  trainings: Summary[];
}
export interface TrialAnswer {
  number: number;
  params: {
    [k: string]: unknown;
  };
  summary: Summary;
  value: number | null;
}
/**
 * What is tried of one parameter of `dag.params`: values, or a range.
 */
export interface TunedParameter {
  high: string;
  log: boolean;
  low: string;
  name: string;
  values: string | null;
}
export interface Tuning {
  /**
   * @maxItems 20
   */
  parameters:
    | []
    | [TunedParameter]
    | [TunedParameter, TunedParameter]
    | [TunedParameter, TunedParameter, TunedParameter]
    | [TunedParameter, TunedParameter, TunedParameter, TunedParameter]
    | [TunedParameter, TunedParameter, TunedParameter, TunedParameter, TunedParameter]
    | [
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter
      ]
    | [
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter
      ]
    | [
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter
      ]
    | [
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter
      ]
    | [
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter
      ]
    | [
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter
      ]
    | [
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter
      ]
    | [
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter
      ]
    | [
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter
      ]
    | [
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter
      ]
    | [
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter
      ]
    | [
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter
      ]
    | [
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter
      ]
    | [
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter
      ]
    | [
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter,
        TunedParameter
      ];
  seed: number;
  trials: number | null;
}
/**
 * A tuning that has begun.
 */
export interface TuningAnswer {
  begun: number;
  pending: number;
  trials: number;
  tuning: string;
  why: string;
}
export interface TuningCheckAnswer {
  mistakes: ProblemAnswer[];
  trials: number;
  warnings: ProblemAnswer[];
}
/**
 * How the trials stand, of those that the user may read.
 */
export interface TuningPage {
  best: number | null;
  metrics: string[];
  planned: number;
  trials: TrialAnswer[];
}
export interface TuningRequest {
  document: string;
  origin: OriginRun | null;
  tuning: Tuning;
}
export interface UsageAnswer {
  basis: "requested";
  by: "user" | "team" | "job";
  currency: string | null;
  days: UsageSum[];
  end: string;
  start: string;
  sums: UsageSum[];
  total: UsageSum;
}
export interface UsageSum {
  cost: string | null;
  cpu_hours: number;
  dag_id: string | null;
  gpu_hours: number;
  instance_seconds: number;
  memory_gib_hours: number;
  name: string;
  runs: number;
  unrequested_seconds: number;
}
