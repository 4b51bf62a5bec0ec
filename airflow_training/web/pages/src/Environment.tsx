// Where a training ran and with what, alone or against another run.
import { Code, Flex, Input, NativeSelect, Text } from "@chakra-ui/react";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useSearchParams } from "react-router-dom";

import { get, ofTraining, type Detail, type EnvironmentAnswer, type EnvironmentDifference, type SummaryPage } from "./api.ts";
import { Fact, Loading, Problem, Rows, Section } from "./parts.tsx";
import { bytes, frameworksOf, moment } from "./words.ts";

type Group = EnvironmentAnswer["groups"][number];
type Change = EnvironmentDifference["packages"][number];

const NAMES_SHOWN = 8;
const UNTOLD = "not told";

export function Environment({ detail }: { detail: Detail }) {
  const { dag, uid } = detail.summary;
  const { data, error } = useQuery({
    queryKey: ["environment", uid],
    queryFn: () => get<EnvironmentAnswer>(ofTraining(dag, uid, "/environment")),
    refetchInterval: detail.held ? 10_000 : false,
  });
  if (error && !data) return <Problem error={error} />;
  if (!data) return <Loading />;
  return (
    <>
      {data.groups.length === 0 && <Text color="fg.muted">No instance was created yet.</Text>}
      {data.groups.map((group) => (
        <Section key={group.instances[0]} title={data.groups.length === 1 ? "All instances" : namesOf(group.instances)}>
          <OfGroup chosen={data.environment} framework={data.framework} group={group} />
        </Section>
      ))}
      {data.nodes.length > 0 && (
        <Section title="Nodes">
          <Rows head={["Node", "Instances"]} rows={data.nodes.map((each) => [each.node, namesOf(each.instances)])} />
        </Section>
      )}
      <Difference detail={detail} />
      {data.groups.map((group) => (
        <Section key={group.instances[0]} title={data.groups.length === 1 ? "Packages" : `Packages of ${namesOf(group.instances)}`}>
          <Packages group={group} />
        </Section>
      ))}
    </>
  );
}

/** `worker-0, worker-1 and 30 more`. */
function namesOf(instances: readonly string[]): string {
  const shown = instances.slice(0, NAMES_SHOWN).join(", ");
  const more = instances.length - NAMES_SHOWN;
  return more > 0 ? `${shown} and ${more} more` : shown;
}

function OfGroup({ chosen, framework, group }: { chosen: EnvironmentAnswer["environment"]; framework: string; group: Group }) {
  const devices = group.devices.map((each) => `${each.count} × ${each.name}${each.bytes ? ` (${bytes(each.bytes)})` : ""}`);
  const { used, others } = frameworksOf(framework, Object.keys(group.frameworks));
  return (
    <Flex columnGap={8} flexWrap="wrap" rowGap={2}>
      <Fact name="Framework">{framework}</Fact>
      {chosen && (
        <Fact name="Environment">
          {chosen.name}@{chosen.version} <Code>{chosen.digest.slice(0, 12)}</Code>
        </Fact>
      )}
      <Fact name="Image">{group.image ? <Code wordBreak="break-all">{group.image}</Code> : "none"}</Fact>
      <Fact name="Python">{group.python ?? UNTOLD}</Fact>
      {group.executable && (
        <Fact name="Executable">
          <Code wordBreak="break-all">{group.executable}</Code>
        </Fact>
      )}
      {(group.system || group.machine) && (
        <Fact name="System">{[group.system, group.machine].filter(Boolean).join(", ")}</Fact>
      )}
      <Fact name="Devices">{devices.join(", ") || "none"}</Fact>
      {Object.entries(group.gpu).map(([name, version]) => (
        <Fact key={name} name={name}>
          {version}
        </Fact>
      ))}
      {used.map((name) => (
        <Fact key={name} name={name}>
          {group.frameworks[name]}
        </Fact>
      ))}
      {others.length > 0 && (
        <Fact name={used.length > 0 ? "Also installed" : "Installed"} wide>
          {others.map((name) => `${name} ${group.frameworks[name]}`).join(", ")}
        </Fact>
      )}
    </Flex>
  );
}

function Packages({ group }: { group: Group }) {
  const [text, setText] = useState("");
  if (group.python === null)
    return (
      <Text color="fg.muted" fontSize="sm">
        No Python has told its packages: the instances run none, ended within a second, or their agents cannot report to here.
      </Text>
    );
  const all = Object.entries(group.packages);
  const wanted = text.trim().toLowerCase();
  const shown = all.filter(([name, version]) => name.includes(wanted) || version.includes(wanted));
  return (
    <>
      <Flex align="center" gap={3} mb={2}>
        <Input
          aria-label={`Filter packages of ${group.instances[0]}`}
          maxW="16rem"
          onChange={(event) => setText(event.currentTarget.value)}
          placeholder="Filter packages"
          size="sm"
          value={text}
        />
        <Text color="fg.muted" fontSize="sm">
          {shown.length === all.length ? "" : `${shown.length} of `}
          {all.length} packages{group.packages_left_out > 0 && `; ${group.packages_left_out} more were not told`}
        </Text>
      </Flex>
      {shown.length > 0 && <Rows head={["Package", "Version"]} rows={shown} />}
    </>
  );
}

function Difference({ detail }: { detail: Detail }) {
  const [query, setQuery] = useSearchParams();
  const { dag, uid } = detail.summary;
  const chosen = query.get("other") ?? ""; // `dag/uid`; neither holds a slash
  const { data: runs } = useQuery({
    queryKey: ["list", "newest"],
    queryFn: () => get<SummaryPage>("trainings", { limit: 100 }),
  });
  const others = (runs?.trainings ?? []).filter((each) => each.uid !== uid);
  // those of the same job first: it is these that one asks about
  const sorted = [...others].sort((one, other) => rank(other) - rank(one));
  function rank(each: { job: string }) {
    return each.job === detail.summary.job ? 1 : 0;
  }
  const [otherDag = "", other = ""] = chosen.split("/");
  const { data, error, isLoading } = useQuery({
    enabled: other !== "",
    queryKey: ["environment", uid, chosen],
    queryFn: () =>
      get<EnvironmentDifference>(
        ofTraining(dag, uid, `/environment/difference/${encodeURIComponent(otherDag)}/${encodeURIComponent(other)}`),
      ),
  });
  return (
    <Section title="Difference to another run">
      <NativeSelect.Root maxW="lg" mb={3} size="sm">
        <NativeSelect.Field
          aria-label="Other run"
          onChange={(event) => {
            const value = event.currentTarget.value;
            setQuery(
              (before) => {
                const next = new URLSearchParams(before);
                if (value) next.set("other", value);
                else next.delete("other");
                return next;
              },
              { replace: true },
            );
          }}
          value={chosen}
        >
          <option value="">Choose a run</option>
          {chosen && !sorted.some((each) => `${each.dag}/${each.uid}` === chosen) && <option value={chosen}>{other}</option>}
          {sorted.map((each) => (
            <option key={each.uid} value={`${each.dag}/${each.uid}`}>
              {each.job}, {each.run_id} ({each.phrase}, {moment(each.submitted_at)})
            </option>
          ))}
        </NativeSelect.Field>
        <NativeSelect.Indicator />
      </NativeSelect.Root>
      {error && <Problem error={error} />}
      {isLoading && <Loading />}
      {data && !error && <Changes found={data} />}
    </Section>
  );
}

function Changes({ found }: { found: EnvironmentDifference }) {
  if (found.packages_told && found.surroundings.length + found.packages.length === 0)
    return <Text>Nothing differs: the same surroundings, and {found.packages_equal} packages of the same versions.</Text>;
  return (
    <Flex direction="column" gap={4}>
      {found.surroundings.length > 0 && (
        <Rows
          head={["Surroundings", "Other run", "This run"]}
          rows={found.surroundings.map((each) => [each.name, each.before ?? UNTOLD, each.after ?? UNTOLD])}
        />
      )}
      {found.packages.length > 0 && (
        <Rows
          head={["Package", "Other run", "This run", "Change"]}
          rows={found.packages.map((each) => [each.name, each.before ?? "", each.after ?? "", wordOf(each)])}
        />
      )}
      <Text color="fg.muted" fontSize="sm">
        {found.packages_told
          ? `${found.packages_equal} packages are the same.`
          : "One of the two runs has not told its packages, so they are not compared."}
      </Text>
    </Flex>
  );
}

function wordOf(change: Change): string {
  if (change.before === null) return "added";
  return change.after === null ? "removed" : "changed";
}
