// A network drawn: layers as boxes, shapes on the arrows, the training net and the test net in one picture.
import { Badge, Box, Flex, Text, VisuallyHidden } from "@chakra-ui/react";
import { useEffect, useMemo, useRef, useState, type KeyboardEvent } from "react";

import { neighbour, networkGraph, ofNet, type LayerBox } from "./networkGraph.ts";
import type { PlacedNetwork } from "./networkLayout.ts";
import { Choice, Problem } from "./parts.tsx";
import type { NetworkCheckAnswer } from "./schema.ts";
import { quantity } from "./words.ts";

/** Layers that are drawn at most, repeated blocks once: more are found in the table sooner. */
const MOST_BOXES = 400;
const VIEWS = [
  ["both", "Both nets"],
  ["train", "Training net"],
  ["test", "Test net"],
] as const;
type View = (typeof VIEWS)[number][0];
type Placed = (typeof import("./networkLayout.ts"))["placed"];

const netWords = ({ nets }: { nets: readonly string[] }) => (nets.length === 2 ? "" : nets[0] === "train" ? "training net" : nets[0] === "test" ? "test net" : "no net");

export function NetworkGraph({ answer, document, name }: { answer: NetworkCheckAnswer | null; document: unknown; name: string }) {
  const [place, setPlace] = useState<{ placed: Placed } | null>(null);
  const [size, setSize] = useState({ width: 168, height: 46 });
  const [error, setError] = useState<Error | null>(null);
  const [view, setView] = useState<View>("both");
  const [chosen, setChosen] = useState<string | null>(null);
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => {
    let gone = false;
    import("./networkLayout.ts").then((loaded) => {
      if (gone) return;
      setSize(loaded.LAYER_BOX);
      setPlace({ placed: loaded.placed });
    }, setError);
    return () => {
      gone = true;
    };
  }, []);
  const whole = useMemo(() => networkGraph(document, answer), [answer, document]);
  const { arrows, boxes } = useMemo(() => ofNet(whole, view), [view, whole]);
  const drawn = useMemo(() => (place && boxes.length <= MOST_BOXES ? place.placed(boxes, arrows) : null), [arrows, boxes, place]);
  // where it is narrow, the first layer may stand far to the right
  useEffect(() => {
    const first = boxes[0] && drawn?.boxes.get(boxes[0].field);
    if (first && list.current) list.current.scrollLeft = first.x - list.current.clientWidth / 2;
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [drawn?.width, view]);
  if (error) return <Problem error={new Error("The graph could not be loaded; the table has the same layers.")} />;
  if (whole.boxes.length === 0) return null;
  if (boxes.length > MOST_BOXES)
    return (
      <Text color="fg.muted" fontSize="xs" mb={2}>
        {quantity(boxes.length)} layers are too many to draw; repeat blocks, or look into the table.
      </Text>
    );
  const current = boxes.find(({ field }) => field === chosen) ?? null;
  const first = current?.field ?? boxes[0]?.field;
  const move = (event: KeyboardEvent, field: string) => {
    const next = event.key === "Home" ? boxes[0]?.field : event.key === "End" ? boxes[boxes.length - 1]?.field : neighbour(arrows, field, event.key);
    if (!/^(Arrow|Home|End)/.test(event.key)) return;
    event.preventDefault(); // it would scroll
    if (next === null || next === undefined) return;
    setChosen(next);
    list.current?.querySelector<HTMLElement>(`[data-layer="${CSS.escape(next)}"]`)?.focus();
  };
  return (
    <Box mb={3}>
      <Flex align="center" flexWrap="wrap" gap={2} justify="space-between" mb={1}>
        <Text color="fg.muted" fontSize="xs">
          {quantity(boxes.length)} layers. Arrow keys go along the arrows.
        </Text>
        <Choice label="Which net is drawn" onChange={(value) => setView(value as View)} options={VIEWS} value={view} w="9rem" />
      </Flex>
      <Box aria-label={`Graph of ${name}`} bg="bg.subtle" borderRadius="md" borderWidth="1px" h={drawn ? `${Math.min(drawn.height + 20, 420)}px` : "8rem"} overflow="auto" ref={list} role="group">
        {drawn && (
          <Box h={`${drawn.height}px`} mx="auto" position="relative" w={`${drawn.width}px`}>
            <Arrows drawn={drawn} />
            {boxes.map((each) => (
              <LayerButton
                box={each}
                isChosen={each === current}
                key={each.field}
                onChoose={() => setChosen(each.field)}
                onMove={(event) => move(event, each.field)}
                place={{ ...drawn.boxes.get(each.field)!, ...size }}
                tabIndex={each.field === first ? 0 : -1}
              />
            ))}
          </Box>
        )}
      </Box>
      <Box aria-live="polite" fontSize="xs" minH="1.4rem" mt={1}>
        {current && <Words box={current} />}
      </Box>
    </Box>
  );
}

function Arrows({ drawn }: { drawn: PlacedNetwork }) {
  return (
    <>
      <Text aria-hidden as="span" color="fg.muted" inset={0} position="absolute">
        <svg height={drawn.height} style={{ overflow: "visible" }} width={drawn.width}>
          <defs>
            <marker id="layer-arrow" markerHeight="7" markerWidth="7" orient="auto" refX="6" refY="3.5">
              <path d="M0 0L7 3.5L0 7z" fill="currentColor" />
            </marker>
          </defs>
          {drawn.arrows.map(({ arrow, points }) => (
            <path
              d={`M${points.map(({ x, y }) => `${x} ${y}`).join("L")}`}
              fill="none"
              key={`${arrow.from} ${arrow.to}`}
              markerEnd="url(#layer-arrow)"
              stroke="currentColor"
              strokeDasharray={arrow.nets.length === 2 ? undefined : "5 3"}
              strokeLinejoin="round"
              strokeWidth={1.4}
            />
          ))}
        </svg>
      </Text>
      {drawn.arrows.map(
        ({ arrow, label }) =>
          arrow.shape && (
            <Text
              aria-hidden
              bg="bg.subtle"
              color="fg.muted"
              fontSize="2xs"
              fontVariantNumeric="tabular-nums"
              key={`${arrow.from} ${arrow.to}`}
              left={`${label.x}px`}
              lineHeight="14px"
              position="absolute"
              px={0.5}
              top={`${label.y}px`}
              transform="translate(-50%, -50%)"
              whiteSpace="nowrap"
            >
              {arrow.shape}
            </Text>
          ),
      )}
    </>
  );
}

const COLOURS: Readonly<Record<string, string>> = { input: "blue", loss: "orange", metric: "green" };

function LayerButton({
  box,
  isChosen,
  onChoose,
  onMove,
  place,
  tabIndex,
}: {
  box: LayerBox;
  isChosen: boolean;
  onChoose: () => void;
  onMove: (event: KeyboardEvent) => void;
  place: { x: number; y: number; width: number; height: number };
  tabIndex: number;
}) {
  const only = netWords(box);
  const wrong = box.mistakes.length > 0;
  const colour = wrong ? "red" : COLOURS[box.kind];
  // what is seen comes first in what is heard
  const heard = [only && `only in the ${only}`, box.gives && `gives ${box.gives}`, wrong && `wrong: ${box.mistakes.join("; ")}`].filter(Boolean).join(", ");
  return (
    <Box
      _focusVisible={{ outline: "2px solid", outlineColor: "blue.solid", outlineOffset: "1px" }}
      aria-pressed={isChosen}
      as="button"
      bg={colour ? `${colour}.subtle` : "bg.panel"}
      borderColor={wrong ? "red.solid" : isChosen ? "blue.solid" : "border.emphasized"}
      borderRadius="md"
      borderStyle={only ? "dashed" : "solid"}
      borderWidth={wrong || isChosen ? "2px" : "1px"}
      color={colour ? `${colour}.fg` : "fg"}
      cursor="pointer"
      data-layer={box.field}
      data-wrong={wrong || undefined}
      h={`${place.height}px`}
      left={`${place.x - place.width / 2}px`}
      onClick={onChoose}
      onFocus={onChoose}
      onKeyDown={onMove}
      overflow="hidden"
      position="absolute"
      px={2}
      tabIndex={tabIndex}
      textAlign="start"
      top={`${place.y - place.height / 2}px`}
      w={`${place.width}px`}
      {...{ type: "button" }}
    >
      <Flex align="center" gap={1}>
        <Text flex={1} fontSize="xs" fontWeight="medium" truncate>
          {box.name}
          {box.times > 1 && ` × ${box.times}`}
        </Text>
        {only && (
          <Badge colorPalette="gray" flexShrink={0} size="xs">
            {only.replace(" net", "")}
          </Badge>
        )}
      </Flex>
      <Text fontSize="2xs" truncate>
        {box.type || "without a type"}
      </Text>
      {heard && <VisuallyHidden>{heard}</VisuallyHidden>}
    </Box>
  );
}

/** What is to say of one layer; its mistakes first. */
function Words({ box }: { box: LayerBox }) {
  const params = box.params.map(([name, value]) => `${name}=${typeof value === "object" ? JSON.stringify(value) : String(value)}`).join(", ");
  return (
    <>
      {box.mistakes.map((each) => (
        <Text color="red.fg" key={each} overflowWrap="anywhere">
          {each}
        </Text>
      ))}
      <Text overflowWrap="anywhere">
        {box.name}: {box.type}
        {params && `(${params})`}
        {box.gives && `, gives ${box.gives}`}
        {box.parameters ? `, ${quantity(box.parameters)} parameters` : ""}
        {box.times > 1 && `, ${box.times} times`}
        {box.nets.length < 2 && `, only in the ${netWords(box)}`}
      </Text>
    </>
  );
}
