// The editor of a document. What it is made of is loaded where it is shown.
import { Box } from "@chakra-ui/react";
import { useEffect, useRef, useState } from "react";

import type { Mark } from "./marks.ts";
import { Loading, Problem } from "./parts.tsx";
import type { YamlEditor } from "./yamlEditor.ts";

/** `text`: what it opens with; from then on the editor has the text, and `editor.replace` gives it another one. */
export function CodeEditor({
  editor,
  label,
  marks,
  onChange,
  text,
}: {
  editor: { current: YamlEditor | null };
  label: string;
  marks: readonly Mark[];
  onChange: (text: string) => void;
  text: string;
}) {
  const box = useRef<HTMLDivElement>(null);
  const change = useRef(onChange);
  const [error, setError] = useState<Error | null>(null);
  const [open, setOpen] = useState(false);
  change.current = onChange;
  const first = useRef({ label, text });
  first.current = { label, text };
  useEffect(() => {
    let gone = false;
    import("./yamlEditor.ts").then(({ openEditor }) => {
      if (gone || !box.current) return;
      editor.current = openEditor(box.current, { label: first.current.label, text: first.current.text, onChange: (next) => change.current(next) });
      setOpen(true);
    }, setError);
    return () => {
      gone = true;
      editor.current?.close();
      editor.current = null;
    };
  }, [editor]);
  const shown = JSON.stringify(marks);
  useEffect(() => editor.current?.show(JSON.parse(shown) as Mark[]), [editor, open, shown, text]);
  return (
    <Box minW={0}>
      {error && <Problem error={error} />}
      {!open && !error && <Loading />}
      <Box borderRadius="md" borderWidth={open ? "1px" : 0} overflow="hidden" ref={box} />
    </Box>
  );
}
