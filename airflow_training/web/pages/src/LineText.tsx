// One line of a log as a terminal shows it.
import { Box, Span } from "@chakra-ui/react";
import Anser from "anser";

const COLOURS: Record<string, string> = {
  red: "red.fg",
  green: "green.fg",
  yellow: "yellow.fg",
  blue: "blue.fg",
  magenta: "purple.fg",
  cyan: "cyan.fg",
};

export function LineText({ text, wrap }: { text: string; wrap: boolean }) {
  return (
    <Box minW={0} whiteSpace={wrap ? "pre-wrap" : "pre"} wordBreak={wrap ? "break-all" : undefined}>
      {text.includes("\u001b") ? <Coloured text={text} /> : text}
    </Box>
  );
}

/** The sixteen colours of a terminal, as the page's own that can be read; nothing that a log says becomes HTML. */
function Coloured({ text }: { text: string }) {
  return Anser.ansiToJson(text, { remove_empty: true, use_classes: true }).map((part, number) => (
    <Span
      color={COLOURS[part.fg?.replace(/^ansi-(bright-)?/, "") ?? ""]}
      fontWeight={part.decoration === "bold" ? "bold" : undefined}
      key={number}
    >
      {part.content}
    </Span>
  ));
}
