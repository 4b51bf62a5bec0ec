// Does again what has failed. Pure but for the time that it waits.

/** The answer of the first attempt that has one, else the failure of the last; between them these pauses. */
export async function tried<T>(attempt: () => Promise<T>, pauses: readonly number[], onFailure: () => void = () => {}): Promise<T> {
  for (const pause of [...pauses, null]) {
    try {
      return await attempt();
    } catch (error) {
      onFailure();
      if (pause === null) throw error;
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }
  throw new Error("nothing was tried");
}
