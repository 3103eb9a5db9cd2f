/** The server's API: its shapes, and how to ask for them. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { type Json, written } from "./parts/json";
import { escaped } from "./route";

export type Value = null | { json: string; size: number } | { cut: string; size: number; href: string };
export type Tone = "" | "good" | "bad" | "doubt" | "thought" | "quiet";
export type Part =
  | { text: string; more?: true }
  | { value: string; size: number; more?: true }
  | { time: string; more?: true };

export interface EventRow {
  seq: number; at: string; type: string; path: string; name: string; what: string; parts: Part[];
  sentence: string; tone: Tone; strong: boolean; minor: boolean; shared: boolean;
}
export interface Failure { type: string; message: string; summary: string; traceback: string; where: string }
export type Outcome = "ok" | "failed" | "open" | "interrupted";
export interface AttemptRow { number: number; at: string; ended_at: string | null; outcome: Outcome }
export interface Attempt extends AttemptRow { failure: Failure | null }
export interface CallRow {
  path: string; scope: string; depth: number; name: string; kind: string; status: string;
  seq: number; ended_seq: number; at: string; ended_at: string | null; attempts: AttemptRow[];
  retry_at: string | null; until: string | null; why: string; doubt: boolean; settled_by: string;
  answered: "" | "log" | "read" | "fork" | "stub" | "edited" | "adopted";
  adopted_of: [string, string] | null; of: string; child: string; approves: string; key: string;
  tokens: number | null; cost_usd: number | null; words: string;
}
export interface Line { seq: number; at: string; kind: string; owner: string; epoch: number; words: string }
export interface TaskRow {
  id: string; type: string; status: string; user: string; session: string;
  labels: Record<string, string>; parent: string; origin: string; created_at: string;
  updated_at: string; position: string | null; at_work: string | null; note: string; asks: string;
}
export interface Action { do: string; label: string; command: string; enabled: boolean; why_not: string }
export interface Need {
  kind: "question" | "approval" | "doubt" | "stuck" | "failed";
  task: string; type: string; user: string; since: string; path: string; title: string; id: string;
  question?: string; expects?: string; until?: string | null;
  call?: { path: string; name: string; key: string; input: Value };
  why?: string; interrupted?: boolean; failure?: Failure; actions: Action[];
}
export interface Me {
  user: string; read_only: boolean; store: string; version: string; can_drive: boolean;
  app: string[]; engine: string; inbox: number | null; now: string;
}
export interface ForkInfo {
  of: string; seq: number; path: string; when: string; effects: string; by: string; because: string; words: string;
}
export interface TaskView {
  id: string; type: string; status: string; user: string; session: string; labels: Record<string, string>;
  parent: string; parent_path: string; origin: string; seq: number; head: number;
  created_at: string; updated_at: string;
  position: { step: number; of: number | null; text: string; committed: number; running: string[]; pending: string[] };
  duration_s: number; processes: number; cost_usd: number | null; tokens: number | null;
  at_work: string | null; engine: string; owner: string; epoch: number; deadline: string | null;
  wake_at: string | null; because: string; calls: number; model_calls: boolean; lanes: string[];
  input: Value; result: Value; failure: Failure | null; todo: string; needs: Need[]; actions: Action[];
  fork: ForkInfo | null; forks: string[]; rewound: { to: number; words: string } | null;
  children: { path: string; id: string; type: string; status: string }[];
  checkpoint: { number: number } | null; files: number; plan_items: number; decisions: number; notes: number;
  commands: Record<string, string>; damage?: string; note?: string;
}
export interface Timeline {
  lines: Line[]; began: string; ended: string; now: string; total_calls: number;
  spans: [number, string, string][]; gaps: [string, string][];
}
export interface DiffLine { marker: string; text: string }
export interface Change {
  where: (string | number)[]; place: string; what: "added" | "removed" | "changed" | "moved";
  before: Value; after: Value; lines: DiffLine[];
}
export interface StateView {
  seq: number; at: string; since: number; state: Value; changes: Change[]; truncated: boolean; checkpoint?: Value;
}
export interface Decision {
  path: string; name: string; choice: Value; options: Value; because: string; at: string; step: string;
  supersedes: string; superseded_by: string;
}
export interface Usage {
  model: string; input_tokens: number | null; output_tokens: number | null; cached_tokens: number | null;
  cost_usd: number | null; first_token_s: number | null;
}
export interface CallDetail extends Omit<CallRow, "attempts"> {
  index: number; attempts: Attempt[]; input: Value; output: Value; failure: Failure | null; args_hash: string;
  before_seq: number; after_seq: number; inner: number; decision: Decision | null;
  fact: { value: Value; as_of: string; sources: string[] } | null;
  reading: { as_of: string | null; age_s: number | null; names: string[] } | null;
  question: { question: string; expects: string; until: string | null; answer: Value; by: string; refused: string } | null;
  model: boolean; usage: Usage | null; changes: Change[]; commands: Record<string, string>;
}
export interface Why {
  chains: Decision[][];
  facts: { path: string; name: string; value: Value; as_of: string; sources: string[] }[];
  notes: { text: string; at: string; data?: Value }[];
  failures: { path: string; name: string; attempt: number; at: string; input: Value; failure: Failure }[];
  readings: { path: string; name: string; at: string; as_of: string | null; age_s: number | null; of: string }[];
}
export interface PlanItem { id: string; text: string; status: string; because?: string; after: string[] }
export interface PlanView {
  mission: string | null; items: PlanItem[]; place: number | null;
  versions: { seq: number; at: string; marked: string; because: string; by: string; items: number }[];
}
export interface FileVersion { seq: number; at: string; by: string; path: string; size: number; digest: string }
export interface FileView extends FileVersion { name: string; media_type: string; versions: FileVersion[] }
export type Block =
  | { kind: "text"; text: string; size: number; cut: boolean; href: string }
  | { kind: "tool_call"; id: string; name: string; input: Value }
  | { kind: "tool_result"; id: string; name: string; output: Value; text: string; is_error: boolean; size: number; cut: boolean; href: string }
  | { kind: "thinking"; text: string; size: number; cut: boolean; href: string }
  | { kind: "media"; media_type: string; name: string; size: number; href: string | null }
  | { kind: "other"; value: Value };
export interface Message {
  number: number; role: string; at: string | null; task: string; path: string; pinned: boolean;
  summarized: boolean; blocks: Block[];
}
export interface Summary { upto: number; at: string; task: string; text: string }
export interface Saw {
  path: string; name: string; at: string; session: string; tokens: number | null; budget: number | null;
  messages: { kind: string; message: Message }[]; nudges: Message[];
  tools: { name: string; description: string; parameters: Value }[];
  left_out: { messages: number; tokens: number; ranges: [number, number][]; cut_to: number | null; words: string };
  said: Value; usage: Usage | null; previous: string | null;
}
export interface SessionRow {
  id: string; user: string; status: string; labels: Record<string, string>; created_at: string; updated_at: string;
}
export interface SessionView extends SessionRow {
  because: string; messages: number; pinned: number[]; summaries: Summary[]; tasks: TaskRow[];
  tasks_next: string | null; commands: Record<string, string>;
}
export interface Messages { messages: Message[]; total: number; offset: number; session?: string | null; summaries?: Summary[] }
export interface MissionItem extends PlanItem {
  ready: boolean; task: string | null; task_status: string | null; at_work: string | null; updated_at: string | null;
}
export interface MissionView {
  id: string; text: string; status: string; seq: number; items: MissionItem[]; files: FileView[];
  artifacts: { item: string; task: string; files: FileView[] }[];
  progress: { at: string; text: string }[];
}
export interface Made {
  path: string; name: string; kind: string; input: Value; outcome: string; output: Value; failure: string;
}
export interface Pair {
  a: string; b: string;
  first: { what: string; path: string; row: number | null; words: string; a: Made | null; b: Made | null; lines: DiffLine[] } | null;
  rows: { what: string; a: Made | null; b: Made | null }[]; total: number; input: Change[]; knows: Change[];
}
export interface Figure {
  id: string; type: string; status: string; result: Value; failure: string; calls: Record<string, number>;
  failures: number; retries: number; duration_s: number; working_s: number; waiting_s: number;
  tokens: number | null; cost_usd: number | null; files: Record<string, string>;
}
export interface Comparison {
  ids: string[]; types: string[]; same: boolean; pairs: Pair[]; figures: Figure[];
  states: { a_seq: number; b_seq: number }[]; command: string;
}
export interface Done {
  ok: true; words: string; task: { id: string; status: string; seq: number }; next: string; command: string;
  fork?: { id: string; of: string; seq: number; effects: string; words: string };
}
export interface Replayed {
  same: boolean; outcome: string; recorded: string; words: string; answered: number; stopped_at: string | null;
  result: Value; problem: string; command: string;
}

export class Refusal extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly command: string | null,
    readonly status: number,
  ) {
    super(message);
  }
}

const id = escaped;
export const of = {
  task: (task: string, rest = "") => `/api/tasks/${id(task)}${rest}`,
  call: (task: string, path: string, rest = "") => `/api/tasks/${id(task)}/calls/${id(path)}${rest}`,
  session: (session: string, rest = "") => `/api/sessions/${id(session)}${rest}`,
};

async function answerOf<T>(response: Response): Promise<T> {
  let body: unknown = null;
  try {
    body = await response.json();
  } catch {
    throw new Refusal("internal", `The server answered ${response.status} without words.`, null, response.status);
  }
  if (response.ok) return body as T;
  const error = (body as { error?: { code?: string; message?: string; command?: string | null } }).error;
  const code = error?.code ?? "internal";
  if (code === "no_token" || code === "stale_token")
    throw new Refusal(code, "This page's token is no longer valid. Open the address that `holdfast ui` printed.", "holdfast ui", response.status);
  throw new Refusal(code, error?.message ?? `The server answered ${response.status}.`, error?.command ?? null, response.status);
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  let response: Response;
  try {
    response = await fetch(path, { credentials: "same-origin", signal: signal ?? null });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refusal("gone", "The server does not answer. Is `holdfast ui` still running?", "holdfast ui", 0);
  }
  return answerOf<T>(response);
}

export async function post<T = Done>(path: string, body: unknown): Promise<T> {
  let response: Response;
  try {
    response = await fetch(path, {
      method: "POST",
      credentials: "same-origin",
      headers: { "Content-Type": "application/json" },
      body: written(body as Json),
    });
  } catch {
    throw new Refusal("gone", "The server does not answer. Is `holdfast ui` still running?", "holdfast ui", 0);
  }
  return answerOf<T>(response);
}

export interface Got<T> { data: T | null; error: Refusal | null; loading: boolean; again: () => void; of: string | null }

interface Asking<T> { began?: () => void; came: (data: T) => void; failed?: (error: unknown) => void }

/** Ask a path, and ask it again whenever `fresh` changes. One question at a time: while an answer is
 * on its way the next question waits for it, so that a slow store is not asked for ever in vain. */
export function useAsking<T>(path: string | null, fresh: unknown, then: Asking<T>): void {
  const held = useRef(then);
  held.current = then;
  const asking = useRef<{ path: string; again: boolean; stop: AbortController } | null>(null);
  const leave = () => {
    asking.current?.stop.abort();
    asking.current = null;
  };
  const ask = (path: string) => {
    const mine = { path, again: false, stop: new AbortController() };
    asking.current = mine;
    held.current.began?.();
    const over = (tell: () => void) => {
      if (asking.current !== mine) return;
      asking.current = null;
      tell();
      if (mine.again) ask(path);
    };
    get<T>(path, mine.stop.signal).then(
      (data) => over(() => held.current.came(data)), (error: unknown) => over(() => held.current.failed?.(error)),
    );
  };
  useEffect(() => {
    if (path !== null && asking.current?.path === path) {
      asking.current.again = true;
      return;
    }
    leave();
    if (path !== null) ask(path);
  }, [path, fresh]);
  useEffect(() => leave, []);
}

/** What a path gives. While the next is on its way the last stays, so that nothing jumps. */
export function useGet<T>(path: string | null, fresh: number = 0): Got<T> {
  const [got, set] = useState<{ data: T | null; error: Refusal | null; loading: boolean; of: string | null }>({
    data: null, error: null, loading: path !== null, of: null,
  });
  const [round, next] = useState(0);
  const again = useCallback(() => next((n) => n + 1), []);
  useAsking<T>(path, `${round} ${fresh}`, {
    began: () => set((last) => ({ ...last, loading: true })),
    came: (data) => set({ data, error: null, loading: false, of: path }),
    failed: (error) => {
      const refusal = error instanceof Refusal ? error : new Refusal("internal", String(error), null, 0);
      set((last) => ({ data: last.of === path ? last.data : null, error: refusal, loading: false, of: path }));
    },
  });
  useEffect(() => { if (path === null) set({ data: null, error: null, loading: false, of: null }); }, [path === null]);
  return { ...got, again };
}

/** A number that grows every so often: after each answer, and later after a slow one. */
export function useEvery(ms: number, loading: boolean): number {
  const [n, set] = useState(0);
  const began = useRef(Date.now());
  useEffect(() => {
    if (loading) {
      began.current = Date.now();
      return;
    }
    const rest = Math.max(ms, 5 * (Date.now() - began.current));
    let timer = 0;
    const tick = () => { if (document.hidden) timer = window.setTimeout(tick, ms); else set((n) => n + 1); };
    timer = window.setTimeout(tick, rest);
    return () => clearTimeout(timer);
  }, [loading]);
  return n;
}

/** Server-sent events while the page can be seen. `on` is given each with its data. */
export function useLive(path: string | null, on: (event: string, data: unknown) => void, names: string[]): boolean {
  const [open, setOpen] = useState(false);
  const handler = useRef(on);
  handler.current = on;
  useEffect(() => {
    if (path === null) return;
    let source: EventSource | null = null;
    const start = () => {
      if (source || document.hidden) return;
      source = new EventSource(path);
      source.onopen = () => setOpen(true);
      source.onerror = () => setOpen(false);
      for (const name of names)
        source.addEventListener(name, (event) => {
          handler.current(name, JSON.parse((event as MessageEvent<string>).data));
        });
    };
    const stop = () => {
      source?.close();
      source = null;
      setOpen(false);
    };
    const seen = () => (document.hidden ? stop() : start());
    document.addEventListener("visibilitychange", seen);
    start();
    return () => {
      document.removeEventListener("visibilitychange", seen);
      stop();
    };
  }, [path]);
  return open;
}
