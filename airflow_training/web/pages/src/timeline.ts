// What the time line of a run draws: bars of attempts, waits and pauses, marks over all rows, and the ticks of its axis. Pure.
import type { Detail, EventAnswer } from "./api.ts";
import { clock, colourOfInstance, duration, moment, quantity, seconds, why } from "./words.ts";

export type Kind = "ran" | "restarted" | "waited" | "paused";

/** A stretch of time; seconds since 1970. */
export interface Bar {
  kind: Kind;
  from: number;
  to: number;
  colour: string;
  text: string;
}

/** Of the whole run; no two of one place. */
export interface TimeMark {
  at: number;
  kind: "checkpoint" | "restart";
  text: string;
}

export interface Line {
  name: string;
  bars: Bar[];
}

export interface TimeLine {
  from: number;
  to: number;
  lines: Line[];
  marks: TimeMark[];
}

/** Seconds; what is shorter is no wait. */
const SHORTEST = 0.5;

type Told = Pick<EventAnswer, "at" | "reason" | "message">;

/** From the submission to the end, or to now: what each instance did, and what happened to the whole run. */
export function timeLine(detail: Pick<Detail, "attempts" | "checkpoints" | "held" | "roles" | "status" | "summary">, events: readonly Told[], now: number): TimeLine {
  const { attempts, status, summary } = detail;
  const ended = seconds(status.finished_at);
  const begins = seconds(summary.submitted_at) ?? now;
  const taken = seconds(status.started_at);
  const queued = events.find((each) => each.reason === "Queued");
  const pauses = pausesOf(events, ended ?? now);
  const states = new Map(status.instances.map((each) => [`${each.role}-${each.index}`, each]));
  const rows = new Map<string, typeof attempts>([...states.keys()].map((name) => [name, []]));
  for (const each of attempts) rows.set(`${each.role}-${each.index}`, [...(rows.get(`${each.role}-${each.index}`) ?? []), each]);
  const to = Math.max(begins + 1, ended ?? now, ...attempts.map((each) => seconds(each.finished_at) ?? (ended === null ? now : 0)));

  const lines = [...rows].map(([name, own]): Line => {
    const bars: Bar[] = [];
    const instance = states.get(name);
    const role = detail.roles.find((each) => each.name === (own[0]?.role ?? instance?.role));
    let free = begins;
    if (own.length > 0 && taken !== null && taken - begins >= SHORTEST) {
      const text = `${queued ? "Queued" : "Received"}${queued?.message ? `: ${queued.message}` : ""}, ${span(begins, taken)}`;
      bars.push({ kind: "waited", from: begins, to: taken, colour: "gray", text });
      free = taken;
    }
    const wait = (until: number, text: string) => {
      for (const [from, end] of without(pauses, free, until)) {
        bars.push({ kind: "waited", from, to: end, colour: "gray", text: `${name} ${text}, ${span(from, end)}` });
      }
    };
    own.forEach((each, number) => {
      const from = seconds(each.started_at)!;
      const end = seconds(each.finished_at) ?? to;
      wait(from, number === 0 ? `waited${waitedFor(role)}` : `waited for attempt ${each.attempt}`);
      const followed = number < own.length - 1 || (instance?.state === "pending" && instance.attempt > each.attempt);
      const again = each.finished_at !== null && followed;
      bars.push({
        kind: again ? "restarted" : "ran",
        from,
        to: end,
        colour: again ? "orange" : colourOfInstance(instance?.state ?? ""),
        text: `${name}, attempt ${each.attempt}: ${span(from, end, each.finished_at === null)}`,
      });
      free = end;
    });
    const waits = instance && ["pending", "unknown"].includes(instance.state);
    if (ended === null && waits && free < to) wait(to, `waits: ${why(instance) || instance.state}`);
    for (const [from, end] of pauses) {
      bars.push({ kind: "paused", from, to: end, colour: "purple", text: `The run was paused, ${span(from, end)}` });
    }
    return { name, bars: bars.sort((one, other) => one.from - other.from) };
  });
  return { from: begins, to, lines, marks: fewer(marksOf(detail.checkpoints, events), begins, to) };
}

function waitedFor(role: Detail["roles"][number] | undefined): string {
  const told = role?.depends_on.map((each) => `${each.role}: ${each.status}`) ?? [];
  return told.length ? ` for ${told.join(", ")}` : " to be started";
}

function span(from: number, to: number, goesOn = false): string {
  const at = (time: number) => clock(new Date(1000 * time).toISOString());
  return `${at(from)} to ${goesOn ? "now" : at(to)}, ${duration(to - from)}`;
}

/** Stretches in which the run was paused. */
function pausesOf(events: readonly Told[], end: number): [number, number][] {
  const found: [number, number][] = [];
  let since: number | null = null;
  for (const each of events) {
    const at = seconds(each.at)!;
    if (each.reason === "Paused") since ??= at;
    else if (since !== null && ["Resumed", "JobStopped", "JobFailed", "JobSucceeded", "Reopened"].includes(each.reason)) {
      found.push([since, at]);
      since = null;
    }
  }
  return since === null ? found : [...found, [since, Math.max(since, end)]];
}

/** What of a stretch lies in none of the others; what is too short to be a wait is left out. */
function without(others: readonly [number, number][], from: number, to: number): [number, number][] {
  let left: [number, number][] = [[from, to]];
  for (const [start, end] of others) {
    left = left.flatMap(([one, other]): [number, number][] => (end <= one || start >= other ? [[one, other]] : [[one, start], [end, other]]));
  }
  return left.filter(([one, other]) => other - one >= SHORTEST);
}

function marksOf(checkpoints: Detail["checkpoints"], events: readonly Told[]): TimeMark[] {
  // the newest first: of a step that each instance has saved for itself, the last to do so
  const steps = checkpoints.filter(({ step }, place) => step !== checkpoints[place - 1]?.step);
  const saved = steps.map(({ at, step }): TimeMark => ({ at: seconds(at)!, kind: "checkpoint", text: `Checkpoint of step ${quantity(step)}, ${moment(at)}` }));
  const again = events
    .filter((each) => each.reason === "JobRestarted")
    .map(({ at, message }): TimeMark => ({ at: seconds(at)!, kind: "restart", text: `All of the job was started again, ${moment(at)}: ${message}` }));
  return [...saved, ...again].sort((one, other) => one.at - other.at);
}

/** A mark is about as wide as one of so many parts of the line: more of them would lie over each other. */
const MOST_MARKS = 200;

/** One mark for those of one place, told by the newest of them; a restart comes before checkpoints. */
function fewer(marks: readonly TimeMark[], from: number, to: number): TimeMark[] {
  const places = new Map<number, TimeMark[]>();
  for (const each of marks) {
    const place = Math.max(0, Math.min(MOST_MARKS - 1, Math.floor((MOST_MARKS * (each.at - from)) / (to - from))));
    const own = places.get(place);
    if (own) own.push(each);
    else places.set(place, [each]);
  }
  return [...places.values()].map((own) => {
    const told = own.findLast((each) => each.kind === "restart") ?? own.at(-1)!;
    return own.length === 1 ? told : { ...told, text: `${told.text} (and ${quantity(own.length - 1)} more close by)` };
  });
}

/** The time up to which a line is drawn, moved on by no less than can be seen: a long one is not made anew each second. */
export function drawnUntil(from: number, now: number): number {
  const step = (now - from) / 1000;
  if (step <= 1) return now;
  const coarse = 2 ** Math.floor(Math.log2(step));
  return Math.ceil(now / coarse) * coarse;
}

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86_400;
const STEPS = [1, 2, 5, 10, 15, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR];

/** At most so many round times of here; seconds since 1970. */
export function ticksOf(from: number, to: number, most: number): { at: number; text: string }[] {
  const least = (to - from) / most;
  const step = STEPS.find((each) => each >= least) ?? DAY * Math.ceil(least / DAY);
  const offset = -60 * new Date(1000 * from).getTimezoneOffset();
  const found: { at: number; text: string }[] = [];
  for (let at = Math.ceil((from + offset) / step) * step - offset; at <= to; at += step) {
    const date = new Date(1000 * at);
    const two = (value: number) => String(value).padStart(2, "0");
    const day = `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
    const time = `${two(date.getHours())}:${two(date.getMinutes())}`;
    found.push({ at, text: step >= DAY ? day : to - from > DAY ? `${day} ${time}` : step < MINUTE ? `${time}:${two(date.getSeconds())}` : time });
  }
  return found;
}
