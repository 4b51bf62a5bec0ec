// Where every instance is, what waits for what, when each attempt ran, and what happened.
import type { Detail } from "./api.ts";
import { Events, useEvents } from "./Events.tsx";
import { Instances } from "./Instances.tsx";
import { Section } from "./parts.tsx";
import { Roles } from "./Roles.tsx";
import { TimeLine } from "./TimeLine.tsx";

export function Overview({ detail, onLog }: { detail: Detail; onLog: (instance: string) => void }) {
  const story = useEvents(detail);
  return (
    <>
      <Section title="Instances">
        <Instances detail={detail} onLog={onLog} />
      </Section>
      {detail.roles.length > 1 && (
        <Section title="Roles">
          <Roles detail={detail} />
        </Section>
      )}
      {detail.attempts.length > 0 && (
        <Section title="Time line">
          <TimeLine detail={detail} events={story.events} />
        </Section>
      )}
      <Section title="Events">
        <Events {...story} />
      </Section>
    </>
  );
}
