// Says on every page, dialogs too, that the server has not answered yet.
import { Box, Portal } from "@chakra-ui/react";

import { useSlow } from "./slow.ts";

export function StillSending() {
  if (!useSlow()) return null;
  return (
    <Portal>
      <Box bg="bg.panel" borderWidth="1px" bottom={4} boxShadow="md" p={3} position="fixed" right={4} role="status" zIndex="toast">
        The server has not answered yet; still trying
      </Box>
    </Portal>
  );
}
