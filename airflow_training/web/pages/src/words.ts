// Numbers, times and states as people read them. Pure.
import type { Action, Detail, InstanceUsage, Phrase } from "./api.ts";

const COLOURS: Record<Phrase, string> = {
  "platform received the job": "gray",
  "sending it to the cluster": "blue",
  sent: "blue",
  "sending failed": "red",
  queued: "gray",
  running: "green",
  "state unknown": "orange",
  "received the stop command": "orange",
  paused: "purple",
  stopped: "gray",
  failed: "red",
  succeeded: "green",
};

const OVER: ReadonlySet<Phrase> = new Set(["sending failed", "stopped", "failed", "succeeded"]);

/** Nothing of the run moves any more. */
export function isOver(phrase: Phrase): boolean {
  return OVER.has(phrase);
}

export function colourOf(phrase: Phrase): string {
  return COLOURS[phrase] ?? "gray";
}

export function colourOfInstance(state: string): string {
  return { running: "green", succeeded: "green", failed: "red", unknown: "orange", terminating: "orange" }[state] ?? "gray";
}

export function colourOfRole(state: string): string {
  return { Running: "green", Succeeded: "green", Failed: "red", Starting: "blue", Restarting: "orange" }[state] ?? "gray";
}

/** `95` is `1 min 35 s`: two units at most. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "";
  const whole = Math.max(0, Math.round(seconds));
  const units: [string, number][] = [
    ["d", 86400],
    ["h", 3600],
    ["min", 60],
    ["s", 1],
  ];
  const first = units.findIndex(([, size]) => whole >= size);
  if (first < 0) return "0 s";
  const [name, size] = units[first]!;
  const next = units[first + 1];
  const rest = next ? Math.floor((whole % size) / next[1]) : 0;
  return `${Math.floor(whole / size)} ${name}${next && rest ? ` ${rest} ${next[0]}` : ""}`;
}

export function bytes(count: number | null | undefined): string {
  if (count === null || count === undefined) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** A metric's value: four significant digits, and powers of ten where zeros would hide them. */
export function quantity(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return WHOLE.format(value);
  const size = Math.abs(value);
  if (size >= 1e3 && size < 1e6) return WHOLE.format(Math.round(value));
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(3) : String(Number(value.toPrecision(4)));
}

/** `1 file`, `1,200 files`. */
export const counted = (number: number, noun: string) => `${quantity(number)} ${noun}${number === 1 ? "" : "s"}`;

/** As numbers are written: what begins with zeros is a name. */
const LONG_FRACTION = /^-?(?:0|[1-9]\d*)\.\d{3,}$/;

/** A cell of a table: a fraction of very many digits with six of them, where that says the same. */
export function cellText(cell: string | null): string {
  if (cell === null || !LONG_FRACTION.test(cell)) return cell ?? "";
  const value = Number(cell);
  if (Math.abs(value) > Number.MAX_SAFE_INTEGER) return cell; // its digits would become others
  const short = String(Math.abs(value) >= 1e6 ? Math.round(value) : Number(value.toPrecision(6)));
  return short.length < cell.length ? short : cell;
}

/** A metric's value in its unit, where its name tells one that is hard to read in digits. */
export function valueText(name: string, value: number | null | undefined): string {
  const isSize = /(^|[^a-z])bytes($|[^a-z])/i.test(name);
  return isSize && value !== null && value !== undefined && value >= 0 ? bytes(value) : quantity(value);
}

const MONEY = new Intl.NumberFormat("en", { maximumFractionDigits: 2, minimumFractionDigits: 2 });

/** `1,234.50`; of less than a hundredth, the four places that are known. */
export function money(amount: number | string): string {
  const value = Number(amount);
  return value !== 0 && Math.abs(value) < 0.01 ? value.toFixed(4) : MONEY.format(value);
}

const COMPACT = new Intl.NumberFormat("en", { maximumSignificantDigits: 4, notation: "compact" });

/** The same where there is room for few digits. */
export function tickText(name: string, value: number): string {
  const text = valueText(name, value);
  return text.length > 8 && Math.abs(value) >= 1 ? COMPACT.format(value) : text;
}

export function seconds(time: string | null | undefined): number | null {
  return time ? Date.parse(time) / 1000 : null;
}

export function clock(time: string | null | undefined): string {
  return time ? new Date(time).toLocaleTimeString() : "";
}

export function moment(time: string | null | undefined): string {
  return time ? new Date(time).toLocaleString() : "";
}

/** `3 min ago`. */
export function ago(time: string | null | undefined, now: number): string {
  const at = seconds(time);
  return at === null ? "" : `${duration(Math.max(0, now / 1000 - at))} ago`;
}

/** `1.5 of 4 cores`. */
export function cpuText(usage: InstanceUsage): string {
  const { cpu_cores: used, cpu_limit: limit } = usage;
  if (used === null) return "";
  const text = used < 10 ? used.toFixed(used < 1 ? 2 : 1) : WHOLE.format(used);
  return `${text}${limit === null ? "" : ` of ${quantity(limit)}`} ${(limit ?? used) === 1 ? "core" : "cores"}`;
}

export function memoryText(usage: InstanceUsage): string {
  const { memory_bytes: used, memory_limit_bytes: limit } = usage;
  return used === null ? "" : `${bytes(used)}${limit === null ? "" : ` of ${bytes(limit)}`}`;
}

/** `8: 93 %, 503 GiB of 640 GiB`: how many, how busy on average, their memory together. */
export function gpuText(usage: InstanceUsage): string {
  if (usage.gpus === 0) return "";
  const busy = usage.gpu_busy_percent === null ? "" : `${Math.round(usage.gpu_busy_percent)} %`;
  const { gpu_memory_bytes: used, gpu_memory_limit_bytes: limit } = usage;
  const memory = used === null ? "" : `${bytes(used)}${limit === null ? "" : ` of ${bytes(limit)}`}`;
  const said = [busy, memory].filter(Boolean).join(", ");
  return usage.gpus === 1 ? said || "1" : `${usage.gpus}${said && `: ${said}`}`;
}

/** What an action costs: the work since the last checkpoint, as far as that is known. */
export function lostBy(action: Action, detail: Pick<Detail, "last_checkpoint" | "progress">, now: number): string {
  const { last_checkpoint: last, progress } = detail;
  const killed = action === "kill";
  const saved = killed ? "is lost: it is given no time to save." : "is lost unless the script saves when it is asked to end.";
  if (last) return `The last checkpoint is of step ${quantity(last.step)}, ${ago(last.at, now)}. What came after it ${saved}`;
  if (progress.step === null) return "No checkpoint is known: a training that goes on later begins again at its first step.";
  const steps = `${quantity(progress.step)} ${progress.step === 1 ? "step" : "steps"}`;
  return `No checkpoint is known: the work of ${steps} is lost${killed ? "." : " unless the script saves it itself."}`;
}

/** `pause asked by ann`. */
export function askedText({ action, by, replicas, role }: NonNullable<Detail["asked"]>): string {
  const what = action === "scale" ? `scale ${role} to ${quantity(replicas)}` : action;
  return `${what} asked${by && ` by ${by}`}`;
}

/** Hours to a hundredth; few of them are not shown as none. */
export function hours(value: number): string {
  if (value > 0 && value < 0.005) return "< 0.01";
  return value.toLocaleString("en", { maximumFractionDigits: value < 100 ? 2 : 0 });
}

/** The last line of a text that says something: messages of containers are often the end of a log. */
export function headline(text: string): string {
  return text.split(/\r?\n/).map((line) => line.trim()).findLast(Boolean) ?? "";
}

/** Words before the one word that names their kind: `CUDA out of memory (Error)`, as the command line says it. */
export function why({ reason, message }: { reason: string | null; message: string | null }): string {
  const words = headline(message ?? "");
  if (!words) return reason ?? "";
  return !reason || words.split(/[^A-Za-z]+/).includes(reason) ? words : `${words} (${reason})`;
}

/** What a failed run says, apart from the limit that let the failure end it: `worker-0: exit code 1; maxRestarts 0 is used up`. */
export function failureOf({ message }: { message: string | null }, proof: string): { what: string; limit: string } {
  const text = headline(message ?? "");
  const proven = text.lastIndexOf(headline(proof));
  const ends = text.lastIndexOf("; ");
  // a proof may hold the same sign; one that was cut is not found
  if (ends < (proven < 0 ? 0 : proven + headline(proof).length)) return { what: text, limit: "" };
  return { what: text.slice(0, ends), limit: text.slice(ends + 2) };
}

/** What can be done about a cause, without what was said already: the line that raised an exception says what it says. */
export function whatToDo(advice: string, said: readonly string[]): string {
  const bare = (text: string) => text.toLowerCase().replace(/[.\s]+$/, "");
  return said.some((each) => bare(each).includes(bare(advice))) ? "" : advice.replace(/(: \S+:\d+): raise [\w.]+\(.*$/s, "$1");
}

/** Of a run that is not over: why it stands where it does; nothing where that is only the word for where it stands. */
export function whyHere({ state, reason, message }: { state: string; reason: string; message: string }): string {
  return why({ reason: reason === state || reason === "Received" ? "" : reason, message });
}

/** Seconds from submission until earlier runs of the job ran. */
export interface ExpectedStart {
  median_seconds: number;
  shortest_seconds: number;
  longest_seconds: number;
  runs: number;
}

export function expectedStart({ median_seconds: usual, shortest_seconds: least, longest_seconds: most, runs }: ExpectedStart): string {
  const told = `earlier runs waited ${duration(usual)}`;
  if (runs === 1) return `${told} (one run; no promise)`;
  return `${told} (median of ${quantity(runs)} runs, ${duration(least)} to ${duration(most)}; no promise)`;
}

/** `in 1 h 30 min, 10:31`, with the day where that is another one. Both in milliseconds. */
export function untilTime(at: number, now: number): string {
  const then = new Date(at);
  const time = `${two(then.getHours())}:${two(then.getMinutes())}`;
  const day = dayOf(then);
  return `in ${duration((at - now) / 1000)}, ${day === dayOf(new Date(now)) ? "" : `${day} `}${time}`;
}

/** `2 of 3 used`; `allowed`: null where roles have limits of their own. */
export function restartsText({ used, allowed }: Detail["restarts"]): string {
  if (allowed === null) return used === 0 ? "none" : quantity(used);
  return allowed === 0 && used === 0 ? "none allowed" : `${quantity(used)} of ${quantity(allowed)} used`;
}

/** Where in its DAG a training is: `each[1]`; empty: it is the only one. */
export function placeOf({ group_id: group, map_index: index }: Pick<Detail["summary"], "group_id" | "map_index">): string {
  return `${group ?? ""}${index >= 0 ? `[${index}]` : ""}`;
}

/** What the browser's tab says: `running 12 % - digits`. */
export function titleOf({ summary, progress }: { summary: Pick<Detail["summary"], "job" | "phrase">; progress: Pick<Detail["progress"], "fraction"> }): string {
  const part = summary.phrase === "running" && progress.fraction !== null ? ` ${Math.floor(100 * progress.fraction)} %` : "";
  return `${summary.phrase}${part} - ${summary.job}`;
}

function two(value: number): string {
  return String(value).padStart(2, "0");
}

function dayOf(at: Date): string {
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

/** The last so many days of here, today among them, as inputs of dates have them. */
export function lastDays(days: number, now: Date): { from: string; to: string } {
  return { from: dayOf(new Date(now.getFullYear(), now.getMonth(), now.getDate() - days + 1)), to: dayOf(now) };
}

/** From the beginning of the first day to the end of the last one, of here; null where that is no span, or more than a year. */
export function daySpan(from: string, to: string): { start: string; end: string } | null {
  const start = new Date(`${from}T00:00:00`);
  const last = new Date(`${to}T00:00:00`);
  const end = new Date(last.getFullYear(), last.getMonth(), last.getDate() + 1);
  const days = (end.getTime() - start.getTime()) / 86_400_000;
  return days > 0 && days <= 366 ? { start: start.toISOString(), end: end.toISOString() } : null;
}

/** Which of the installed frameworks a job's own one is: `pytorch` is `torch`; a job of `custom` may use any. */
export function frameworksOf(framework: string, installed: readonly string[]): { used: string[]; others: string[] } {
  const job = framework.toLowerCase();
  const belongs = (name: string) => job.includes(name.toLowerCase()) || name.toLowerCase().includes(job);
  return { used: installed.filter(belongs), others: installed.filter((name) => !belongs(name)) };
}
