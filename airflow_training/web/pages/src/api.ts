// What the server answers, and how it is asked. Addresses are below Airflow's base, wherever that is.

import type * as answers from "./schema.ts";
import { watched } from "./slow.ts";
import type { Plan } from "./split.ts";

export type {
  CheckAnswer,
  ConfigurationAnswer,
  EnvironmentAnswer,
  EnvironmentDifference,
  BandAnswer,
  EventAnswer,
  EventPage,
  HeatMapAnswer,
  InstanceUsage,
  LinePage,
  LinePlace,
  LogLine,
  LogPage,
  LossPage,
  NewTrainingOffer,
  NextError,
  PresetPage,
  RerunAnswer,
  RerunOffer,
  RerunRequest,
  SeriesAnswer,
  SeriesPage,
  StateCounts,
  Summary,
  SummaryPage,
  UsageAnswer,
} from "./schema.ts";

type Summary = answers.Summary;
export type Phrase = Summary["phrase"];
export type Action = answers.Detail["actions"][number];

export interface Instance {
  role: string;
  index: number;
  attempt: number;
  state: string;
  reason: string;
  message: string;
  exit_code: number | null;
  signal: string | null;
  address: string;
  node: string;
  last_transition_at: string | null;
  progress: { step: number | null; total_steps: number | null; epoch: number | null; samples: number | null } | null;
  eta_seconds: number | null;
}

/** What ended a failed job, as `logs diagnose` says it. */
export interface Cause {
  id: string;
  category: string;
  confidence: number;
  /** The line of the log that proves it, or what the runtime said. */
  evidence: string;
  advice: string;
  role: string | null;
  index: number | null;
  attempt: number | null;
  reason: string;
  message: string;
  line: number | null;
  /** Of the line, in bytes. */
  offset: number | null;
}

/** `status` is the document of `airflow-training status -o json`, of which this is what pages use. */
export interface Detail extends Omit<answers.Detail, "status"> {
  status: {
    /** When the server has put this together, by its own clock. */
    observed_at: string;
    state: string;
    condition: string;
    reason: string;
    message: string;
    started_at: string | null;
    finished_at: string | null;
    instances: Instance[];
    roles: Record<string, { state: string }>;
    root_cause: Cause | null;
    plan: Plan | null;
  };
}

/** Where Airflow, or the standalone server, is mounted. */
export const base = document.querySelector<HTMLBaseElement>("head > base")?.href ?? `${location.origin}/`;

export class ApiError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

export function address(path: string, query: Record<string, string | number | readonly string[] | null | undefined> = {}) {
  const url = new URL(`training/api/${path}`, base);
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "") continue;
    for (const each of Array.isArray(value) ? value : [value]) url.searchParams.append(name, String(each));
  }
  return url.href;
}

/** Where a training is found below the API. */
export function ofTraining(dag: string, uid: string, rest = "") {
  return `dags/${encodeURIComponent(dag)}/trainings/${encodeURIComponent(uid)}${rest}`;
}

async function problem(answer: Response): Promise<ApiError> {
  let text = `${answer.status} ${answer.statusText}`;
  try {
    const body: unknown = await answer.json();
    const detail = (body as { detail?: unknown }).detail;
    if (typeof detail === "string") text = detail;
    else if (detail !== undefined) text = JSON.stringify(detail);
  } catch {
    // the answer of a proxy is no JSON: its status has to do
  }
  return new ApiError(answer.status, text);
}

/** Told on `window` when the server knows the user no more; a host that says what to do then prevents the way to a login. */
const SIGNED_OUT = "training:signed-out";
/** And when it knows them again, which another tab of the browser can bring about. */
const SIGNED_IN = "training:signed-in";

let signedOut = false;

/** The session of `airflow-training ui` ends with it, and has no login; Airflow's own client leads to Airflow's. */
function noteSession(known: boolean) {
  if (known === !signedOut) return;
  signedOut = !known;
  const unhandled = window.dispatchEvent(new Event(known ? SIGNED_IN : SIGNED_OUT, { cancelable: true }));
  if (known || !unhandled || document.querySelector("head > base") === null) return;
  const login = new URL("api/v2/auth/login", base);
  login.searchParams.set("next", location.href);
  location.assign(login);
}

async function ask(url: string, init?: RequestInit): Promise<Response> {
  const answer = await fetch(url, { credentials: "same-origin", ...init });
  noteSession(answer.status !== 401);
  if (!answer.ok) throw await problem(answer);
  return answer;
}

export async function get<T>(
  path: string,
  query: Parameters<typeof address>[1] = {},
  signal?: AbortSignal,
): Promise<T> {
  return (await (await ask(address(path, query), { signal })).json()) as T;
}

export async function getText(path: string, query: Parameters<typeof address>[1] = {}): Promise<string> {
  return (await ask(address(path, query))).text();
}

const newKey = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

/** Ask for something once, however often the request has to be sent. `key`: of what is asked for, where a person may ask for it again. */
export function post<T>(path: string, body: object, key: string = newKey()): Promise<T> {
  const request = {
    method: "POST",
    headers: { "Content-Type": "application/json", "Idempotency-Key": key },
    body: JSON.stringify(body),
  };
  return watched(untilAnswered(() => ask(address(path), request))) as Promise<T>;
}

async function untilAnswered(send: () => Promise<Response>): Promise<unknown> {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await (await send()).json();
    } catch (error) {
      // nobody knows whether a request without an answer arrived; the key makes a second one harmless
      const gone = !(error instanceof ApiError) || error.status >= 502;
      if (!gone || attempt >= 4) throw error;
      await new Promise((resolve) => setTimeout(resolve, 500 * 2 ** attempt));
    }
  }
}

export async function act(
  training: Summary,
  body: { action: Action; seen: string; role?: string; replicas?: number; reason?: string },
): Promise<void> {
  await post(ofTraining(training.dag, training.uid, "/actions"), body);
}

/** A line that a search has found. */
export interface LogHit {
  role: string;
  index: number;
  attempt: number;
  offset: number;
  line: number;
  text: string;
}

/** How a search has ended. */
export interface SearchEnd {
  done: true;
  /** There are more hits than are told. */
  more: boolean;
  /** Empty: none. */
  problem: string;
}

/** Yield what a search finds as it finds it; an aborted signal ends the search on the server too. */
export async function* search(path: string, pattern: string, signal: AbortSignal): AsyncGenerator<LogHit | SearchEnd> {
  const answer = await ask(address(path, { pattern, ignore_case: "true" }), { signal });
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) yield JSON.parse(line) as LogHit | SearchEnd;
  }
}
