// The logs of a run: whose is looked at, all that is written or only the serious lines, and a search over all of them.
import { Box, Button, Checkbox, Flex, Input, Text } from "@chakra-ui/react";
import { useState } from "react";
import { useSearchParams } from "react-router-dom";

import { address, ofTraining, type Detail } from "./api.ts";
import type { Place } from "./lines.ts";
import { Log, type Source } from "./Log.tsx";
import { chosenLog, nameOf, togetherOptions } from "./logChoice.ts";
import { MergedLog } from "./MergedLog.tsx";
import { Choice } from "./parts.tsx";
import { Search } from "./Search.tsx";

const SEVERITIES = [
  ["info", "All lines"],
  ["warning", "Warnings and errors"],
  ["error", "Errors"],
] as const;
const MOST_OPTIONS = 100;

/** What an address says with a number that counts something; null for none. */
function count(text: string | null): number | null {
  return text !== null && /^\d+$/.test(text) ? Number(text) : null;
}

/** `role`: the page is about this role, whose logs come first. */
export function Logs({ detail, role }: { detail: Detail; role?: string }) {
  const [query, setQuery] = useSearchParams();
  const [jumps, setJumps] = useState(0);
  const [more, setMore] = useState(false);
  const [wrap, setWrap] = useState(true);
  const severity = query.get("severity") ?? "info";
  const { instances } = detail.status;
  const ordered = role ? [...instances.filter((each) => each.role === role), ...instances.filter((each) => each.role !== role)] : instances;
  const askedAttempt = count(query.get("attempt"));
  const chosen = chosenLog(query.get("instance"), askedAttempt, ordered, role);
  if (!chosen) return <Text color="fg.muted">No instance was created yet, so nothing was written.</Text>;

  const change = (before: URLSearchParams, values: Record<string, string | number | null>) => {
    const next = new URLSearchParams(before);
    next.delete("offset");
    next.delete("line");
    for (const [name, value] of Object.entries(values)) {
      if (value === null) next.delete(name);
      else next.set(name, String(value));
    }
    next.set("tab", "logs");
    return next;
  };
  const set = (values: Record<string, string | number | null>) => setQuery((before) => change(before, values), { replace: true });
  const path = ofTraining(detail.summary.dag, detail.summary.uid, "/log");
  const placed = (source: Source, { offset, line }: Place) => ({
    instance: nameOf(source),
    attempt: source.attempt,
    offset,
    line,
    severity: null,
  });
  const show = (place: Source & { offset: number; line?: number | null }) => {
    set(placed(place, { offset: place.offset, line: place.line ?? null }));
    setJumps((before) => before + 1);
  };

  const together = "together" in chosen ? chosen.together : null;
  const one = "one" in chosen ? chosen.one : null;
  const known = "one" in chosen && chosen.known;
  const source = one && { ...one, attempt: Math.min(askedAttempt ?? one.attempt, one.attempt) };
  const alone = source && { role: source.role, index: source.index, attempt: source.attempt };
  const offset = count(query.get("offset"));
  const options = [
    ...togetherOptions(ordered),
    ...(alone && !known ? [[nameOf(alone), nameOf(alone)] as const] : []),
    ...ordered.map((each) => [nameOf(each), nameOf(each)] as const),
  ];
  const value = alone ? nameOf(alone) : (query.get("instance") ?? "all");
  const tools = { base: more ? "flex" : "none", md: "flex" };
  return (
    <Box>
      <Flex align="center" flexWrap="wrap" gap={3} mb={3}>
        <InstanceChoice onChange={(instance) => set({ instance, attempt: null })} options={options} value={value} />
        <Button aria-expanded={more} display={{ md: "none" }} onClick={() => setMore(!more)} size="sm" variant="outline">
          {more ? "Less" : "More"}
        </Button>
        <Flex align="center" display={tools} flexWrap="wrap" gap={3}>
          {one && alone && severity === "info" && (
            <>
              <Choice
                label="Attempt"
                onChange={(attempt) => set({ attempt })}
                options={Array.from({ length: one.attempt + 1 }, (_, number) => [String(number), `attempt ${number}`])}
                value={String(alone.attempt)}
                w="9rem"
              />
              <Button asChild size="sm" variant="outline">
                <a download href={address(`${path}/download`, alone)}>
                  Download
                </a>
              </Button>
            </>
          )}
          <Choice
            label="Severity"
            onChange={(value) => set({ severity: value === "info" ? null : value })}
            options={SEVERITIES}
            value={severity}
            w="12rem"
          />
          <Checkbox.Root checked={wrap} onCheckedChange={(event) => setWrap(event.checked === true)} size="sm">
            <Checkbox.HiddenInput />
            <Checkbox.Control />
            <Checkbox.Label>Wrap</Checkbox.Label>
          </Checkbox.Root>
        </Flex>
      </Flex>
      <Box display={{ base: more ? "block" : "none", md: "block" }}>
        <Search onHit={show} path={path} role={role} />
      </Box>
      {alone && severity === "info" ? (
        <Log
          held={detail.held}
          key={`${nameOf(alone)}-${alone.attempt}-${jumps}`}
          linked={offset === null ? null : { offset, line: count(query.get("line")) }}
          onPlace={(place) => {
            const values = placed(alone, place);
            set(values);
            const url = new URL(location.href);
            url.search = String(change(url.searchParams, values));
            return url.href;
          }}
          path={path}
          source={alone}
          tools={tools}
          wrap={wrap}
        />
      ) : (
        <MergedLog
          key={`${value} ${severity}`}
          onLine={show}
          path={path}
          severity={severity}
          source={alone ? { role: alone.role, index: alone.index } : together!}
          tools={tools}
          wrap={wrap}
        />
      )}
    </Box>
  );
}

/** A list, or where it would be endless a field to type in. `options`: value and text of each. */
function InstanceChoice({
  onChange,
  options,
  value,
}: {
  onChange: (value: string) => void;
  options: readonly (readonly [string, string])[];
  value: string;
}) {
  const [typed, setTyped] = useState<string | null>(null);
  if (options.length <= MOST_OPTIONS) return <Choice label="Instance" onChange={onChange} options={options} value={value} w="12rem" />;
  const shown = options.find(([each]) => each === value)?.[1] ?? value;
  const type = (text: string) => {
    const found = options.find(([, each]) => each === text);
    setTyped(found ? null : text);
    if (found) onChange(found[0]);
  };
  return (
    <>
      <Input
        aria-label="Instance"
        list="instances-with-logs"
        onBlur={() => setTyped(null)}
        onChange={(event) => type(event.currentTarget.value)}
        onFocus={(event) => {
          setTyped("");
          event.currentTarget.placeholder = shown;
        }}
        placeholder={shown}
        size="sm"
        value={typed ?? shown}
        w="14rem"
      />
      <datalist id="instances-with-logs">
        {options.map(([each, text]) => (
          <option key={each} value={text} />
        ))}
      </datalist>
    </>
  );
}
