// An editor for YAML, by CodeMirror. Loaded only where something is edited: nothing of it is in the first load.
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, setDiagnostics } from "@codemirror/lint";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import { EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";

import { hasWindowsLines, rangeOfLine } from "./lineRange.ts";
import type { Mark } from "./marks.ts";

export interface YamlEditor {
  /** Put another text into the place of this one, as one step that can be undone; what is equal stays. */
  replace(text: string): void;
  show(marks: readonly Mark[]): void;
  goTo(line: number): void;
  close(): void;
}

const colour = (name: string) => `var(--chakra-colors-${name})`;

// names of the host's colours, so that it is dark where the host is
const theme = EditorView.theme({
  "&": { backgroundColor: colour("bg-subtle"), color: colour("fg"), fontSize: "0.875rem", maxHeight: "70vh" },
  "&.cm-focused": { outline: `2px solid ${colour("border-emphasized")}` },
  ".cm-scroller": { fontFamily: "var(--chakra-fonts-mono, monospace)", lineHeight: "1.6" },
  ".cm-content": { caretColor: colour("fg"), padding: "8px 0" },
  ".cm-cursor": { borderLeftColor: colour("fg") },
  ".cm-gutters": { backgroundColor: colour("bg-subtle"), borderRight: `1px solid ${colour("border")}`, color: colour("fg-muted") },
  ".cm-activeLine": { backgroundColor: "transparent" },
  "&.cm-focused .cm-activeLine": { backgroundColor: colour("bg-muted") },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: colour("blue-muted"),
  },
  ".cm-selectionMatch, .cm-searchMatch": { backgroundColor: colour("yellow-muted") },
  ".cm-tooltip, .cm-panels": { backgroundColor: colour("bg-panel"), borderColor: colour("border"), color: colour("fg") },
  ".cm-textfield, .cm-button": { backgroundColor: colour("bg"), backgroundImage: "none", borderColor: colour("border"), color: colour("fg") },
  ".cm-textfield::placeholder": { color: colour("fg-muted") },
  ".cm-diagnostic": { whiteSpace: "pre-wrap" },
});

const colours = HighlightStyle.define([
  { tag: [tags.definition(tags.propertyName), tags.propertyName], color: colour("blue-fg") },
  { tag: [tags.string, tags.special(tags.string)], color: colour("green-fg") },
  { tag: [tags.comment, tags.lineComment], color: colour("fg-muted"), fontStyle: "italic" },
  { tag: [tags.keyword, tags.typeName, tags.labelName], color: colour("purple-fg") },
]);

/** Put an editor into an element. `onChange` is told each new text. */
export function openEditor(
  parent: HTMLElement,
  { label, text, onChange }: { label: string; text: string; onChange: (text: string) => void },
): YamlEditor {
  // the editor has "\n" alone; what it was given with others goes out with them
  let windows = hasWindowsLines(text);
  const view = new EditorView({
    parent,
    state: EditorState.create({
      doc: text,
      extensions: [
        lineNumbers(),
        lintGutter(),
        history(),
        drawSelection(),
        indentOnInput(),
        bracketMatching(),
        highlightActiveLine(),
        highlightSelectionMatches(),
        yaml(),
        syntaxHighlighting(colours),
        theme,
        EditorView.lineWrapping,
        EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" }),
        // Tab indents; Escape, then Tab leaves the editor
        keymap.of([...defaultKeymap, ...historyKeymap, ...searchKeymap, indentWithTab]),
        EditorView.updateListener.of((update) => {
          if (update.docChanged) onChange(windows ? update.state.doc.toString().replaceAll("\n", "\r\n") : update.state.doc.toString());
        }),
      ],
    }),
  });
  return {
    replace(given) {
      const old = view.state.doc.toString();
      windows = hasWindowsLines(given) || (windows && !given.includes("\n"));
      const text = given.replaceAll("\r\n", "\n");
      if (old === text) return;
      const most = Math.min(old.length, text.length);
      let head = 0;
      while (head < most && old[head] === text[head]) head += 1;
      let tail = 0;
      while (tail < most - head && old[old.length - 1 - tail] === text[text.length - 1 - tail]) tail += 1;
      view.dispatch({ changes: { from: head, to: old.length - tail, insert: text.slice(head, text.length - tail) } });
    },
    show(marks) {
      const text = view.state.doc.toString();
      view.dispatch(
        setDiagnostics(
          view.state,
          marks.map((each) => ({ ...rangeOfLine(text, each.line), message: each.text, severity: each.severity })),
        ),
      );
    },
    goTo(line) {
      const { from, to } = rangeOfLine(view.state.doc.toString(), line);
      view.dispatch({ selection: { anchor: from, head: to }, scrollIntoView: true });
      view.focus();
    },
    close: () => view.destroy(),
  };
}
