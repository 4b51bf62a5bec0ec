// Which of the files that a job names are at its address. Pure.

/** What no list of the address tells of: the address itself, whole paths and addresses, what only the run knows, hidden names. */
const UNKNOWN = /^$|^\/|:\/\/|\{\{|(^|\/)\./;

/** Names that are neither a file there nor a folder with files. */
export function absentFiles(names: readonly string[], files: readonly { name: string }[]): string[] {
  const there = new Set(files.flatMap(({ name }) => [name, ...[...name.matchAll(/\//g)].map((slash) => name.slice(0, slash.index))]));
  return [
    ...new Set(
      names.filter((name) => {
        const below = name.replace(/^(\.\/)+|\/+$/g, "");
        return !UNKNOWN.test(name.startsWith("/") ? name : below) && !there.has(below);
      }),
    ),
  ];
}
