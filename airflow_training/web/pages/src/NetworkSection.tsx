// The network of a job that trains one: a saved one, a file, or that of a run, with what each of its layers gives.
import { Box, Button, Flex, Input, NativeSelect, Table, Text } from "@chakra-ui/react";
import { useQuery } from "@tanstack/react-query";
import { useId, useMemo, useState } from "react";
import { parse, stringify } from "yaml";

import { get, ofTraining, post, type ConfigurationAnswer, type SummaryPage } from "./api.ts";
import { FormField, Said, useForm } from "./FormField.tsx";
import { schemaAt } from "./jobSchema.ts";
import { NetworkGraph } from "./NetworkGraph.tsx";
import type { NetworkCheckAnswer } from "./schema.ts";
import { quantity } from "./words.ts";
import { readYaml, valueAt } from "./yamlPatch.ts";

export const NETWORK = ["spec", "trainer", "network"] as const;

interface SavedNetwork {
  name: string;
  version: number;
  user: string;
  description: string;
}

/** What a server that keeps no networks, or an older one, does not answer. */
export function useNetworks() {
  return useQuery({ queryKey: ["networks"], queryFn: () => get<{ networks: SavedNetwork[] }>("networks"), retry: false }).data?.networks;
}

export function NetworkSection() {
  const { edit, schema, values } = useForm();
  const networks = useNetworks() ?? [];
  const [said, setSaid] = useState("");
  const file = useId();
  const network = valueAt(values, NETWORK) as { name?: string; version?: number; document?: unknown } | undefined;
  if (!schemaAt(schema, NETWORK)) return null;
  const chosen = network?.name ? `${network.name} ${network.version ?? ""}` : network?.document ? "document" : "";
  const read = async (chosenFile: File | undefined) => {
    if (!chosenFile) return;
    try {
      if (chosenFile.size > 1024 * 1024) throw new Error("a network has at most 1 MiB");
      const document = parse(await chosenFile.text(), { maxAliasCount: 100 }) as unknown;
      edit(NETWORK, { document });
      setSaid(`${chosenFile.name} stands in the document now`);
    } catch (problem) {
      setSaid(`${chosenFile.name}: ${problem instanceof Error ? problem.message : String(problem)}`);
    }
  };
  return (
    <>
      <Flex align="center" flexWrap="wrap" gap={2} mb={2}>
        <NativeSelect.Root flex="1 1 14rem" size="sm" w="auto">
          <NativeSelect.Field
            aria-label="Network"
            onChange={(event) => {
              const [name, version] = event.currentTarget.value.split(" ");
              if (name && name !== "document") edit(NETWORK, { name, ...(version ? { version: Number(version) } : {}) });
              else if (!name) edit(NETWORK, undefined);
            }}
            value={chosen}
          >
            <option value="">no network</option>
            {network?.document !== undefined && <option value="document">in this document: {String(valueAt(network.document, ["metadata", "name"]) ?? "without a name")}</option>}
            {network?.name && !networks.some((each) => chosen === `${each.name} ${each.version}`) && <option value={chosen}>{chosen}</option>}
            {networks.map((each) => (
              <option key={`${each.name} ${each.version}`} value={`${each.name} ${each.version}`}>
                {each.name}, version {each.version}, by {each.user}
              </option>
            ))}
          </NativeSelect.Field>
          <NativeSelect.Indicator />
        </NativeSelect.Root>
        <Button asChild size="xs" variant="outline">
          <label htmlFor={file}>Upload a file</label>
        </Button>
        <Input accept=".yaml,.yml,.json" aria-label="File of a network" id={file} onChange={(event) => void read(event.currentTarget.files?.[0])} type="file" css={HIDDEN} />
        <FromRun onSaid={setSaid} />
      </Flex>
      <Text aria-live="polite" color="fg.muted" fontSize="xs">
        {said}
      </Text>
      <Said below path={NETWORK} />
      <Layers network={network} />
      <FormField help="Epochs, sizes of batches, the optimizer, the seed." label="More of the trainer" path={["spec", "trainer"]} />
    </>
  );
}

export const HIDDEN = { position: "absolute", width: "1px", height: "1px", padding: 0, overflow: "hidden", clipPath: "inset(50%)", border: 0 } as const;

function FromRun({ onSaid }: { onSaid: (words: string) => void }) {
  const { edit } = useForm();
  const { data } = useQuery({ queryKey: ["recent"], queryFn: () => get<SummaryPage>("trainings", { limit: 20 }) });
  const take = async (name: string) => {
    const run = data?.trainings.find((each) => each.uid === name);
    if (!run) return;
    try {
      const { document } = await get<ConfigurationAnswer>(ofTraining(run.dag, run.uid, "/configuration"));
      const found = valueAt(readYaml(document).values, NETWORK);
      if (found === undefined) onSaid(`${run.run_id} has no network in its document`);
      else edit(NETWORK, found);
    } catch (problem) {
      onSaid(problem instanceof Error ? problem.message : String(problem));
    }
  };
  if (!data || data.trainings.length === 0) return null;
  return (
    <NativeSelect.Root size="xs" w="10rem">
      <NativeSelect.Field aria-label="Network of a run" onChange={(event) => void take(event.currentTarget.value)} value="">
        <option value="">From a run</option>
        {data.trainings.map((each) => (
          <option key={each.uid} value={each.uid}>
            {each.job}: {each.run_id}
          </option>
        ))}
      </NativeSelect.Field>
      <NativeSelect.Indicator />
    </NativeSelect.Root>
  );
}

/** What each layer gives, by the server's inference; nothing where it has none. */
function Layers({ network }: { network: { name?: string; version?: number; document?: unknown } | undefined }) {
  const { mistakes } = useForm();
  const name = network?.name;
  const inline = useMemo(() => (network?.document === undefined ? null : stringify(network.document)), [network?.document]);
  const { data: saved } = useQuery({
    queryKey: ["network", name, network?.version],
    queryFn: () => get<{ document: string }>(`networks/${encodeURIComponent(name!)}/${network!.version}`),
    enabled: inline === null && Boolean(name) && Number.isInteger(network?.version),
    retry: false,
  });
  const document = inline ?? saved?.document;
  const { data } = useQuery({
    queryKey: ["network check", document],
    queryFn: () => post<NetworkCheckAnswer>("networks/check", { document }),
    enabled: document !== undefined,
    placeholderData: (before) => before,
    retry: false,
  });
  const written = useMemo(() => network?.document ?? (saved ? readYaml(saved.document).values : undefined), [network?.document, saved]);
  if (!data || document === undefined) return null;
  // those that the check of the whole job has found too stand above
  const isNew = ({ field, message }: { field: string; message: string }) => !mistakes.some((each) => each.message === message && each.field.endsWith(field));
  return (
    <Box mb={3}>
      <NetworkGraph answer={data} document={written} name={String(valueAt(written, ["metadata", "name"]) ?? "the network")} />
      {data.problems.filter(isNew).map((each, number) => (
        <Text color="red.fg" fontSize="xs" key={number} overflowWrap="anywhere">
          {each.field}: {each.message}
        </Text>
      ))}
      {data.network && (
        <Table.ScrollArea borderRadius="md" borderWidth="1px" maxH="20rem" tabIndex={0}>
          <Table.Root aria-label={`Layers of ${data.network.name}`} size="sm" stickyHeader>
            <Table.Header>
              <Table.Row>
                {["Layer", "Type", "Gives", "Parameters", "In"].map((each) => (
                  <Table.ColumnHeader key={each}>{each}</Table.ColumnHeader>
                ))}
              </Table.Row>
            </Table.Header>
            <Table.Body>
              {data.network.layers.map((each) => (
                <Table.Row key={each.name}>
                  <Table.Cell>{each.name}</Table.Cell>
                  <Table.Cell>{each.type}</Table.Cell>
                  <Table.Cell>{each.gives.join(" × ")}</Table.Cell>
                  <Table.Cell textAlign="end">{each.parameters ? quantity(each.parameters) : ""}</Table.Cell>
                  <Table.Cell>{each.nets.length === 2 ? "both" : `${each.nets[0] ?? "no"} net`}</Table.Cell>
                </Table.Row>
              ))}
            </Table.Body>
          </Table.Root>
        </Table.ScrollArea>
      )}
      {data.network && (
        <Text color="fg.muted" fontSize="xs" mt={1}>
          {quantity(data.network.parameters)} parameters, {quantity(data.network.flops)} operations for a sample
        </Text>
      )}
    </Box>
  );
}
