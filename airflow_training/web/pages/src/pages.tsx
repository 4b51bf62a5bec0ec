// What Airflow's UI loads. Each page is a global function of the name that the plugin registers.
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import type { ComponentType } from "react";

import { ApiError } from "./api.ts";
import { Card } from "./Card.tsx";
import { NewTraining } from "./lazyParts.tsx";
import { RunTab } from "./RunTab.tsx";
import { StillSending } from "./StillSending.tsx";
import { Trainings } from "./Trainings.tsx";
import { Usage } from "./Usage.tsx";

const client = new QueryClient({
  defaultOptions: {
    queries: {
      retry: (count, error) => count < 3 && !(error instanceof ApiError && error.status < 500),
      refetchOnWindowFocus: false,
    },
  },
});

function page<Props extends object>(Page: ComponentType<Props>): ComponentType<Props> {
  return (props) => (
    <QueryClientProvider client={client}>
      {/* says which part of Airflow's page is ours */}
      <div data-training-pages style={{ display: "contents" }}>
        <Page {...props} />
        <StillSending />
      </div>
    </QueryClientProvider>
  );
}

const globals = globalThis as Record<string, unknown>;
globals["Training"] = page(RunTab);
globals["Trainings"] = page(Trainings);
globals["New training"] = page(NewTraining);
globals["Training usage"] = page(Usage);
globals["Trainings card"] = page(Card);
