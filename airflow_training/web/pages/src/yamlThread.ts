// Asks the worker for what long texts say. Where a browser or its policy allows no worker, the page does it itself.
import { PatchError, type Path, type Reading } from "./yamlPatch.ts";
import { answerTo, type YamlAnswer, type YamlRequest } from "./yamlWorker.ts";

/** Where it is beside this file; see build.mjs. */
declare const YAML_WORKER: string;

interface Waiting {
  request: YamlRequest;
  answer: (answer: YamlAnswer) => void;
}

export class YamlThread {
  private worker: Worker | null = null;
  private isRefused = false;
  private readonly waiting = new Map<number, Waiting>();
  private next = 0;

  async read(text: string): Promise<Reading> {
    return (await this.ask(text, null)).reading!;
  }

  /** The text with a value at a path, as `patched`; rejects with PatchError. */
  async patch(text: string, path: Path, value: unknown): Promise<string> {
    const { refused, text: changed } = await this.ask(text, { path, value });
    if (changed === undefined) throw new PatchError(refused ?? "");
    return changed;
  }

  close(): void {
    this.worker?.terminate();
    this.worker = null;
  }

  private ask(text: string, edit: YamlRequest["edit"]): Promise<YamlAnswer> {
    const request: YamlRequest = { id: (this.next += 1), text, edit };
    return new Promise((answer) => {
      const worker = this.started();
      if (worker === null) {
        answer(answerTo(request));
        return;
      }
      this.waiting.set(request.id, { request, answer });
      worker.postMessage(request);
    });
  }

  private started(): Worker | null {
    if (this.worker !== null || this.isRefused) return this.worker;
    try {
      this.worker = new Worker(new URL(YAML_WORKER, import.meta.url), { type: "module" });
      this.worker.onmessage = ({ data }: MessageEvent<YamlAnswer>) => {
        this.waiting.get(data.id)?.answer(data);
        this.waiting.delete(data.id);
      };
      this.worker.onerror = (event) => {
        event.preventDefault();
        this.giveUp();
      };
    } catch {
      this.isRefused = true; // a policy, or the pages are of another host than the script
    }
    return this.worker;
  }

  /** What was asked is answered here. */
  private giveUp(): void {
    this.isRefused = true;
    this.close();
    const left = [...this.waiting.values()];
    this.waiting.clear();
    for (const { answer, request } of left) answer(answerTo(request));
  }
}
