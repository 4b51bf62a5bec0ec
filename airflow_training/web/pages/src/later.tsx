// The parts of the pages that few look at first, in a file of their own.
export { Charts } from "./Charts.tsx";
export { Checkpoints } from "./Checkpoints.tsx";
export { Compare } from "./Compare.tsx";
export { Tuning } from "./Tuning.tsx";
