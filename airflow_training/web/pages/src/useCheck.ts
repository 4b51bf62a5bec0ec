// What the server says of a document, in the words of `airflow-training validate`.
import { useEffect, useState } from "react";

import { post, type CheckAnswer } from "./api.ts";

const QUIET_MS = 300;

/** Asked when nobody has typed for a moment; null while it is not known. `path`: what checks it; `more`: what else is sent. */
export function useCheck(path: string, text: string, more?: object): { checked: CheckAnswer | null; problem: string | null } {
  const [found, setFound] = useState<{ asked: string; checked: CheckAnswer | null; problem: string | null } | null>(null);
  const rest = JSON.stringify(more ?? {});
  const asked = `${path} ${rest} ${text}`;
  useEffect(() => {
    let current = true;
    const tell = (checked: CheckAnswer | null, problem: string | null) => current && setFound({ asked, checked, problem });
    const timer = setTimeout(() => {
      post<CheckAnswer>(path, { ...(JSON.parse(rest) as object), document: text }).then(
        (checked) => tell(checked, null),
        (problem: unknown) => tell(null, problem instanceof Error ? problem.message : String(problem)),
      );
    }, QUIET_MS);
    return () => {
      current = false;
      clearTimeout(timer);
    };
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [asked]);
  return found?.asked === asked ? found : { checked: null, problem: null };
}
