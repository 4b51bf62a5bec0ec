// One metric of all ranks as a picture: a row per rank, a column per stretch of x.
import { Box, Flex, Text } from "@chakra-ui/react";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";

import { get, type HeatMapAnswer } from "./api.ts";
import { cellAfter, colourAround, colourAt, extent, reach, type Colour } from "./heat.ts";
import { Choice, Loading, Problem } from "./parts.tsx";
import { DARK, usePalette } from "./palette.ts";
import { valueText } from "./words.ts";

const LEAST_HEIGHT = 96;
const ROW_HEIGHT = 12;
const MOST_HEIGHT = 384;
const SHADES = { distance: "Distance from the median", value: "Value" };

const LEGEND = [0, 1, 2, 3, 4, 5, 6, 7, 8].map((each) => each / 8);

type Shade = keyof typeof SHADES;

export function HeatMap({
  axis,
  path,
  place,
  query,
  refetchInterval,
}: {
  axis: string;
  /** Of the series. */
  path: string;
  place: (x: number) => string;
  query: Parameters<typeof get>[1];
  refetchInterval: number | false;
}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [cell, setCell] = useState<[number, number] | null>(null);
  const [shade, setShade] = useState<Shade>("distance");
  const theme = usePalette() === DARK ? "dark" : "light";
  const { data, error } = useQuery({
    queryKey: ["heat", path, query],
    queryFn: () => get<HeatMapAnswer>(path.replace(/series$/, "heat"), query),
    // what was drawn along another axis is no picture under the words of this one
    placeholderData: (before, last) => ((last?.queryKey[2] as typeof query)?.axis === query?.axis ? before : undefined),
    refetchInterval,
  });
  const { shown, range } = useMemo(() => {
    const values = data?.values ?? [];
    if (shade === "value") return { shown: values, range: extent(values) };
    const found = data?.distances ?? [];
    return { shown: found, range: reach(found) };
  }, [data, shade]);
  const colour = (value: number): Colour => (shade === "value" ? colourAt(value, range) : colourAround(value, range, theme));
  useEffect(() => {
    if (!data || !canvas.current || data.x.length === 0) return;
    const context = canvas.current.getContext("2d")!;
    const picture = context.createImageData(data.x.length, data.rows.length);
    shown.forEach((row, line) =>
      row.forEach((value, column) => {
        if (value !== null) picture.data.set([...colour(value), 255], 4 * (line * data.x.length + column));
      }),
    );
    context.putImageData(picture, 0, 0);
  }, [data, shown, theme]);
  if (error && !data) return <Problem error={error} />;
  if (!data) return <Loading />;
  if (data.x.length === 0) return <Text color="fg.muted">Nothing here has a value on this axis.</Text>;
  const [rows, columns] = [data.rows.length, data.x.length];
  const at = cell && ([Math.min(cell[0], rows - 1), Math.min(cell[1], columns - 1)] as const);
  const metric = String(query?.name);
  const [least, greatest] = range.map((each) => (shade === "distance" && each > 0 ? `+${valueText(metric, each)}` : valueText(metric, each)));
  const told = () => {
    if (!at) return `${rows} rows, ${data.rows[0]} at the top; of each cell the value farthest from the median`;
    const [value, distance] = [data.values[at[0]]?.[at[1]] ?? null, shade === "distance" ? (shown[at[0]]?.[at[1]] ?? null) : null];
    const beside = distance === null ? "" : `, ${distance < 0 ? "" : "+"}${valueText(metric, distance)} from the median`;
    return `${data.rows[at[0]]}, ${axis.toLowerCase()} ${place(data.x[at[1]]!)}: ${value === null ? "nothing" : valueText(metric, value)}${beside}`;
  };
  const point = (event: React.PointerEvent) => {
    const box = event.currentTarget.getBoundingClientRect();
    const part = (offset: number, size: number, count: number) => Math.min(count - 1, Math.max(0, Math.floor((offset / size) * count)));
    setCell([part(event.clientY - box.top, box.height, rows), part(event.clientX - box.left, box.width, columns)]);
  };
  return (
    <Box mt={2}>
      <Box position="relative">
        <canvas
          aria-keyshortcuts="ArrowUp ArrowDown ArrowLeft ArrowRight Escape"
          aria-label={`${metric}: ${rows} rows of ranks, ${axis.toLowerCase()} from ${place(data.x[0]!)} to ${place(data.x.at(-1)!)}, ${SHADES[shade].toLowerCase()} from ${least} to ${greatest}`}
          height={rows}
          onFocus={() => setCell(cell ?? [0, columns - 1])}
          onKeyDown={(event) => {
            const next = event.key === "Escape" ? null : cellAfter(event.key, at ?? [0, 0], rows, columns);
            if (!next && event.key !== "Escape") return;
            event.preventDefault();
            setCell(next);
          }}
          onPointerDown={point}
          onPointerLeave={(event) => event.pointerType === "mouse" && setCell(null)}
          onPointerMove={point}
          ref={canvas}
          role="img"
          style={{
            display: "block",
            height: Math.min(MOST_HEIGHT, Math.max(LEAST_HEIGHT, rows * ROW_HEIGHT)),
            imageRendering: "pixelated",
            touchAction: "pan-y",
            width: "100%",
          }}
          tabIndex={0}
          width={columns}
        />
        {at && (
          <Box
            aria-hidden
            borderColor="fg"
            borderWidth="2px"
            boxShadow="0 0 0 1px var(--chakra-colors-bg)"
            h={`max(${100 / rows}%, 8px)`}
            left={`min(${(100 * at[1]) / columns}%, 100% - 8px)`}
            pointerEvents="none"
            position="absolute"
            top={`min(${(100 * at[0]) / rows}%, 100% - 8px)`}
            w={`max(${100 / columns}%, 8px)`}
          />
        )}
      </Box>
      <Flex align="center" flexWrap="wrap" fontSize="xs" gap={2} mt={1}>
        <Choice label="Colours" onChange={(value) => setShade(value as Shade)} options={Object.entries(SHADES)} value={shade} w="15rem" />
        <Text>{least}</Text>
        <Box
          aria-hidden
          bg={`linear-gradient(to right, ${LEGEND.map((share) => `rgb(${colour(range[0] + share * (range[1] - range[0])).join(" ")})`).join(", ")})`}
          borderRadius="sm"
          h="8px"
          w="96px"
        />
        <Text>{greatest}</Text>
        <Text aria-live="polite" color="fg.muted" overflowWrap="anywhere">
          {told()}
        </Text>
      </Flex>
    </Box>
  );
}
