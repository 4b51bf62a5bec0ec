// The lines of a log on the screen: at the end while it is followed, anywhere else once somebody moves.
import { Box } from "@chakra-ui/react";
import type { ReactElement, RefObject } from "react";
import { VList, type VListHandle } from "virtua";

export const ROW_PIXELS = 20;
const UPWARDS = new Set(["ArrowUp", "PageUp", "Home"]);

export function LogList({
  children,
  follow,
  list,
  onEnd,
  onLeave,
  onStart,
}: {
  children: ReactElement[];
  follow: boolean;
  list: RefObject<VListHandle | null>;
  onEnd: () => void;
  /** Somebody looks at something else than the end. */
  onLeave: () => void;
  onStart: () => void;
}) {
  return (
    <Box
      bg="bg.subtle"
      borderRadius="md"
      borderWidth="1px"
      fontFamily="mono"
      fontSize="xs"
      onKeyDown={(event) => UPWARDS.has(event.key) && onLeave()}
      onPointerDown={(event) => event.target === event.currentTarget.firstChild && onLeave()} // its scroll bar
      onTouchMove={onLeave}
      onWheel={(event) => event.deltaY < 0 && onLeave()}
      role="log"
      tabIndex={0}
    >
      <VList
        itemSize={ROW_PIXELS}
        onScroll={(offset) => offset < 5 * ROW_PIXELS && onStart()}
        onScrollEnd={() => {
          const shown = list.current;
          if (!shown) return;
          const below = shown.scrollSize - shown.viewportSize - shown.scrollOffset;
          // where rows are measured late, the list has stopped short of the end
          if (follow && below > 1) shown.scrollToIndex(children.length - 1, { align: "end" });
          else if (below <= 3 * ROW_PIXELS) onEnd();
        }}
        ref={list}
        shift={!follow}
        style={{ height: "65vh" }}
      >
        {children}
      </VList>
    </Box>
  );
}
