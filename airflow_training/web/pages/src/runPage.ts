// Where the page of a run is, from wherever it is linked.
import { isStandalone } from "./parts.tsx";

export function runPage({ dag, uid, run_id }: { dag: string; uid: string; run_id: string }): string {
  if (isStandalone()) return `/runs/${uid}${dag === "~" ? "" : `?dag=${encodeURIComponent(dag)}`}`;
  if (dag === "~") return `/plugin/trainings?run=~/${uid}`;
  return `/dags/${encodeURIComponent(dag)}/runs/${encodeURIComponent(run_id)}/plugin/training-run?training=${uid}`;
}
