// `airflow-training ui`: gives the pages what Airflow gives them (React, Chakra UI, the router), and a frame.
import * as ChakraUI from "@chakra-ui/react";
import * as React from "react";
import * as ReactJSXRuntime from "react/jsx-runtime";
import * as ReactDOM from "react-dom";
import { createRoot } from "react-dom/client";
import * as ReactRouterDOM from "react-router-dom";

Object.assign(globalThis, { ChakraUI, React, ReactDOM, ReactJSXRuntime, ReactRouterDOM });

const { Box, ChakraProvider, Flex, Heading, defaultSystem } = ChakraUI;
const { BrowserRouter, Link, Route, Routes, useParams } = ReactRouterDOM;

type Page = React.ComponentType<Record<string, string>>;

function follow(scheme: MediaQueryList) {
  document.documentElement.classList.toggle("dark", scheme.matches);
  document.documentElement.classList.toggle("light", !scheme.matches);
}
const dark = matchMedia("(prefers-color-scheme: dark)");
follow(dark);
dark.addEventListener("change", () => follow(dark));

function Run({ Training }: { Training: Page }) {
  const { uid = "" } = useParams();
  return <Training uid={uid} />;
}

// by the list of files, so that this one, the largest, need not be built anew with the pages
const files = (await (await fetch(new URL("manifest.json", import.meta.url))).json()) as { pages: string };
await import(new URL(files.pages, import.meta.url).href);
const globals = globalThis as unknown as Record<string, Page>;
const Training = globals["Training"]!;
const Trainings = globals["Trainings"]!;
const Usage = globals["Training usage"]!;

const root = document.getElementById("root")!;
root.dataset["standalone"] = ""; // pages link to each other differently here
createRoot(root).render(
  <ChakraProvider value={defaultSystem}>
    <BrowserRouter>
      <Box bg="bg" color="fg" minH="100vh">
        <Flex as="header" borderBottomWidth="1px" px={{ base: 4, md: 8 }} py={3}>
          <Heading as="p" size="md">
            <Link to="/">Trainings</Link>
          </Heading>
          <Box ml="auto">
            <Link to="/usage">Usage</Link>
          </Box>
        </Flex>
        <Box as="main" maxW="1600px" mx="auto" px={{ base: 2, md: 6 }}>
          <Routes>
            <Route path="/" element={<Trainings />} />
            <Route path="/usage" element={<Usage />} />
            <Route path="/runs/:uid" element={<Run Training={Training} />} />
          </Routes>
        </Box>
      </Box>
    </BrowserRouter>
  </ChakraProvider>,
);
