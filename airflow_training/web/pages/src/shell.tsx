// `airflow-training ui`: gives the pages what Airflow gives them (React, Chakra UI, the router), and a frame.
import * as ChakraUI from "@chakra-ui/react";
import * as React from "react";
import * as ReactJSXRuntime from "react/jsx-runtime";
import * as ReactDOM from "react-dom";
import { createRoot } from "react-dom/client";
import * as ReactRouterDOM from "react-router-dom";

Object.assign(globalThis, { ChakraUI, React, ReactDOM, ReactJSXRuntime, ReactRouterDOM });

const { Alert, Box, ChakraProvider, Flex, Heading, Link: StyledLink, Text, defaultSystem } = ChakraUI;
const { BrowserRouter, Link, NavLink, Route, Routes, useParams } = ReactRouterDOM;

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

/** The token is that of one process of `airflow-training ui`: there is nowhere to log in. */
function SignedOut() {
  const [out, setOut] = React.useState(false);
  React.useEffect(() => {
    const leave = (event: Event) => {
      event.preventDefault(); // no way to a login
      setOut(true);
    };
    const enter = () => setOut(false);
    addEventListener("training:signed-out", leave);
    addEventListener("training:signed-in", enter);
    return () => {
      removeEventListener("training:signed-out", leave);
      removeEventListener("training:signed-in", enter);
    };
  }, []);
  if (!out) return null;
  return (
    <Alert.Root role="alert" status="warning">
      <Alert.Indicator />
      <Alert.Title>This address is no longer valid: open the one that `airflow-training ui` printed.</Alert.Title>
    </Alert.Root>
  );
}

const PLACES = [
  ["/", "Trainings"],
  ["/new", "New training"],
  ["/usage", "Usage"],
] as const;

function Navigation() {
  return (
    <Flex as="nav" aria-label="Pages" gap={6}>
      {PLACES.map(([place, name]) => (
        <NavLink end key={place} style={({ isActive }) => (isActive ? { fontWeight: 600, textDecoration: "underline" } : {})} to={place}>
          {name}
        </NavLink>
      ))}
    </Flex>
  );
}

function NoSuchPage() {
  return (
    <Box p={4}>
      <Heading as="h2" size="lg">
        There is no such page
      </Heading>
      <Text my={2}>Nothing is at {location.pathname}.</Text>
      <StyledLink asChild variant="underline">
        <Link to="/">All trainings</Link>
      </StyledLink>
    </Box>
  );
}

// by the list of files, so that this one, the largest, need not be built anew with the pages
const files = (await (await fetch(new URL("manifest.json", import.meta.url))).json()) as { pages: string };
await import(new URL(files.pages, import.meta.url).href);
const globals = globalThis as unknown as Record<string, Page>;
const Training = globals["Training"]!;
const Trainings = globals["Trainings"]!;
const NewTraining = globals["New training"]!;
const Usage = globals["Training usage"]!;

const root = document.getElementById("root")!;
root.dataset["standalone"] = ""; // pages link to each other differently here
createRoot(root).render(
  <ChakraProvider value={defaultSystem}>
    <BrowserRouter>
      <Box bg="bg" color="fg" minH="100vh">
        <Box as="header" borderBottomWidth="1px" px={{ base: 4, md: 8 }} py={3}>
          <Navigation />
        </Box>
        <SignedOut />
        <Box as="main" maxW="1600px" mx="auto" px={{ base: 2, md: 6 }}>
          <Routes>
            <Route path="/" element={<Trainings />} />
            <Route path="/new" element={<NewTraining />} />
            <Route path="/usage" element={<Usage />} />
            <Route path="/runs/:uid" element={<Run Training={Training} />} />
            <Route path="*" element={<NoSuchPage />} />
          </Routes>
        </Box>
      </Box>
    </BrowserRouter>
  </ChakraProvider>,
);
