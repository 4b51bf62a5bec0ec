// The document as it ran, and who gave each value that it need not hold.
import { Badge, Box, Button, Code, Flex, Text } from "@chakra-ui/react";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useSearchParams } from "react-router-dom";

import { useRerunOffer } from "./Again.tsx";
import { address, get, ofTraining, type ConfigurationAnswer, type Summary } from "./api.ts";
import { EditRun } from "./EditRun.tsx";
import { Choice, Loading, Problem, Rows, Section } from "./parts.tsx";
import { newTrainingPage } from "./runPage.ts";
import { SavePreset } from "./SavePreset.tsx";

const COLOURS: Record<string, string> = { user: "green", framework: "purple", "airflow-training": "gray" };

export function Configuration({ summary }: { summary: Summary }) {
  const { data, error } = useQuery({
    queryKey: ["configuration", summary.uid],
    queryFn: () => get<ConfigurationAnswer>(ofTraining(summary.dag, summary.uid, "/configuration")),
  });
  const offer = useRerunOffer(summary);
  const [query, setQuery] = useSearchParams();
  const edited = query.get("edit");
  const [saving, setSaving] = useState(false);
  const edit = (kind: string) =>
    setQuery((before) => {
      const next = new URLSearchParams(before);
      if (kind) next.set("edit", kind);
      else next.delete("edit");
      return next;
    });
  if (error && !data) return <Problem error={error} />;
  if (!data) return <Loading />;
  const { single } = data;
  if (offer?.possible && (edited === "document" || (edited === "single" && single.document)))
    return (
      <EditRun
        draft={edited === "single" ? single.document : data.draft}
        key={edited}
        kind={edited}
        onClose={() => edit("")}
        summary={summary}
      />
    );
  return (
    <>
      <Flex align="center" flexWrap="wrap" gap={2} justify="flex-end" mb={2}>
        {offer?.possible && (
          <>
            <Button onClick={() => edit("document")} size="xs" variant="outline">
              Edit and run
            </Button>
            <Button disabled={!single.document} onClick={() => edit("single")} size="xs" variant="outline">
              Run on one machine
            </Button>
            <Button asChild size="xs" variant="outline">
              <Link to={newTrainingPage({ run: `${summary.dag}/${summary.uid}` })}>New training from this</Link>
            </Button>
            <Button aria-expanded={saving} onClick={() => setSaving(!saving)} size="xs" variant="outline">
              Save as preset
            </Button>
          </>
        )}
        {data.has_package && (
          <Button asChild size="xs" title="The network, the trainer and a script, which need no Airflow: unpack, and read README.md" variant="outline">
            <a download={`${summary.job}.zip`} href={address(ofTraining(summary.dag, summary.uid, "/package"))}>
              Download for one machine
            </a>
          </Button>
        )}
        <Button onClick={() => void navigator.clipboard?.writeText(data.document)} size="xs" variant="outline">
          Copy
        </Button>
        <Button asChild size="xs" variant="outline">
          <a download={`${summary.job}.yaml`} href={address(ofTraining(summary.dag, summary.uid, "/document"))}>
            Download
          </a>
        </Button>
      </Flex>
      {offer && (!offer.possible || single.why) && (
        <Text color="fg.muted" fontSize="sm" mb={2} textAlign="end">
          {offer.possible ? single.why : `No other run begins here: ${offer.why}`}
        </Text>
      )}
      {saving && <SavePreset document={() => data.draft} name={summary.job.slice(0, 63)} onClose={() => setSaving(false)} />}
      <Box as="pre" bg="bg.subtle" borderRadius="md" borderWidth="1px" fontSize="sm" maxH="50vh" mb={6} overflow="auto" p={3} tabIndex={0}>
        {data.document}
      </Box>
      <Values configuration={data} />
    </>
  );
}

function Values({ configuration }: { configuration: ConfigurationAnswer }) {
  const [shown, setShown] = useState("others");
  const { defaults, problem } = configuration;
  const rows = defaults.filter((each) => shown === "all" || each.from !== "user");
  return (
    <Section
      aside={
        defaults.length > 0 && (
          <Choice
            label="Values shown"
            onChange={setShown}
            options={[
              ["others", "Not written by the user"],
              ["all", "All"],
            ]}
            value={shown}
            w="14rem"
          />
        )
      }
      title="Values, and where they come from"
    >
      {problem && <Text color="fg.muted">{problem}</Text>}
      {rows.length > 0 && (
        <Rows
          head={["Field", "Value", "From"]}
          rows={rows.map((each) => [
            each.field,
            <Code key="value" px={0} variant="plain" whiteSpace="pre-wrap" wordBreak="break-word">
              {each.value}
            </Code>,
            <Badge colorPalette={COLOURS[each.from] ?? "orange"} key="from" variant="subtle" whiteSpace="nowrap">
              {each.from}
            </Badge>,
          ])}
        />
      )}
    </Section>
  );
}
