// The names of a page's tabs in one row. Where it is too narrow for them, the chosen one is in sight, and an edge behind
// which there are more fades.
import { Tabs } from "@chakra-ui/react";
import { useEffect, useRef, useState } from "react";

import { preload } from "./lazyParts.tsx";

const FADE = 28;

export function TabStrip({ chosen, names }: { chosen: string; names: readonly string[] }) {
  const list = useRef<HTMLDivElement>(null);
  const [more, setMore] = useState({ before: false, after: false });

  useEffect(preload, []);

  useEffect(() => {
    const strip = list.current;
    const tab = strip?.querySelector("[aria-selected=true]");
    if (!strip || !tab) return;
    // not scrollIntoView: that may move the page as well, away from the cause that stands above
    const [edges, own] = [strip.getBoundingClientRect(), tab.getBoundingClientRect()];
    if (own.left < edges.left + FADE) strip.scrollLeft -= edges.left + FADE - own.left;
    else if (own.right > edges.right - FADE) strip.scrollLeft += own.right - edges.right + FADE;
  }, [chosen]);

  useEffect(() => {
    const strip = list.current!;
    const look = () => {
      const before = strip.scrollLeft > 1;
      const after = strip.scrollLeft + strip.clientWidth < strip.scrollWidth - 1;
      setMore((old) => (old.before === before && old.after === after ? old : { before, after }));
    };
    const watch = new ResizeObserver(look);
    watch.observe(strip);
    strip.addEventListener("scroll", look);
    return () => {
      watch.disconnect();
      strip.removeEventListener("scroll", look);
    };
  }, [names.length]);

  const edge = (there: boolean) => `${there ? "transparent" : "#000"}, #000 ${FADE}px`;
  const back = (there: boolean) => `#000 calc(100% - ${FADE}px), ${there ? "transparent" : "#000"}`;
  const mask = more.before || more.after ? `linear-gradient(to right, ${edge(more.before)}, ${back(more.after)})` : undefined;
  return (
    <Tabs.List mb={4} overflowX="auto" overflowY="hidden" ref={list} style={{ maskImage: mask }}>
      {names.map((each) => (
        <Tabs.Trigger flexShrink={0} key={each} textTransform="capitalize" value={each}>
          {each}
        </Tabs.Trigger>
      ))}
    </Tabs.List>
  );
}
