// Reads and changes long texts in a thread of its own, so that the page goes on drawing what is typed.
import { patched, readYaml, type Path, type Reading } from "./yamlPatch.ts";

export interface YamlRequest {
  id: number;
  text: string;
  /** Null: it is only read. */
  edit: { path: Path; value: unknown } | null;
}

export interface YamlAnswer {
  id: number;
  reading?: Reading;
  text?: string;
  /** Why the text was not changed. */
  refused?: string;
}

/** What the worker answers, wherever that is worked out. */
export function answerTo({ edit, id, text }: YamlRequest): YamlAnswer {
  if (edit === null) return { id, reading: readYaml(text) };
  try {
    return { id, text: patched(text, edit.path, edit.value) };
  } catch (error) {
    return { id, refused: error instanceof Error ? error.message : String(error) };
  }
}

interface WorkerScope {
  onmessage: ((event: { data: YamlRequest }) => void) | null;
  postMessage(answer: YamlAnswer): void;
}

// in the thread of a page, which imports the function, there is a document
if (typeof document === "undefined" && typeof self !== "undefined") {
  const scope = self as unknown as WorkerScope;
  scope.onmessage = ({ data }) => scope.postMessage(answerTo(data));
}
