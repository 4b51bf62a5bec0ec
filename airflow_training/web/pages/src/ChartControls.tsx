// What is chosen for all charts of a page: the axis, how much they are smoothed, and the scale of their values.
import { Checkbox, Flex } from "@chakra-ui/react";
import { useState, type ReactNode } from "react";

import type { Axis } from "./curves.ts";
import { Choice } from "./parts.tsx";

export const AXES: Record<Axis, string> = { step: "Step", samples: "Samples", minutes: "Minutes since the start", time: "Time of day" };
const SMOOTHING = [0, 0.6, 0.9, 0.97, 0.99];

export interface Chosen {
  axis: Axis;
  /** Of what was before, in a smoothed line; 0: it is not smoothed. */
  weight: number;
  logarithmic: boolean;
}

export function useChosen() {
  return useState<Chosen>({ axis: "step", weight: 0, logarithmic: false });
}

/** `samples`: there is something that can be drawn along them. */
export function ChartControls({
  children,
  chosen,
  onChoose,
  samples,
}: {
  children?: ReactNode;
  chosen: Chosen;
  onChoose: (chosen: Chosen) => void;
  samples: boolean;
}) {
  return (
    <Flex align="center" flexWrap="wrap" gap={4} mb={4}>
      <Choice
        label="Axis"
        onChange={(axis) => onChoose({ ...chosen, axis: axis as Axis })}
        options={Object.entries(AXES).filter(([each]) => samples || each !== "samples")}
        value={chosen.axis}
        w="14rem"
      />
      <Choice
        label="Smoothing"
        onChange={(weight) => onChoose({ ...chosen, weight: Number(weight) })}
        options={SMOOTHING.map((each) => [String(each), each === 0 ? "Not smoothed" : `Smoothed ${each}`])}
        value={String(chosen.weight)}
        w="10rem"
      />
      <Check checked={chosen.logarithmic} label="Log scale" onChange={(logarithmic) => onChoose({ ...chosen, logarithmic })} />
      {children}
    </Flex>
  );
}

export function Check({ checked, label, onChange }: { checked: boolean; label: string; onChange: (checked: boolean) => void }) {
  return (
    <Checkbox.Root checked={checked} onCheckedChange={(event) => onChange(event.checked === true)} size="sm">
      <Checkbox.HiddenInput />
      <Checkbox.Control />
      <Checkbox.Label>{label}</Checkbox.Label>
    </Checkbox.Root>
  );
}
