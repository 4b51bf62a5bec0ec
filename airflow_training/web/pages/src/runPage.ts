// Where the page of a run is, from wherever it is linked.
import { isStandalone } from "./parts.tsx";

/** Airflow keeps a DAG run's grid beside its tabs, which leaves nothing for them on a phone. */
const PHONE = "(max-width: 47.99em)";

export function runPage({ dag, uid, run_id }: { dag: string; uid: string; run_id: string }): string {
  if (isStandalone()) return `/runs/${uid}${dag === "~" ? "" : `?dag=${encodeURIComponent(dag)}`}`;
  if (dag === "~" || window.matchMedia(PHONE).matches) return pageAlone({ dag, uid });
  return `/dags/${encodeURIComponent(dag)}/runs/${encodeURIComponent(run_id)}/plugin/training-run?training=${uid}`;
}

/** Inside Airflow, where no grid stands beside it; `query`: of the tab that it is opened from, to show the same. */
export function pageAlone({ dag, uid }: { dag: string; uid: string }, query = new URLSearchParams()): string {
  const kept = new URLSearchParams([...query].filter(([name]) => name !== "training" && name !== "run"));
  const rest = kept.toString();
  return `/plugin/trainings?run=${encodeURIComponent(dag)}/${uid}${rest && `&${rest}`}`;
}

/** The form for a new training; `query`: what it begins with. */
export function newTrainingPage(query: Record<string, string> = {}): string {
  const words = new URLSearchParams(query).toString();
  return `${isStandalone() ? "/new" : "/plugin/training-new"}${words && `?${words}`}`;
}

/** The trials of a tuning beside each other; what is empty is left out. */
export function tuningPage(query: { tuning: string; metric?: string; goal?: string; missing?: string }): string {
  const words = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "")).toString();
  return `${isStandalone() ? "/" : "/plugin/trainings"}?${words}`;
}
