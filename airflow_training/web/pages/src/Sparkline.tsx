// A metric as a line that fits into a row of a table.
import { Text } from "@chakra-ui/react";

import { sparkline } from "./curves.ts";
import { quantity } from "./words.ts";

const WIDTH = 96;
const HEIGHT = 20;

export function Sparkline({ name, values }: { name: string; values: readonly (number | null)[] | undefined }) {
  const told = (values ?? []).filter((each) => each !== null);
  if (!values || told.length === 0) return null;
  const text = `${name} from ${quantity(told[0])} to ${quantity(told.at(-1))}`;
  return (
    <Text aria-label={text} as="span" color="fg.info" display="block" role="img" title={text} width={`${WIDTH}px`}>
      <svg aria-hidden="true" height={HEIGHT} style={{ overflow: "visible" }} viewBox={`0 0 ${WIDTH} ${HEIGHT}`} width={WIDTH}>
        <path d={sparkline(values, WIDTH, HEIGHT)} fill="none" stroke="currentColor" strokeLinecap="round" strokeWidth={1.5} />
      </svg>
    </Text>
  );
}
