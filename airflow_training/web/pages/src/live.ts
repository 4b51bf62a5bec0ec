// The newest detail of each training that a page shows. One stream per training and browser tab; a poll where
// a proxy lets no stream through. Kept outside the components: Airflow mounts those anew at every change of path.
import { useCallback, useSyncExternalStore } from "react";

import { address, ApiError, get, ofTraining, type Detail } from "./api.ts";
import { noteServerTime } from "./serverClock.ts";

const OPEN_MS = 5000;
const POLL_MS = 3000;
const LONGEST_MS = 60_000;

export interface Live {
  detail: Detail | null;
  /** The server refuses: the session has ended, the run is gone, or is no longer the user's to read. */
  error: ApiError | null;
  /** The newest answer is older than it should be: the server does not answer. */
  lost: boolean;
}

const NOTHING: Live = { detail: null, error: null, lost: false };

class Feed {
  live: Live = NOTHING;
  readonly #listeners = new Set<() => void>();
  readonly #path: string;
  #source: EventSource | null = null;
  /** Streams that were closed for good, and polls that were refused, since the last detail came by a stream. */
  #failures = 0;
  /** When to open the next stream, as this one is closed for good; the browser opens the others again. */
  #reopenAt: number | null = null;
  /** Of the next poll. */
  #timer: ReturnType<typeof setTimeout> | null = null;
  /** Of the newest detail or read: what was asked before either is old. */
  #turn = 0;

  constructor(path: string) {
    this.#path = path;
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    if (this.#listeners.size === 1) this.#start();
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) this.#stop();
    };
  }

  #tell(change: Partial<Live>) {
    if (change.detail) noteServerTime(change.detail.status.observed_at);
    this.live = { ...this.live, ...change };
    for (const listener of this.#listeners) listener();
  }

  #start() {
    this.#failures = 0;
    void this.#read();
    this.#open();
    this.#pollIn(OPEN_MS);
  }

  #stop() {
    this.#quiet();
    this.#source?.close();
    this.#source = null;
  }

  #open() {
    const source = new EventSource(address(`${this.#path}/live`));
    let works = false;
    this.#source?.close();
    this.#source = source;
    this.#reopenAt = null;
    source.addEventListener("detail", (event) => {
      works = true;
      this.#failures = 0;
      this.#quiet();
      this.#tell({ detail: JSON.parse((event as MessageEvent<string>).data) as Detail, error: null, lost: false });
    });
    source.addEventListener("open", () => {
      // renewed: of a run that is as it was it has nothing to say. A new one that says nothing is kept back by a proxy
      if (!works) return;
      this.#quiet();
      this.#tell({ error: null, lost: false });
    });
    source.addEventListener("error", () => {
      // closed for good, or between two attempts of the browser's own: polls bridge both
      if (source.readyState === EventSource.CLOSED) this.#reopenAt = Date.now() + this.#pause();
      // a server that is away is an error each second, which must not put the poll off each time
      if (this.#timer === null) this.#pollIn(POLL_MS);
    });
  }

  /** Ask no more, and let what was asked be old: what changes is sent, or nobody looks. */
  #quiet() {
    this.#turn += 1;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }

  #pollIn(milliseconds: number) {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#poll(), milliseconds);
  }

  async #poll() {
    this.#timer = null;
    const turn = await this.#read();
    if (turn !== this.#turn) return; // the stream was faster, or nobody looks any more
    const { error, lost } = this.live;
    if (!error && !lost && this.#reopenAt !== null && Date.now() >= this.#reopenAt) this.#open();
    this.#pollIn(error ? this.#pause() : POLL_MS);
  }

  /** How long to wait after one more failure: not all pages at once, where a server begins anew. */
  #pause(): number {
    const longest = Math.min(LONGEST_MS, POLL_MS * 2 ** this.#failures);
    this.#failures += 1;
    return longest * (0.75 + Math.random() / 4);
  }

  /** Ask once; gives the turn in which that was. */
  async #read(): Promise<number> {
    this.#turn += 1;
    const turn = this.#turn;
    let change: Partial<Live>;
    try {
      change = { detail: await get<Detail>(this.#path), error: null, lost: false };
    } catch (error) {
      change = error instanceof ApiError && error.status < 500 ? { error, lost: false } : { lost: true };
    }
    if (turn === this.#turn) this.#tell(change);
    return turn;
  }
}

const feeds = new Map<string, Feed>();

/** The newest detail of a training, as long as the component is there. */
export function useDetail(dag: string, uid: string): Live {
  const path = ofTraining(dag, uid);
  let feed = feeds.get(path);
  if (!feed) {
    feed = new Feed(path);
    feeds.set(path, feed);
  }
  const found = feed;
  const subscribe = useCallback((listener: () => void) => found.subscribe(listener), [found]);
  return useSyncExternalStore(subscribe, () => found.live);
}
