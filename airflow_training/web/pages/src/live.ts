// The newest detail of each training that a page shows. One stream per training and browser tab; a poll where
// a proxy lets no stream through. Kept outside the components: Airflow mounts those anew at every change of path.
import { useCallback, useSyncExternalStore } from "react";

import { address, ApiError, get, ofTraining, type Detail } from "./api.ts";

const OPEN_MS = 5000;
const POLL_MS = 3000;

export interface Live {
  detail: Detail | null;
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
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    if (this.#listeners.size === 1) this.#open();
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) this.#close();
    };
  }

  #tell(change: Partial<Live>) {
    this.live = { ...this.live, ...change };
    for (const listener of this.#listeners) listener();
  }

  #open() {
    void this.#read(false);
    const source = new EventSource(address(`${this.#path}/live`));
    this.#source = source;
    this.#timer = setTimeout(() => void this.#read(true), OPEN_MS);
    source.addEventListener("detail", (event) => {
      clearTimeout(this.#timer); // the stream works
      this.#tell({ detail: JSON.parse((event as MessageEvent<string>).data) as Detail, error: null, lost: false });
    });
    source.addEventListener("error", () => {
      // closed for good, or between two attempts of the browser's own: polls bridge both
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => void this.#read(true), POLL_MS);
    });
  }

  #close() {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
  }

  async #read(again: boolean) {
    try {
      const detail = await get<Detail>(this.#path);
      this.#tell({ detail, error: null, lost: false });
    } catch (error) {
      if (error instanceof ApiError && error.status < 500) this.#tell({ error });
      else this.#tell({ lost: true });
    }
    if (again && this.#source) this.#timer = setTimeout(() => void this.#read(true), POLL_MS);
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
