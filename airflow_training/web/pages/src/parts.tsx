// Small things that several pages use.
import { Alert, Badge, Box, Button, Clipboard, Flex, Heading, IconButton, NativeSelect, Spinner, Table, Text, VisuallyHidden } from "@chakra-ui/react";
import { useEffect, useState, type ReactNode } from "react";

import type { Phrase } from "./api.ts";
import { colourOf } from "./words.ts";

/** Served by `airflow-training ui`: pages link to each other differently there. */
export function isStandalone(): boolean {
  return document.getElementById("root")?.dataset["standalone"] !== undefined;
}

/** `onAgain`: what a button does that tries again. */
export function Problem({ error, onAgain }: { error: Error; onAgain?: () => void }) {
  return (
    <Alert.Root my={4} role="alert" status="error">
      <Alert.Indicator />
      <Alert.Title flex={1}>{error.message}</Alert.Title>
      {onAgain && (
        <Button onClick={onAgain} size="xs" variant="outline">
          Try again
        </Button>
      )}
    </Alert.Root>
  );
}

export function Loading() {
  return (
    <Box m={4} role="status">
      <Spinner />
      <VisuallyHidden>Loading</VisuallyHidden>
    </Box>
  );
}

export function StateBadge({ phrase, size = "md" }: { phrase: Phrase; size?: "sm" | "md" | "lg" }) {
  return (
    <Badge colorPalette={colourOf(phrase)} size={size} variant="subtle">
      {phrase}
    </Badge>
  );
}

export function Section({ title, children, aside }: { title: string; children: ReactNode; aside?: ReactNode }) {
  return (
    <Box as="section" mb={6}>
      <Box alignItems="baseline" display="flex" flexWrap="wrap" gap={3} justifyContent="space-between" mb={2}>
        <Heading as="h3" size="sm">
          {title}
        </Heading>
        {aside}
      </Box>
      {children}
    </Box>
  );
}

/** `wide`: a row of its own where there is little room. */
export function Fact({ name, children, wide = false }: { name: string; children: ReactNode; wide?: boolean }) {
  return (
    <Box gridColumn={wide ? "1 / -1" : undefined} minW={0}>
      <Text color="fg.muted" fontSize="xs">
        {name}
      </Text>
      <Box fontSize="sm" fontVariantNumeric="tabular-nums" overflowWrap="anywhere">
        {children}
      </Box>
    </Box>
  );
}

/** Text of which the beginning is shown where it is long; a button copies it whole. `name`: what it is, as in `run id`. */
export function Copied({ name, text }: { name: string; text: string }) {
  return (
    <Clipboard.Root timeout={3000} value={text}>
      <Flex align="center" gap={1} minW={0}>
        <Text maxW="24rem" title={text} truncate>
          {text}
        </Text>
        <Clipboard.Trigger asChild>
          <IconButton aria-label={`Copy the ${name}`} minW={0} size="2xs" variant="ghost">
            <Clipboard.Indicator />
          </IconButton>
        </Clipboard.Trigger>
        <Box aria-live="polite" color="fg.muted" fontSize="xs">
          <Clipboard.Context>{({ copied }) => copied && "copied"}</Clipboard.Context>
        </Box>
      </Flex>
    </Clipboard.Root>
  );
}

/** A list of which one is chosen; `options`: value and text of each. */
export function Choice({
  label,
  onChange,
  options,
  value,
  w,
}: {
  label: string;
  onChange: (value: string) => void;
  options: readonly (readonly [string, string])[];
  value: string;
  w?: string;
}) {
  return (
    <NativeSelect.Root maxW="100%" size="sm" w={w}>
      <NativeSelect.Field aria-label={label} onChange={(event) => onChange(event.currentTarget.value)} value={value}>
        {options.map(([each, text]) => (
          <option key={each} value={each}>
            {text}
          </option>
        ))}
      </NativeSelect.Field>
      <NativeSelect.Indicator />
    </NativeSelect.Root>
  );
}

/** A table that scrolls; the first cell of each row is its name. */
export function Rows({ head, rows }: { head: readonly string[]; rows: readonly (readonly ReactNode[])[] }) {
  return (
    <Box>
      <Table.ScrollArea borderRadius="md" borderWidth="1px" maxH="50vh" maxW="4xl" tabIndex={0} whiteSpace="normal">
        <Table.Root size="sm" stickyHeader>
          <Table.Header>
            <Table.Row>
              {head.map((name) => (
                <Table.ColumnHeader key={name}>{name}</Table.ColumnHeader>
              ))}
            </Table.Row>
          </Table.Header>
          <Table.Body>
            {rows.map((row) => (
              <Table.Row key={String(row[0])}>
                {row.map((cell, number) => (
                  <Table.Cell key={head[number]} wordBreak="break-word">
                    {cell}
                  </Table.Cell>
                ))}
              </Table.Row>
            ))}
          </Table.Body>
        </Table.Root>
      </Table.ScrollArea>
    </Box>
  );
}

/** What the browser's tab says while the component is there. Airflow names its own pages. */
export function useTitle(title: string): void {
  useEffect(() => {
    if (!isStandalone()) return undefined;
    const before = document.title;
    return () => {
      document.title = before;
    };
  }, []);
  useEffect(() => {
    if (isStandalone()) document.title = title;
  }, [title]);
}

/** The time, again every second while something moves, else twice a minute. */
export function useNow(moving: boolean): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), moving ? 1000 : 30_000);
    return () => clearInterval(timer);
  }, [moving]);
  return now;
}
