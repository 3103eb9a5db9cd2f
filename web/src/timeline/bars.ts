/** The grammar of bars. Solid: it really ran. Outline: answered from the log or by another call.
 * Hatched: waiting. A question mark: in doubt. A cross: a failed attempt. */

import type { CallRow, Line } from "../api";

export type Look = "ran" | "log" | "wait" | "failed" | "doubted" | "now";
export interface Bar { look: Look; from: number; to: number; mark: "" | "cross" | "query" | "diamond" | "check"; words: string }

const WAITS = new Set(["question", "approval", "sleep", "message", "limit"]);
/** What takes no time: a mark instead of a bar. */
export const INSTANT = new Set(["decision", "fact", "reading"]);

const ms = (iso: string): number => Date.parse(iso);

function attemptsOf(call: CallRow, now: number, deaths: number[]): Bar[] {
  const bars: Bar[] = [];
  call.attempts.forEach((attempt, i) => {
    const from = ms(attempt.at);
    const next = call.attempts[i + 1];
    const cutOff = deaths.find((at) => at >= from) ?? (next ? ms(next.at) : now);
    const last = i === call.attempts.length - 1;
    const settledHere = last && call.settled_by !== "";
    const to = attempt.ended_at ? ms(attempt.ended_at) : Math.min(cutOff, call.ended_at && !settledHere ? ms(call.ended_at) : cutOff);
    if (attempt.outcome === "failed") bars.push({ look: "failed", from, to, mark: "cross", words: `attempt ${attempt.number} failed` });
    else if (attempt.outcome === "interrupted" || (last && (call.doubt || settledHere) && attempt.outcome !== "ok"))
      bars.push({ look: "doubted", from, to, mark: "query", words: "begun, and how it ended is not known" });
    else if (attempt.outcome === "open" && !call.ended_at)
      bars.push({ look: call.status === "in_doubt" ? "doubted" : "now", from, to: call.status === "in_doubt" ? to : now, mark: call.status === "in_doubt" ? "query" : "", words: call.status });
    else bars.push({ look: "ran", from, to: call.ended_at && last ? Math.max(to, Math.min(ms(call.ended_at), to)) : to, mark: "", words: "ran" });
    const wait = next ? ms(next.at) : call.retry_at && !call.ended_at ? ms(call.retry_at) : null;
    if (wait !== null && wait > to && attempt.outcome === "failed") bars.push({ look: "wait", from: to, to: wait, mark: "", words: "backing off" });
  });
  return bars;
}

export function barsOf(call: CallRow, now: number, lines: Line[]): Bar[] {
  const from = ms(call.at);
  const ended = call.ended_at ? ms(call.ended_at) : null;
  const deaths = lines.filter((line) => line.kind === "died").map((line) => ms(line.at));
  if (call.answered !== "") return [{ look: "log", from, to: ended ?? from, mark: "", words: answeredWords(call) }];
  if (INSTANT.has(call.kind)) return [{ look: "ran", from, to: from, mark: "diamond", words: call.kind }];
  if (WAITS.has(call.kind)) {
    const timed = call.kind === "sleep" || call.kind === "limit";
    const to = ended ?? (call.until && timed ? Math.max(now, ms(call.until)) : now);
    const words = call.kind === "limit" ? `waits for the limit ${call.name}` : call.kind === "sleep" ? "sleeps" : ended ? "waited for a person" : "waits for a person";
    return [{ look: "wait", from, to, mark: ended === null && !timed ? "query" : "", words }];
  }
  const bars = attemptsOf(call, now, deaths);
  const failed = call.status === "failed"; // a child task has no attempts of its own
  if (bars.length === 0) bars.push({ look: ended === null ? "now" : failed ? "failed" : "ran", from, to: ended ?? now, mark: failed ? "cross" : "", words: call.words });
  if (call.settled_by && ended !== null && call.kind === "tool") bars.push({ look: "log", from: ended, to: ended, mark: "check", words: `settled by ${call.settled_by}` });
  return bars;
}

function answeredWords(call: CallRow): string {
  if (call.answered === "edited") return "another result was put in its place";
  if (call.answered === "stub") return "answered by a stub, not called";
  if (call.answered === "read") return `answered by the reading of ${call.of}`;
  if (call.adopted_of) return `not called: outcome of ${call.adopted_of[0]} ${call.adopted_of[1]}`;
  return "answered from the log, not run";
}

/** Where a call was answered from the log because its task was resumed. */
export function echoesOf(call: CallRow, lines: Line[]): Line[] {
  if (!call.ended_seq || INSTANT.has(call.kind)) return [];
  let checkpoint = 0;
  const found: Line[] = [];
  for (const line of lines) {
    if (line.kind === "checkpoint") checkpoint = line.seq;
    else if ((line.kind === "resumed" || line.kind === "took_over") && line.seq > call.ended_seq && call.ended_seq > checkpoint) found.push(line);
  }
  return found.slice(0, 20);
}

/** Paths as a tree: a call, then what it called, in the order that they began. */
export function treeOrder(calls: CallRow[]): CallRow[] {
  const inside = new Map<string, CallRow[]>();
  const known = new Set(calls.map((call) => call.path));
  for (const call of calls) {
    let scope = call.scope;
    while (scope !== "" && !known.has(scope)) scope = scope.slice(0, Math.max(0, scope.lastIndexOf(".")));
    const group = inside.get(scope);
    if (group) group.push(call);
    else inside.set(scope, [call]);
  }
  const ordered: CallRow[] = [];
  const walk = (parent: string) => {
    for (const run of runsOf(inside.get(parent) ?? [], parent))
      for (const call of run) { ordered.push(call); walk(call.path); }
  };
  walk("");
  return ordered;
}

/** Calls of one branch stay together, where the first of them began. */
function runsOf(group: CallRow[], parent: string): CallRow[][] {
  const lanes = new Map<string, CallRow[]>();
  const runs: CallRow[][] = [];
  for (const call of group) {
    const lane = call.scope === parent ? undefined : lanes.get(call.scope);
    if (lane) { lane.push(call); continue; }
    const run = [call];
    runs.push(run);
    if (call.scope !== parent) lanes.set(call.scope, run);
  }
  return runs;
}

const SINCE_MS = 2000;

/** The stretch from the last event to now, if nothing runs in it: a wait for a timer, a person, a worker. */
export function sinceOf(calls: { total: number; whole: boolean; at: (index: number) => CallRow | undefined }, busy: number, last: number, now: number): [number, number][] {
  if (now - last < Math.max(SINCE_MS, busy * IDLE)) return [];
  for (let i = 0; calls.whole && i < calls.total; i++)
    if (calls.at(i)?.attempts.some((attempt) => attempt.outcome === "open" && !calls.at(i)!.ended_at && !calls.at(i)!.doubt)) return [];
  const edge = busy * 0.04 + 1;
  return [[last + edge, now - edge]];
}

const IDLE = 0.12; // of the whole: a shorter stretch is no trouble to the eye
const IDLE_MS = 500;

/** The stretches in which nothing ran or waited, of a task that is shown whole. */
export function idleOf(calls: { total: number; at: (index: number) => CallRow | undefined }, lines: Line[], began: number, ended: number): [number, number][] {
  const busy: [number, number][] = [[began, began], [ended, ended]];
  for (let i = 0; i < calls.total; i++) {
    const call = calls.at(i);
    if (call) for (const bar of barsOf(call, ended, lines)) busy.push([bar.from, bar.to]);
  }
  busy.sort((a, b) => a[0] - b[0]);
  const idle: [number, number][] = [];
  const least = Math.max(IDLE_MS, (ended - began) * IDLE);
  const edge = (ended - began) * 0.02;
  let reached = began;
  for (const [from, to] of busy) {
    if (from - reached > least) idle.push([reached + edge, from - edge]);
    reached = Math.max(reached, to);
  }
  return idle;
}
