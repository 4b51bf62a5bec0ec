// The form for a new training, in a file of its own, with what reads and changes YAML.
export { NewTraining } from "./NewTraining.tsx";
