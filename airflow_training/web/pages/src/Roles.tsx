// The graph of roles: who waits for whom, and for what. Where it is narrow, one below the other.
import { Badge, Box, Flex, Text, useBreakpointValue, VisuallyHidden } from "@chakra-ui/react";

import type { Detail } from "./api.ts";
import { BOX, roleGraph, type RoleBox } from "./roleGraph.ts";
import { colourOfRole } from "./words.ts";

export function Roles({ detail }: { detail: Detail }) {
  const wide = useBreakpointValue({ base: false, md: true }) ?? true;
  const { arrows, boxes, height, width } = roleGraph(detail.roles);
  if (!wide) {
    return (
      <Flex direction="column" gap={3}>
        {boxes.map(({ role }) => (
          <Role key={role.name} role={role} state={detail.status.roles[role.name]?.state} />
        ))}
      </Flex>
    );
  }
  return (
    <Box overflowX="auto" pb={2} tabIndex={0}>
      <Box h={`${height}px`} position="relative" w={`${width}px`}>
        <Text aria-hidden as="span" color="fg.muted" inset={0} position="absolute">
          <svg height={height} style={{ overflow: "visible" }} width={width}>
            <defs>
              <marker id="training-arrow" markerHeight="7" markerWidth="7" orient="auto" refX="6" refY="3.5">
                <path d="M0 0L7 3.5L0 7z" fill="currentColor" />
              </marker>
            </defs>
            {arrows.map((each) => (
              <path d={each.path} fill="none" key={`${each.from}.${each.to}.${each.status}`} markerEnd="url(#training-arrow)" stroke="currentColor" strokeWidth={1.5} />
            ))}
          </svg>
        </Text>
        {arrows.map((each) => (
          <Text
            aria-hidden
            color="fg.muted"
            fontSize="xs"
            key={`${each.from}.${each.to}.${each.status}`}
            left={`${each.x}px`}
            lineHeight="short"
            position="absolute"
            top={`${each.y}px`}
            transform="translate(-100%, -100%)"
          >
            {each.status}
          </Text>
        ))}
        {boxes.map(({ role, x, y }) => (
          <Box h={`${BOX.height}px`} key={role.name} left={`${x}px`} position="absolute" top={`${y}px`} w={`${BOX.width}px`}>
            <Role quiet role={role} state={detail.status.roles[role.name]?.state} />
          </Box>
        ))}
      </Box>
    </Box>
  );
}

/** `quiet`: arrows say what it waits for, to those who see them. */
function Role({ quiet = false, role, state }: { quiet?: boolean; role: RoleBox["role"]; state: string | undefined }) {
  const waits = role.depends_on.map((each) => (
    <Text color="fg.muted" fontSize="xs" key={each.role + each.status}>
      waits for {each.role}: {each.status}
    </Text>
  ));
  return (
    <Flex bg="bg.panel" borderRadius="md" borderWidth="1px" direction="column" h="100%" justify="center" px={3} py={2}>
      <Flex align="center" gap={3} justify="space-between">
        <Flex fontWeight="medium" gap={1} minW={0}>
          <Text title={role.name} truncate>
            {role.name}
          </Text>
          <span>×&nbsp;{role.replicas}</span>
        </Flex>
        {state && <Badge colorPalette={colourOfRole(state)}>{state}</Badge>}
      </Flex>
      {quiet ? <VisuallyHidden>{waits}</VisuallyHidden> : waits}
    </Flex>
  );
}
