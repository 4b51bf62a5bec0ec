// Keeps a document as a preset, under a name, for its user and whoever may start trainings here.
import { Button, Flex, Input, Text } from "@chakra-ui/react";
import { useId, useState } from "react";

import { post } from "./api.ts";

interface Saved {
  name: string;
  version: number;
}

/** `document`: asked for when it is saved. */
export function SavePreset({ document, name: proposed, onClose }: { document: () => string | Promise<string>; name: string; onClose: () => void }) {
  const [name, setName] = useState(proposed);
  const [description, setDescription] = useState("");
  const [said, setSaid] = useState("");
  const [saving, setSaving] = useState(false);
  const id = useId();
  const save = async () => {
    setSaving(true);
    try {
      const saved = await post<Saved>("presets", { name, description, document: await document() });
      setSaid(`Saved as ${saved.name}, version ${saved.version}. Who may start trainings here finds it.`);
    } catch (problem) {
      setSaid(problem instanceof Error ? problem.message : String(problem));
    } finally {
      setSaving(false);
    }
  };
  return (
    <Flex
      align="center"
      as="form"
      bg="bg.subtle"
      borderRadius="md"
      borderWidth="1px"
      flexWrap="wrap"
      gap={2}
      mb={3}
      onKeyDown={(event) => event.key === "Escape" && onClose()}
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
      p={3}
    >
      <label htmlFor={id}>
        <Text fontSize="sm">Save as preset</Text>
      </label>
      <Input autoFocus id={id} maxLength={63} onChange={(event) => setName(event.currentTarget.value)} size="xs" value={name} w="12rem" />
      <Input aria-label="What it is for" flex="1 1 10rem" maxLength={500} onChange={(event) => setDescription(event.currentTarget.value)} placeholder="what it is for" size="xs" value={description} />
      <Button disabled={!name} loading={saving} size="xs" type="submit" variant="solid">
        Save
      </Button>
      <Button onClick={onClose} size="xs" variant="ghost">
        Close
      </Button>
      <Text aria-live="polite" flexBasis="100%" fontSize="xs">
        {said || "A name that is there already gets its next version; none is ever overwritten."}
      </Text>
    </Flex>
  );
}
