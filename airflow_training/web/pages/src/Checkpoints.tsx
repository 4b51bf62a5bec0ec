// The checkpoints that the run knows, the newest first.
import { Code, Table, Text } from "@chakra-ui/react";

import { AgainButton, useAgainOffer } from "./Again.tsx";
import type { Detail } from "./api.ts";
import { bytes, moment, quantity } from "./words.ts";

export function Checkpoints({ detail }: { detail: Detail }) {
  const offer = useAgainOffer(detail.summary);
  // where training was begun anew, a step may be there twice: the newer one is what a restore finds
  const newest = new Map(detail.checkpoints.map((each) => [each.step, each] as const).reverse());
  if (detail.checkpoints.length === 0) return <Text color="fg.muted">No checkpoint was committed yet.</Text>;
  return (
    <>
      <Table.ScrollArea tabIndex={0} borderRadius="md" borderWidth="1px">
        <Table.Root size="sm">
          <Table.Header>
            <Table.Row>
              {["Step", "When", "Size", "Where", ""].map((name) => (
                <Table.ColumnHeader key={name}>{name}</Table.ColumnHeader>
              ))}
            </Table.Row>
          </Table.Header>
          <Table.Body>
            {detail.checkpoints.map((each) => (
              <Table.Row key={each.uri + each.at}>
                <Table.Cell fontVariantNumeric="tabular-nums">{quantity(each.step)}</Table.Cell>
                <Table.Cell whiteSpace="nowrap">{moment(each.at)}</Table.Cell>
                <Table.Cell>{bytes(each.bytes)}</Table.Cell>
                <Table.Cell fontFamily="mono" fontSize="xs" wordBreak="break-all">
                  {each.uri}
                </Table.Cell>
                <Table.Cell textAlign="right">
                  {offer?.possible && newest.get(each.step) === each && (
                    <AgainButton detail={detail} label="Restore as a new run" size="xs" step={each.step} />
                  )}
                </Table.Cell>
              </Table.Row>
            ))}
          </Table.Body>
        </Table.Root>
      </Table.ScrollArea>
      <Text color="fg.muted" fontSize="sm" mt={2}>
        A restore reads and compares everything before any of it is used. To compare every byte now:{" "}
        <Code wordBreak="break-all">airflow-training checkpoints verify {detail.summary.uid}</Code>
      </Text>
    </>
  );
}
