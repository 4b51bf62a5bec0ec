// The split as a picture, and what was predicted of it against what was measured.
import { Alert, Box, Flex, SimpleGrid, Table, Text } from "@chakra-ui/react";

import { Fact, Section } from "./parts.tsx";
import { cells, largest, levels, MOST_ROWS, strategyWords, unmeasured, type Part, type Plan as PlanDocument } from "./split.ts";
import { bytes, quantity } from "./words.ts";

const COLOURS = ["blue", "orange", "green", "pink", "cyan", "purple", "yellow", "red"];
const MOST_ALTERNATIVES = 5;
const RANGE = "10 to 90 %";
/** Where it is narrow, the range stands below what is predicted. */
const WIDE = { base: "none", md: "table-cell" };
const NARROW = { base: "block", md: "none" };
const TIGHT = { px: { base: 1.5, md: 2 } };

const colour = (place: number) => COLOURS[place % COLOURS.length]!;
const time = (seconds: number) => `${quantity(seconds >= 1 ? seconds : seconds * 1000)} ${seconds >= 1 ? "s" : "ms"}`;

/** `over`: the run has ended; `step`: the one of its slowest instance, where any told it. */
export function Plan({ over, plan, step }: { over: boolean; plan: PlanDocument; step: number | null }) {
  const { measured, strategy } = plan;
  return (
    <>
      {plan.warnings.map((each) => (
        <Alert.Root key={each} mb={3} status="warning">
          <Alert.Indicator />
          <Alert.Title wordBreak="break-word">{each}</Alert.Title>
        </Alert.Root>
      ))}
      <Flex columnGap={8} flexWrap="wrap" mb={5} rowGap={2}>
        <Fact name="Model">{plan.model}</Fact>
        <Fact name="Cluster">{plan.cluster}</Fact>
        <Fact name="Devices">{quantity(plan.devices)}</Fact>
        <Fact name="Strategy">{strategyWords(strategy)}</Fact>
        <Fact name="Applied">
          {Object.entries(plan.applied.replicas)
            .map(([role, count]) => `${count} of ${role}`)
            .concat(plan.applied.env.length ? [`${plan.applied.env.length} variables`] : [])
            .join(", ") || "nothing, only shown"}
        </Fact>
      </Flex>
      <Section title="Predicted and measured">
        <Table.ScrollArea borderRadius="md" borderWidth="1px" tabIndex={0} whiteSpace="normal">
          <Table.Root size="sm">
            <Table.Header>
              <Table.Row>
                {["", "Predicted", RANGE, ...(measured ? ["Measured", "Difference"] : [])].map((each) => (
                  <Table.ColumnHeader css={TIGHT} display={each === RANGE ? WIDE : undefined} key={each} textAlign={each ? "end" : undefined}>
                    {each}
                  </Table.ColumnHeader>
                ))}
              </Table.Row>
            </Table.Header>
            <Table.Body>
              <Against
                measured={measured?.step_time_s}
                name={`Time of a step${measured ? ` (median of ${quantity(measured.steps)})` : ""}`}
                predicted={plan.step_time_s}
                range={`${time(plan.p10)} to ${time(plan.p90)}`}
                text={time}
              />
              <Against measured={measured?.peak_memory_bytes} name="Memory of the fullest device" predicted={plan.peak_memory_bytes} range="" text={bytes} />
            </Table.Body>
          </Table.Root>
        </Table.ScrollArea>
        {!measured && (
          <Text color="fg.muted" fontSize="xs" mt={1}>
            {unmeasured(plan, { over, step })}
          </Text>
        )}
      </Section>
      <Section title="Split">
        <Split plan={plan} />
      </Section>
      <SimpleGrid columns={{ base: 1, lg: 2 }} gap={6}>
        <Section title="Where the time of a step goes">
          <Parts parts={largest(plan.breakdown.time_s)} text={time} />
        </Section>
        <Section title="What fills the fullest device">
          <Parts parts={largest(plan.breakdown.memory_bytes)} text={bytes} />
        </Section>
      </SimpleGrid>
      {plan.alternatives.length > 0 && (
        <Section title="Next best plans">
          <Table.ScrollArea borderRadius="md" borderWidth="1px" tabIndex={0} whiteSpace="normal">
            <Table.Root size="sm">
              <Table.Header>
                <Table.Row>
                  <Table.ColumnHeader>Strategy</Table.ColumnHeader>
                  <Table.ColumnHeader textAlign="end">Step</Table.ColumnHeader>
                  <Table.ColumnHeader textAlign="end">Memory</Table.ColumnHeader>
                </Table.Row>
              </Table.Header>
              <Table.Body>
                {plan.alternatives.slice(0, MOST_ALTERNATIVES).map((each) => (
                  <Table.Row key={JSON.stringify(each.strategy)}>
                    <Table.Cell>{strategyWords(each.strategy)}</Table.Cell>
                    <Table.Cell textAlign="end" whiteSpace="nowrap">
                      {time(each.step_time_s)}
                    </Table.Cell>
                    <Table.Cell textAlign="end" whiteSpace="nowrap">
                      {bytes(each.peak_memory_bytes)}
                    </Table.Cell>
                  </Table.Row>
                ))}
              </Table.Body>
            </Table.Root>
          </Table.ScrollArea>
        </Section>
      )}
    </>
  );
}

function signedPercent(difference: number | null): string {
  return difference === null ? "–" : `${difference > 0 ? "+" : ""}${difference.toFixed(1)} %`;
}

/** `measured`: null where the others are, and undefined where nothing is. */
function Against({
  measured,
  name,
  predicted,
  range,
  text,
}: {
  measured: number | null | undefined;
  name: string;
  predicted: number;
  range: string;
  text: (value: number) => string;
}) {
  const known = typeof measured === "number";
  const difference = known ? (100 * (measured - predicted)) / predicted : null;
  return (
    <Table.Row>
      <Table.Cell css={TIGHT}>{name}</Table.Cell>
      {[text(predicted), range || "–", ...(measured === undefined ? [] : [known ? text(measured) : "–", signedPercent(difference)])].map(
        (each, column) => (
          <Table.Cell
            css={TIGHT}
            display={column === 1 ? WIDE : undefined}
            fontVariantNumeric="tabular-nums"
            key={column}
            textAlign="end"
            whiteSpace={{ md: "nowrap" }}
          >
            {each}
            {column === 0 && range && (
              <Text color="fg.muted" display={NARROW} fontSize="xs">
                {range}
              </Text>
            )}
          </Table.Cell>
        ),
      )}
    </Table.Row>
  );
}

/** Stages of the pipeline from left to right, replicas of the data from top to bottom, the devices of each as boxes. */
function Split({ plan }: { plan: PlanDocument }) {
  const { dp, pp, tp, cp } = plan.strategy;
  const rows = cells(plan);
  return (
    <>
      <Box
        aria-label={`${dp} ${dp === 1 ? "replica" : "replicas"} of the data, each of ${pp} pipeline stages on ${tp * cp} devices`}
        borderRadius="md"
        borderWidth="1px"
        overflowX="auto"
        p={3}
        role="img"
        tabIndex={0}
      >
        <Box display="grid" gap={1} gridTemplateColumns={`auto repeat(${pp}, minmax(4.5rem, 1fr))`} minW="fit-content">
          <Box />
          {rows[0]?.map(({ stage }) => {
            const memory = plan.stages[stage];
            return (
              <Box fontSize="xs" key={stage} px={1}>
                <Text fontWeight="medium">{pp > 1 ? `Stage ${stage}` : "Whole model"}</Text>
                {memory && (
                  <>
                    <Text color="fg.muted" whiteSpace="nowrap">
                      {bytes(memory.memory_bytes)}
                    </Text>
                    <Box bg="bg.emphasized" borderRadius="sm" h="4px" mt="2px">
                      <Box
                        bg={memory.memory_bytes > memory.device_memory_bytes ? "red.solid" : `${colour(stage)}.solid`}
                        borderRadius="sm"
                        h="100%"
                        w={`${Math.min(100, (100 * memory.memory_bytes) / memory.device_memory_bytes)}%`}
                      />
                    </Box>
                  </>
                )}
              </Box>
            );
          })}
          {rows.map((row, replica) => [
            <Text alignSelf="center" color="fg.muted" fontSize="xs" key={replica} pr={2} whiteSpace="nowrap">
              {dp > 1 ? `Replica ${replica}` : ""}
            </Text>,
            ...row.map(({ stage, devices }) => (
              <Flex bg={`${colour(stage)}.subtle`} borderRadius="sm" flexWrap="wrap" gap="2px" key={`${replica}-${stage}`} p={1}>
                {devices.map((device) => (
                  <Box
                    bg={`${colour(stage)}.muted`}
                    borderRadius="2px"
                    color={`${colour(stage)}.fg`}
                    fontSize="2xs"
                    fontVariantNumeric="tabular-nums"
                    key={device}
                    minW="1.5rem"
                    textAlign="center"
                  >
                    {device}
                  </Box>
                ))}
              </Flex>
            )),
          ])}
        </Box>
      </Box>
      <Text color="fg.muted" fontSize="xs" mt={1}>
        {dp > MOST_ROWS && `${dp - MOST_ROWS} more replicas are like these. `}
        Boxes are devices, by their number in the cluster
        {tp > 1 && `; the ${tp} that share a layer stand side by side`}
        {cp > 1 && `, once for each of the ${cp} parts of a sequence`}. Above a stage: the memory of its fullest device.
        {levels(plan.placement).map(([level, axes]) => ` Within a ${level}: ${axes.join(", ")}.`)}
      </Text>
    </>
  );
}

function Parts({ parts, text }: { parts: readonly Part[]; text: (value: number) => string }) {
  const whole = parts.reduce((sum, each) => sum + each.value, 0) || 1;
  return (
    <>
      <Flex aria-hidden borderRadius="sm" h="12px" mb={2} overflow="hidden">
        {parts.map((each, place) => (
          <Box bg={`${colour(place)}.solid`} key={each.name} w={`${(100 * each.value) / whole}%`} />
        ))}
      </Flex>
      <Box as="dl" display="grid" fontSize="sm" gridTemplateColumns="auto 1fr auto auto" gap={1} columnGap={3}>
        {parts.map((each, place) => [
          <Box alignSelf="center" aria-hidden bg={`${colour(place)}.solid`} borderRadius="2px" boxSize="10px" key={each.name} />,
          <Text as="dt" key="name">
            {each.name}
          </Text>,
          <Text as="dd" fontVariantNumeric="tabular-nums" key="value" textAlign="end">
            {text(each.value)}
          </Text>,
          <Text as="dd" color="fg.muted" fontVariantNumeric="tabular-nums" key="share" textAlign="end">
            {((100 * each.value) / whole).toFixed(1)} %
          </Text>,
        ])}
      </Box>
    </>
  );
}
