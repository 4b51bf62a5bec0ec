// Auto-tune: several values of some parameters, each set of them a run of its own.
import { Box, Button, Flex, Input, NativeSelect, SimpleGrid, Text } from "@chakra-ui/react";

import { Said, useForm } from "./FormField.tsx";
import { plain, schemaAt } from "./jobSchema.ts";
import { goalOf } from "./metricOrder.ts";
import { Choice } from "./parts.tsx";
import { declaredIn, freeFields, parameterOf, type TunedRow } from "./tuning.ts";
import { valueAt } from "./yamlPatch.ts";

const KINDS = [
  ["values", "values"],
  ["range", "a range"],
  ["log", "a range of powers"],
] as const;

export function AutoTune({ fields }: { fields: readonly string[] }) {
  const { edit, schema, trials, tune, tuning, values } = useForm();
  const { rows } = tuning;
  const declared = declaredIn(values).filter((each) => !rows.some(({ name }) => name === each));
  const free = freeFields(values, fields);
  const setRow = (index: number, change: Partial<TunedRow>) => tune({ ...tuning, rows: rows.map((each, number) => (number === index ? { ...each, ...change } : each)) });
  const add = (chosen: string) => {
    let name = chosen.slice(2);
    let value = valueAt(values, ["spec", "dag", "params", name, "default"]);
    if (chosen.startsWith("f:")) {
      const field = schemaAt(schema, ["spec", "trainer", ...name.split(".")]);
      const made = parameterOf(values, name, field ? plain(schema, field).default : undefined);
      for (const [path, each] of made.edits) edit(path, each);
      ({ name, value } = made);
    }
    const output = valueAt(values, ["spec", "output", "uri"]);
    if (rows.length === 0 && typeof output === "string" && output !== "" && !output.includes("{{")) edit(["spec", "output", "uri"], `${output.replace(/\/+$/, "")}/{{ run_id }}`);
    const written = value === undefined || value === null || typeof value === "object" ? "" : String(value);
    tune({ ...tuning, rows: [...rows, { name, kind: "values", values: written, low: "", high: "" }] });
  };
  const metrics = metricsOf(values);
  return (
    <Box aria-label="Auto-tune" as="fieldset" data-field="space" mb={3}>
      <Text as="legend" fontSize="sm" fontWeight="medium" mb={1}>
        Auto-tune{" "}
        <Text as="span" color="fg.muted" fontWeight="normal">
          {rows.length > 0 && (trials === null ? "" : `${trials} trials, each a run of its own`)}
        </Text>
      </Text>
      {rows.map((each, index) => (
        <Row key={index} index={index} onChange={(change) => setRow(index, change)} onRemove={() => tune({ ...tuning, rows: rows.filter((_, number) => number !== index) })} row={each} />
      ))}
      {declared.length + free.length > 0 ? (
        <NativeSelect.Root size="xs" w="16rem" maxW="100%">
          <NativeSelect.Field aria-label="Parameter to try values of" onChange={(event) => add(event.currentTarget.value)} value="">
            <option value="">{rows.length > 0 ? "Try another parameter too" : "Try several values of"}</option>
            {declared.length > 0 && (
              <optgroup label="Parameters of the job">
                {declared.map((each) => (
                  <option key={each} value={`p:${each}`}>
                    {each}
                  </option>
                ))}
              </optgroup>
            )}
            {free.length > 0 && (
              <optgroup label="Fields of the trainer">
                {free.map((each) => (
                  <option key={each} value={`f:${each}`}>
                    {each}
                  </option>
                ))}
              </optgroup>
            )}
          </NativeSelect.Field>
          <NativeSelect.Indicator />
        </NativeSelect.Root>
      ) : (
        rows.length === 0 && (
          <Text color="fg.muted" fontSize="xs">
            Several values of a parameter are tried once the job has one: a field of spec.dag.params (in Advanced), used in the command as {"{{ params.NAME }}"}.
          </Text>
        )
      )}
      {rows.length > 0 && (
        <SimpleGrid alignItems="end" columnGap={3} columns={{ base: 1, md: 3 }} mt={2} rowGap={2}>
          <Box>
            <Label text="Trials" to="tuning-trials" />
            <Input id="tuning-trials" inputMode="numeric" onChange={(event) => tune({ ...tuning, trials: event.currentTarget.value })} placeholder="every combination" size="sm" value={tuning.trials} />
          </Box>
          <Box>
            <Label text="Compare by the metric" to="tuning-metric" />
            <Input
              id="tuning-metric"
              list="tuning-metrics"
              onChange={(event) => tune({ ...tuning, metric: event.currentTarget.value, goal: goalOf(event.currentTarget.value) })}
              placeholder={metrics[0] ?? "loss"}
              size="sm"
              value={tuning.metric}
            />
            <datalist id="tuning-metrics">
              {metrics.map((each) => (
                <option key={each} value={each} />
              ))}
            </datalist>
          </Box>
          <Choice
            label="What is better"
            onChange={(goal) => tune({ ...tuning, goal: goal as "max" | "min" })}
            options={[
              ["max", "more is better"],
              ["min", "less is better"],
            ]}
            value={tuning.goal}
          />
        </SimpleGrid>
      )}
      {rows.length > 0 && (
        <Text color="fg.muted" fontSize="xs" mt={1}>
          Each trial puts its result into a place of its own: the output holds {"{{ run_id }}"}.
        </Text>
      )}
      <Said below path={["space"]} without={rows.map(({ name }) => `space.${name}`)} />
      <Said path={["trials"]} />
    </Box>
  );
}

const Label = ({ text, to }: { text: string; to: string }) => (
  <label htmlFor={to}>
    <Text fontSize="xs" mb={0.5}>
      {text}
    </Text>
  </label>
);

function Row({ index, onChange, onRemove, row }: { index: number; onChange: (change: Partial<TunedRow>) => void; onRemove: () => void; row: TunedRow }) {
  const of = `of ${row.name}`;
  return (
    <Box borderRadius="md" borderWidth="1px" data-tuned={row.name} mb={2} p={2}>
      <Flex align="center" flexWrap="wrap" gap={2}>
        <Text flex="1 1 6rem" fontSize="sm" fontWeight="medium" minW={0} overflowWrap="anywhere">
          {row.name || `parameter ${index + 1}`}
        </Text>
        <Box flexShrink={0} w="10rem">
          <Choice label={`How values ${of} are chosen`} onChange={(kind) => onChange({ kind: kind as TunedRow["kind"] })} options={KINDS} value={row.kind} />
        </Box>
        {row.kind === "values" ? (
          <Input aria-label={`Values ${of}`} flex="2 1 10rem" onChange={(event) => onChange({ values: event.currentTarget.value })} placeholder="0.1, 0.01, 0.001" size="sm" value={row.values} />
        ) : (
          <>
            <Input aria-label={`Least value ${of}`} flex="1 1 5rem" onChange={(event) => onChange({ low: event.currentTarget.value })} placeholder="from" size="sm" value={row.low} />
            <Input aria-label={`Greatest value ${of}`} flex="1 1 5rem" onChange={(event) => onChange({ high: event.currentTarget.value })} placeholder="to" size="sm" value={row.high} />
          </>
        )}
        <Button aria-label={`Try no values ${of}`} onClick={onRemove} size="xs" variant="ghost">
          ✕
        </Button>
      </Flex>
      <Said below path={["space", row.name]} />
      <Said below path={["params", row.name]} />
    </Box>
  );
}

/** Metrics that the network in the document says. */
function metricsOf(values: unknown): readonly string[] {
  const layers = valueAt(values, ["spec", "trainer", "network", "document", "spec", "layers"]);
  const found = Array.isArray(layers) ? layers.filter((each: { type?: unknown } | null) => /^(Accuracy|AUC|NDCG)$/.test(String(each?.type))) : [];
  return [...found.map((each: { name?: unknown }) => String(each.name)), "loss"];
}
