// What parts that are loaded later use of the first load: there is one of each, with what it remembers. See build.mjs.
import * as query from "@tanstack/react-query";

import * as again from "./Again.tsx";
import * as api from "./api.ts";
import * as editor from "./CodeEditor.tsx";
import * as parts from "./parts.tsx";
import * as words from "./words.ts";

(globalThis as Record<string, unknown>)["Training modules"] = {
  "@tanstack/react-query": { useQueries: query.useQueries, useQuery: query.useQuery },
  "./Again.tsx": again,
  "./CodeEditor.tsx": editor,
  "./api.ts": api,
  "./parts.tsx": parts,
  "./words.ts": words,
};
