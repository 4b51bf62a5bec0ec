// What leads through a log: keys while it has the focus, where that is said, and the buttons that every log has.
import { Box, Button, Checkbox, Flex, Kbd, Text } from "@chakra-ui/react";
import { useState, type KeyboardEvent, type ReactNode } from "react";

/** `keys`: what it does, in words, and what does it. */
export type LogKey = readonly [keys: string, words: string, act: () => void];

/** Hears the keys wherever in it the focus is, but for fields. */
export function LogKeys({ children, keys }: { children: ReactNode; keys: readonly LogKey[] }) {
  const press = (event: KeyboardEvent) => {
    const inField = event.target instanceof Element && event.target.closest("input, select, textarea") !== null;
    if (inField || event.altKey || event.ctrlKey || event.metaKey) return;
    const found = keys.find(([key]) => key === event.key);
    if (!found) return;
    event.preventDefault();
    event.stopPropagation(); // Airflow has keys of its own
    found[2]();
  };
  return <Box onKeyDown={press}>{children}</Box>;
}

export function LogTools({
  children,
  display,
  follow,
  keys,
  onBeginning,
  onEnd,
  onFollow,
  over,
}: {
  children?: ReactNode;
  display: { base: string; md: string };
  follow: boolean;
  keys: readonly LogKey[];
  onBeginning: () => void;
  onEnd: () => void;
  onFollow: (follow: boolean) => void;
  /** Nothing can follow. */
  over: boolean;
}) {
  return (
    <Flex align="center" display={display} flexWrap="wrap" gap={2} mb={2}>
      <Button onClick={onBeginning} size="xs" variant="outline">
        Beginning
      </Button>
      <Button onClick={onEnd} size="xs" variant="outline">
        End
      </Button>
      {children}
      {!over && (
        <Checkbox.Root checked={follow} onCheckedChange={(event) => onFollow(event.checked === true)} size="sm">
          <Checkbox.HiddenInput />
          <Checkbox.Control />
          <Checkbox.Label>Follow</Checkbox.Label>
        </Checkbox.Root>
      )}
      <KeysTip keys={keys} />
    </Flex>
  );
}

function KeysTip({ keys }: { keys: readonly LogKey[] }) {
  const [shown, setShown] = useState(false);
  return (
    <>
      <Button aria-expanded={shown} aria-label="Keys" onClick={() => setShown(!shown)} size="xs" variant="ghost">
        ?
      </Button>
      {shown && (
        <Text color="fg.muted" fontSize="xs" width="100%">
          While the log has the focus:{" "}
          {keys.map(([key, words]) => (
            <Box as="span" display="inline-block" key={key} mr={3}>
              <Kbd size="sm">{key}</Kbd> {words}
            </Box>
          ))}
        </Text>
      )}
    </>
  );
}
