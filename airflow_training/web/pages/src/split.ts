// How a plan splits the model over devices, as a picture draws it. Pure.

/** As `status` says it; what pages use of it. */
export interface Plan {
  model: string;
  cluster: string;
  strategy: Record<string, unknown> & { tp: number; pp: number; dp: number; cp: number; ep: number };
  devices: number;
  step_time_s: number;
  p10: number;
  p90: number;
  peak_memory_bytes: number;
  price_per_step: number | null;
  breakdown: { time_s: Part[]; memory_bytes: Part[] };
  stages: { memory_bytes: number; device_memory_bytes: number }[];
  placement: { axes?: Record<string, { size: number; stride: number; level: string }>; stages?: { stage: number; device: string }[] };
  applied: { replicas: Record<string, number>; env: string[] };
  alternatives: Alternative[];
  warnings: string[];
  measured: { step_time_s: number; steps: number; peak_memory_bytes: number | null } | null;
}

export interface Part {
  name: string;
  value: number;
}

type Alternative = Pick<Plan, "strategy" | "step_time_s" | "peak_memory_bytes" | "price_per_step">;

/** Why there is nothing to compare a plan with. `over`: its run has ended; `step`: the last one that the slowest instance told. */
export function unmeasured({ applied }: Pick<Plan, "applied">, { over, step }: { over: boolean; step: number | null }): string {
  // as what is measured of a run counts for its plan only then
  if (!applied.env.includes("TP_SIZE")) return "Nothing is measured: the split is only shown, and was not given to the scripts.";
  if (!over) return "Nothing is measured yet: it is, once scripts have reported a few steps.";
  return step === null ? "Nothing was measured: the run has ended, and no script reported a step." : "Nothing was measured: the run ended before enough steps were reported.";
}

/** So many replicas of the data are drawn; the others are like them. */
export const MOST_ROWS = 16;

export interface Cell {
  stage: number;
  /** Numbers of the devices that share this stage of this replica, in the order of the placement. */
  devices: number[];
}

/** A row for each replica of the data, a cell for each stage of the pipeline. */
export function cells({ strategy, placement }: Pick<Plan, "strategy" | "placement">): Cell[][] {
  const { tp, pp, dp, cp } = strategy;
  const stride = (axis: string, otherwise: number) => placement.axes?.[axis]?.stride ?? otherwise;
  const strides = { tp: stride("tp", 1), cp: stride("cp", tp), dp: stride("dp", tp * cp), pp: stride("pp", tp * cp * dp) };
  return range(Math.min(dp, MOST_ROWS)).map((replica) =>
    range(pp).map((stage) => ({
      stage,
      devices: range(cp).flatMap((context) =>
        range(tp).map((tensor) => replica * strides.dp + stage * strides.pp + context * strides.cp + tensor * strides.tp),
      ),
    })),
  );
}

const NAMES: Record<string, string> = { dp: "data", tp: "tensor", pp: "pipeline", cp: "context", ep: "expert" };

/** `data 4 x tensor 2 x pipeline 8, micro-batch 2, ZeRO 2`. */
export function strategyWords(strategy: Plan["strategy"]): string {
  const axes = Object.entries(NAMES).flatMap(([axis, name]) => (Number(strategy[axis]) > 1 ? [`${name} ${strategy[axis]}`] : []));
  const more = [
    `micro-batch ${strategy["micro_batch"]}`,
    ...(strategy["zero"] ? [`ZeRO ${strategy["zero"]}`] : []),
    ...(strategy["sequence_parallel"] ? ["sequence parallel"] : []),
    ...(strategy["recompute"] && strategy["recompute"] !== "none" ? [`recompute ${strategy["recompute"]}`] : []),
    ...(Number(strategy["virtual_stages"]) > 1 ? [`${strategy["virtual_stages"]} virtual stages`] : []),
  ];
  return `${axes.join(" × ") || "one device"}, ${more.join(", ")}`;
}

/** Which axes lie within what, below the cluster as a whole. */
export function levels({ axes = {} }: Plan["placement"]): [string, string[]][] {
  const found = new Map<string, string[]>();
  for (const [axis, { size, level }] of Object.entries(axes)) {
    if (size > 1 && level !== "cluster") found.set(level, [...(found.get(level) ?? []), NAMES[axis] ?? axis]);
  }
  return [...found];
}

/** Of parts of a step and of a device's memory, whose names in the plan are the planner's own. */
const PART_NAMES: Record<string, string> = {
  compute: "computing",
  recompute: "computing activations again",
  launch: "launching kernels",
  tp: "exchanges within layers",
  cp: "exchanges of parts of a sequence",
  ep: "exchanges between experts",
  pp: "transfers between pipeline stages",
  bubble: "waiting in the pipeline",
  accumulation: "adding up gradients",
  dp: "exchanges of gradients",
  tied: "exchanges of tied weights",
  straggling: "waiting for the slowest",
  gathered: "gathered weights",
  working: "working memory",
  communication: "buffers of exchanges",
};

/** The largest parts first, in words; what is below one in a hundred together as `other`. */
export function largest(parts: readonly Part[]): Part[] {
  const whole = parts.reduce((sum, each) => sum + each.value, 0);
  const shown = parts.filter((each) => each.value >= 0.01 * whole && each.value > 0).sort((one, other) => other.value - one.value);
  const rest = whole - shown.reduce((sum, each) => sum + each.value, 0);
  const named = shown.map(({ name, value }) => ({ name: PART_NAMES[name] ?? name.replaceAll("_", " "), value }));
  return rest > 1e-9 * whole ? [...named, { name: "other", value: rest }] : named;
}

function range(count: number): number[] {
  return Array.from({ length: count }, (_, number) => number);
}
