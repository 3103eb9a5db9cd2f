/** Small things that every place uses: statuses, dialogs, commands to copy, refusals. */

import type { ComponentChildren, JSX } from "preact";
import { createContext } from "preact";
import { useContext, useEffect, useRef, useState } from "preact/hooks";
import type { Me, Refusal } from "../api";
import { plain } from "../format";
import { useKeys } from "../keys";

export const MeContext = createContext<Me | null>(null);
export const useMe = (): Me | null => useContext(MeContext);

// Statuses: a shape and a word, so that colour is never all there is.

const WORDS: Record<string, string> = {
  in_progress: "in progress", awaiting_user: "waits for you", backing_off: "backing off", in_doubt: "in doubt",
  did_not_happen: "did not happen",
};
const TONES: Record<string, string> = {
  completed: "good", failed: "bad", awaiting_user: "doubt", in_doubt: "doubt", paused: "doubt", stopped: "doubt", stuck: "bad",
  cancelled: "quiet", pending: "quiet", done: "good", doing: "", skipped: "quiet",
};

function shape(status: string): JSX.Element {
  switch (status) {
    case "completed": case "done":
      return <path d="M1.5 5.5 4 8l4.500-6" fill="none" stroke="currentColor" stroke-width="1.700" />;
    case "failed":
      return <path d="M1.500 1.500l7 7m0-7l-7 7" stroke="currentColor" stroke-width="1.700" />;
    case "cancelled": case "skipped":
      return <path d="M1 5h8" stroke="currentColor" stroke-width="1.700" />;
    case "stuck":
      return <path d="M5 1v5M5 7.500V9" stroke="currentColor" stroke-width="1.900" />;
    case "paused":
      return <path d="M3 1v8M7 1v8" stroke="currentColor" stroke-width="1.900" />;
    case "awaiting_user": case "in_doubt": case "waiting":
      return <><path d="M2.800 3.200c0-3.600 5-2.800 4.400.2C6.800 5 5 4.800 5 6.800" fill="none" stroke="currentColor" stroke-width="1.500" /><circle cx="5" cy="9.100" r=".95" fill="currentColor" /></>;
    case "in_progress": case "running": case "doing": case "retrying": case "active":
      return <path d="M2 1l7 4-7 4z" fill="currentColor" />;
    default:
      return <circle cx="5" cy="5" r="3.500" fill="none" stroke="currentColor" stroke-width="1.500" />;
  }
}

export function Shape({ status }: { status: string }) {
  return <svg viewBox="0 0 10 10" width="10" height="10" class={TONES[status] ?? ""} aria-hidden="true">{shape(status)}</svg>;
}

export function statusWord(status: string): string {
  return WORDS[status] ?? status.replaceAll("_", " ");
}

export function Status({ status, note = "" }: { status: string; note?: string }) {
  // Nobody is at work on it: the word that the command line has for it says more than its status.
  const idle = status === "in_progress" && (note === "stopped" || note === "waiting");
  const hindered = /^[A-Z]/.test(note); // the type of the error that kept it from going on
  return (
    <span class="status">
      <Shape status={hindered ? "stuck" : idle ? (note === "stopped" ? "paused" : "pending") : status} />
      <span>{hindered || idle ? plain(note) : statusWord(status)}</span>
    </span>
  );
}

/** Text of a log. It may hold anything; what would mislead the eye is made visible. */
export function Text({ of, class: name = "" }: { of: string; class?: string }) {
  return <bdi class={name}>{plain(of)}</bdi>;
}

// Telling.

type Tell = (words: string) => void;
let tell: Tell = () => undefined;
export const say: Tell = (words) => tell(words);

export function Toasts() {
  const [told, set] = useState<{ n: number; words: string }[]>([]);
  const count = useRef(0);
  tell = (words) => {
    const n = ++count.current;
    set((all) => [...all.slice(-3), { n, words }]);
    window.setTimeout(() => set((all) => all.filter((one) => one.n !== n)), 5000);
  };
  return (
    <div class="toasts" role="status" aria-live="polite">
      {told.map((one) => <div class="toast" key={one.n}>{plain(one.words)}</div>)}
    </div>
  );
}

export async function copy(text: string, what = "copied"): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    say(what);
  } catch {
    say(`The browser keeps us from the clipboard. Copy it by hand: ${text.slice(0, 300)}`);
  }
}

export function Command({ line }: { line: string }) {
  return (
    <span class="command">
      <code>{plain(line)}</code>{" "}
      <button type="button" class="link" onClick={() => copy(line, "command copied")}>copy</button>
    </span>
  );
}

export function Refused({ error }: { error: Refusal }) {
  return (
    <div class="said bad" role="alert">
      <pre class="words">{plain(error.message)}</pre>
      {error.command && <p style={{ marginTop: "6px" }}><Command line={error.command} /></p>}
    </div>
  );
}

export function Loading({ what = "Reading the log…" }: { what?: string }) {
  return <p class="loading" role="status">{what}</p>;
}

// Dialogs.

interface DialogProps {
  title: string; onClose: () => void; onSubmit?: () => void; children: ComponentChildren; footer?: ComponentChildren;
}

export function Dialog({ title, onClose, onSubmit, children, footer }: DialogProps) {
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    box.current?.showModal();
    return () => before?.focus?.();
  }, []);
  useKeys({ "*": () => undefined, escape: onClose });
  return (
    <dialog ref={box} aria-label={title} onCancel={(event) => { event.preventDefault(); onClose(); }}
      onClick={(event) => { if (event.target === box.current) onClose(); }}>
      <form method="dialog" onSubmit={(event) => { event.preventDefault(); onSubmit?.(); }}>
        <header>
          <h1 class="grow">{plain(title)}</h1>
          <button type="button" class="plain" onClick={onClose}>Close <kbd>esc</kbd></button>
        </header>
        <div class="body">{children}</div>
        {footer && <footer>{footer}</footer>}
      </form>
    </dialog>
  );
}

/** Tabs as the keyboard expects them: one of them takes the focus, arrows move on. */
export function Tabs({ tabs, at, onPick, label, children }: {
  tabs: { name: string; label: string }[]; at: string; onPick: (name: string) => void; label: string;
  children?: ComponentChildren;
}) {
  const list = useRef<HTMLDivElement>(null);
  const move = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const now = tabs.findIndex((tab) => tab.name === at);
    const next = tabs[(now + step + tabs.length) % tabs.length]!;
    onPick(next.name);
    (list.current?.querySelector(`[data-tab="${next.name}"]`) as HTMLElement | null)?.focus();
  };
  return (
    <div class="tabs">
      <div role="tablist" aria-label={label} ref={list} onKeyDown={move} style={{ display: "flex" }}>
        {tabs.map((tab) => (
          <button type="button" role="tab" key={tab.name} data-tab={tab.name} id={`tab-${tab.name}`}
            aria-selected={tab.name === at} aria-controls="tab-panel" tabIndex={tab.name === at ? 0 : -1}
            onClick={() => onPick(tab.name)}>
            {tab.label}
          </button>
        ))}
      </div>
      {children && <div class="tools">{children}</div>}
    </div>
  );
}

export function useTitle(title: string): void {
  useEffect(() => {
    document.title = title ? `${plain(title)} · Holdfast` : "Holdfast";
  }, [title]);
}

/** A state that is told only after it was quiet for a moment. */
export function useSettled<T>(value: T, ms: number): T {
  const [settled, set] = useState(value);
  useEffect(() => {
    const timer = window.setTimeout(() => set(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}
