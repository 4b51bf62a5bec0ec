// One metric of all ranks as a picture: a row per rank, a column per stretch of x.
import { Box, Flex, Text } from "@chakra-ui/react";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";

import { get, type HeatMapAnswer } from "./api.ts";
import { colourAt, extent } from "./heat.ts";
import { Loading, Problem } from "./parts.tsx";
import { quantity } from "./words.ts";

const LEAST_HEIGHT = 96;
const ROW_HEIGHT = 12;
const MOST_HEIGHT = 384;

export function HeatMap({
  axis,
  path,
  place,
  query,
}: {
  axis: string;
  /** Of the series. */
  path: string;
  place: (x: number) => string;
  query: Parameters<typeof get>[1];
}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [cell, setCell] = useState<[number, number] | null>(null);
  const { data, error } = useQuery({
    queryKey: ["heat", path, query],
    queryFn: () => get<HeatMapAnswer>(path.replace(/series$/, "heat"), query),
    placeholderData: (before) => before,
  });
  const range = data && extent(data.values);
  useEffect(() => {
    if (!data || !range || !canvas.current || data.x.length === 0) return;
    const context = canvas.current.getContext("2d")!;
    const picture = context.createImageData(data.x.length, data.rows.length);
    data.values.forEach((row, line) =>
      row.forEach((value, column) => {
        if (value !== null) picture.data.set([...colourAt(value, range), 255], 4 * (line * data.x.length + column));
      }),
    );
    context.putImageData(picture, 0, 0);
  }, [data, range]);
  if (error && !data) return <Problem error={error} />;
  if (!data || !range) return <Loading />;
  if (data.x.length === 0) return <Text color="fg.muted">Nothing here has a value on this axis.</Text>;
  const value = cell && data.values[cell[0]]?.[cell[1]];
  return (
    <Box mt={2}>
      <canvas
        aria-label={`${query?.name}: ${data.rows.length} rows of ranks, ${axis.toLowerCase()} from ${place(data.x[0]!)} to ${place(data.x.at(-1)!)}, values from ${quantity(range[0])} to ${quantity(range[1])}`}
        height={data.rows.length}
        onMouseLeave={() => setCell(null)}
        onMouseMove={(event) => {
          const box = event.currentTarget.getBoundingClientRect();
          const part = (at: number, size: number, count: number) => Math.min(count - 1, Math.max(0, Math.floor((at / size) * count)));
          setCell([part(event.clientY - box.top, box.height, data.rows.length), part(event.clientX - box.left, box.width, data.x.length)]);
        }}
        ref={canvas}
        role="img"
        style={{
          height: Math.min(MOST_HEIGHT, Math.max(LEAST_HEIGHT, data.rows.length * ROW_HEIGHT)),
          imageRendering: "pixelated",
          width: "100%",
        }}
        width={data.x.length}
      />
      <Flex align="center" fontSize="xs" gap={2} mt={1}>
        <Text>{quantity(range[0])}</Text>
        <Box
          aria-hidden
          bg={`linear-gradient(to right, ${[0, 0.25, 0.5, 0.75, 1].map((share) => `rgb(${colourAt(share, [0, 1]).join(" ")})`).join(", ")})`}
          borderRadius="sm"
          h="8px"
          w="96px"
        />
        <Text>{quantity(range[1])}</Text>
        <Text color="fg.muted" ml={3}>
          {cell
            ? `${data.rows[cell[0]]}, ${axis.toLowerCase()} ${place(data.x[cell[1]]!)}: ${value === null || value === undefined ? "nothing" : quantity(value)}`
            : `${data.rows.length} rows, ${data.rows[0]} at the top; each cell shows its value farthest from the median`}
        </Text>
      </Flex>
    </Box>
  );
}
