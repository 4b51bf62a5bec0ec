// The lines of a log on the screen: at the end while it is followed, anywhere else once somebody moves.
import { Box, Flex } from "@chakra-ui/react";
import type { ReactElement, ReactNode, RefObject } from "react";
import { VList, type VListHandle } from "virtua";

import { LineText } from "./LineText.tsx";

export const ROW_PIXELS = 20;
const UPWARDS = new Set(["ArrowUp", "PageUp", "Home"]);
const STEPS: Record<string, (page: number) => number> = {
  ArrowDown: () => 2 * ROW_PIXELS,
  ArrowUp: () => -2 * ROW_PIXELS,
  End: () => Infinity,
  Home: () => -Infinity,
  PageDown: (page) => page,
  PageUp: (page) => -page,
};

export function LogList({
  children,
  follow,
  fresh,
  heading,
  list,
  onEnd,
  onLeave,
  onStart,
}: {
  children: ReactElement[];
  follow: boolean;
  /** Another number: other lines, not some more of the same. */
  fresh: number;
  heading: ReactNode;
  list: RefObject<VListHandle | null>;
  onEnd: () => void;
  /** Somebody looks at something else than the end. */
  onLeave: () => void;
  onStart: () => void;
}) {
  return (
    <Box bg="bg.subtle" borderRadius="md" borderWidth="1px" fontFamily="mono" fontSize="xs">
      <Flex borderBottomWidth="1px" color="fg.muted" columnGap={3} flexWrap="wrap" px={2} py={1}>
        {heading}
      </Flex>
      <Box
        h={{ base: "75dvh", md: "65dvh" }}
        onKeyDown={(event) => {
          if (UPWARDS.has(event.key)) onLeave();
          const step = STEPS[event.key];
          const shown = list.current;
          if (!step || !shown) return;
          // the list inside is what scrolls, and the focus is around it: it outlives the list
          event.preventDefault();
          const to = shown.scrollOffset + step(shown.viewportSize);
          shown.scrollTo(Math.min(Math.max(0, to), shown.scrollSize));
        }}
        onPointerDown={(event) => event.target === event.currentTarget.firstChild && onLeave()} // its scroll bar
        onTouchMove={onLeave}
        onWheel={(event) => event.deltaY < 0 && onLeave()}
        role="log"
        tabIndex={0}
      >
        <VList
          itemSize={ROW_PIXELS}
          key={fresh}
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
          style={{ height: "100%" }}
        >
          {children}
        </VList>
      </Box>
    </Box>
  );
}

type ResponsiveWidth = string | { base: string; sm: string };

/** A line, and before it a button that says where it is. */
export function LogRow({
  action,
  color,
  gutter,
  marked,
  onGutter,
  text,
  title,
  width,
  wrap,
}: {
  /** What the button does. */
  action: string;
  color: string | undefined;
  gutter: ReactNode;
  marked: boolean;
  onGutter: () => void;
  text: string;
  title?: string;
  /** Of the button, in characters. */
  width: ResponsiveWidth;
  wrap: boolean;
}) {
  return (
    <Flex
      _hover={{ bg: "bg.emphasized" }}
      bg={marked ? "bg.warning" : undefined}
      color={color}
      minH={`${ROW_PIXELS}px`}
      minW="100%"
      px={2}
      w={wrap ? undefined : "max-content"}
    >
      <Box
        alignSelf="flex-start"
        aria-label={action}
        as="button"
        color="fg.muted"
        boxSizing="content-box"
        flex="0 0 auto"
        fontVariantNumeric="tabular-nums"
        onClick={onGutter}
        pr={3}
        textAlign="right"
        title={title}
        userSelect="none"
        w={width}
      >
        {gutter}
      </Box>
      <LineText text={text} wrap={wrap} />
    </Flex>
  );
}
