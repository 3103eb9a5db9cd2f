/** The list of tasks: filters are in the address, new ones come by themselves, many at once. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Refusal, type TaskRow, get, post, useGet, useLive } from "../api";
import { ago, count, moment, plain, plural } from "../format";
import { useKeys } from "../keys";
import { Dialog, Loading, Refused, Status, copy, say, statusWord, useMe, useSettled, useTitle } from "../parts/basics";
import { reveal, useSeen } from "../parts/virtual";
import { type Route, escaped, go, setQuery, taskAddress } from "../route";

const STATUSES = ["in_progress", "awaiting_user", "pending", "paused", "stuck", "failed", "completed", "cancelled"];
const WORDS = ["type", "user", "session", "label", "since", "until", "parent", "origin"] as const;
const ROW = 32;
const PAGE = 100;

interface Page { tasks: TaskRow[]; next: string | null; unreadable: string[]; partial: boolean }
interface Counts { counts: Record<string, number>; total: number; exact: boolean; command: string }

function filtersOf(query: URLSearchParams): string {
  const words = new URLSearchParams();
  for (const status of query.getAll("status")) words.append("status", status);
  for (const word of [...WORDS, "text"]) for (const one of query.getAll(word)) if (one) words.append(word, one);
  return words.toString();
}

/** The tasks that match, page by page as they are scrolled to. */
function useTasks(filters: string) {
  const [rows, setRows] = useState<TaskRow[]>([]);
  const [waiting, setWaiting] = useState<TaskRow[]>([]);
  const [error, setError] = useState<Refusal | null>(null);
  const [ready, setReady] = useState(false);
  const [partial, setPartial] = useState(false);
  const next = useRef<string | null>(null);
  const busy = useRef(false);
  const round = useRef(0);
  const short = useRef(false);
  const load = useCallback(async (first: boolean) => {
    if (busy.current && !first) return;
    const mine = first ? ++round.current : round.current;
    busy.current = true;
    try {
      const cursor = first || next.current === null ? "" : `&cursor=${encodeURIComponent(next.current)}`;
      short.current = false;
      const page = await get<Page>(`/api/tasks?${filters}&limit=${PAGE}&details=1${cursor}`);
      if (mine !== round.current) return;
      next.current = page.next;
      short.current = page.partial && page.next !== null;
      setRows((old) => first ? page.tasks : merged(old, page.tasks));
      setPartial(page.partial && page.next !== null);
      setError(null);
      setReady(true);
    } catch (problem) {
      if (mine === round.current && problem instanceof Refusal) { setError(problem); setReady(true); }
    } finally {
      if (mine === round.current) busy.current = false;
    }
    // A text may be rare: what was looked at held too little of it, so the search goes on.
    if (mine === round.current && short.current) void load(false);
  }, [filters]);
  useEffect(() => { setWaiting([]); next.current = null; void load(true); }, [load]);
  const arrive = (changed: TaskRow[], atTop: boolean) => {
    setRows((old) => {
      const known = new Map(changed.map((task) => [task.id, task]));
      const kept = old.map((task) => {
        const newer = known.get(task.id);
        if (!newer) return task;
        known.delete(task.id);
        return { ...task, ...newer, position: newer.position ?? task.position };
      });
      const fresh = [...known.values()].filter((task) => !old[0] || task.created_at > old[0].created_at);
      if (!fresh.length) return kept;
      fresh.sort((a, b) => (a.created_at < b.created_at ? 1 : -1));
      if (atTop) return [...fresh, ...kept];
      setWaiting((held) => merged(fresh, held));
      return kept;
    });
  };
  const takeWaiting = () => { setRows((old) => merged(waiting, old)); setWaiting([]); };
  useEffect(() => () => { round.current = -1; }, []);
  return { rows, waiting, takeWaiting, error, ready, partial, more: () => next.current !== null && void load(false), again: () => void load(true), arrive };
}

function merged(first: TaskRow[], then: TaskRow[]): TaskRow[] {
  const known = new Set(first.map((task) => task.id));
  return [...first, ...then.filter((task) => !known.has(task.id))];
}

function Filters({ query, counts }: { query: URLSearchParams; counts: Counts | null }) {
  const picked = new Set(query.getAll("status"));
  const types = useGet<{ types: string[] }>("/api/types");
  const [text, setText] = useState(query.get("text") ?? "");
  const settled = useSettled(text, 250);
  useEffect(() => { if (settled !== (query.get("text") ?? "")) setQuery({ text: settled || null }); }, [settled]);
  const toggle = (status: string) => {
    const words = new URLSearchParams(query);
    words.delete("status");
    for (const one of STATUSES) if (picked.has(one) !== (one === status)) words.append("status", one);
    go(`/tasks${words.size ? `?${words}` : ""}`, true);
  };
  return (
    <div class="filters" role="search">
      <input type="search" id="search" placeholder="id, type, user, label  ( / )" aria-label="Search tasks" value={text}
        onInput={(event) => setText(event.currentTarget.value)} />
      {STATUSES.map((status) => (
        <button type="button" class="chip" key={status} aria-pressed={picked.has(status)} onClick={() => toggle(status)}>
          {statusWord(status)} {counts?.counts[status] !== undefined && (picked.size === 0 || picked.has(status)) && <span class="quiet num">{count(counts.counts[status]!)}</span>}
        </button>
      ))}
      <select aria-label="Type" value={query.get("type") ?? ""} onChange={(event) => setQuery({ type: event.currentTarget.value })}>
        <option value="">every type</option>
        {(types.data?.types ?? []).map((type) => <option key={type} value={type}>{plain(type)}</option>)}
      </select>
      {(["user", "session", "label"] as const).map((word) => (
        <input key={word} class="hide-narrow" aria-label={word} placeholder={word === "label" ? "label=value" : word} defaultValue={query.get(word) ?? ""}
          onChange={(event) => setQuery({ [word]: event.currentTarget.value })} />
      ))}
      <select class="hide-narrow" aria-label="Since" value={query.get("since") ?? ""} onChange={(event) => setQuery({ since: event.currentTarget.value })}>
        <option value="">any time</option><option value="1h">last hour</option><option value="24h">last day</option>
        <option value="7d">last week</option><option value="30d">last month</option>
      </select>
    </div>
  );
}

const AT_ONCE = 200;

/** The ids of all tasks that match, however many: a list is longer than what is shown of it. */
async function idsOf(filters: string, tell: (words: string) => void): Promise<string[]> {
  const ids: string[] = [];
  let cursor = "";
  do {
    const page = await get<Page>(`/api/tasks?${filters}&limit=${AT_ONCE}${cursor && `&cursor=${encodeURIComponent(cursor)}`}`);
    ids.push(...page.tasks.map((task) => task.id));
    tell(`${count(ids.length)} found`);
    cursor = page.next ?? "";
  } while (cursor);
  return ids;
}

/** The first two beside each other, and all of them as a grid. */
function compareAll(ids: string[]): void {
  const [first, second, ...others] = ids.slice(0, 20);
  const more = others.map((id) => `and=${encodeURIComponent(id)}`).join("&");
  go(`/compare/${escaped(first!)}/${escaped(second!)}${more && `?${more}`}`);
}

interface Told { id: string; ok: boolean; words: string; error: string | null }

function Bulk({ picked, filters, counts, onDone }: { picked: string[]; filters: string; counts: Counts | null; onDone: () => void }) {
  const [asking, ask] = useState<string | null>(null);
  const [all, setAll] = useState(false);
  const [progress, setProgress] = useState("");
  const [because, setBecause] = useState("");
  const [error, setError] = useState<Refusal | null>(null);
  const me = useMe();
  const run = async () => {
    try {
      const ids = all ? await idsOf(filters, setProgress) : picked;
      const done: Told[] = [];
      for (let i = 0; i < ids.length; i += AT_ONCE) {
        const body = { do: asking, ids: ids.slice(i, i + AT_ONCE), ...(because ? { because } : {}) };
        done.push(...(await post<{ done: Told[] }>("/api/bulk", body)).done);
        setProgress(`${count(done.length)} of ${count(ids.length)}`);
      }
      const refused = done.filter((one) => !one.ok);
      say(`${asking}: ${plural(done.length - refused.length, "task")}${refused.length ? `; ${refused.length} refused, the first: ${refused[0]!.error}` : ""}`);
      ask(null);
      onDone();
    } catch (problem) { if (problem instanceof Refusal) setError(problem); }
    finally { setProgress(""); }
  };
  const every = counts?.exact ? plural(counts.total, "task") : "tasks";
  const many = all ? `all ${every} that match` : plural(picked.length, "task");
  return (
    <div class="selected-bar">
      <b>{many} selected</b>
      {(counts?.total ?? 0) > picked.length && <button type="button" class="link" onClick={() => setAll(!all)}>{all ? `only the ${count(picked.length)} picked` : `select all ${every} that match`}</button>}
      {["retry", "resume", "pause", "cancel"].map((verb) => (
        <button type="button" key={verb} disabled={me?.read_only} onClick={() => { setError(null); ask(verb); }}>{verb[0]!.toUpperCase() + verb.slice(1)}…</button>
      ))}
      <button type="button" disabled={all || picked.length < 2} title={picked.length < 2 ? "select two or more" : "c"} onClick={() => compareAll(picked)}>Compare</button>
      <button type="button" class="plain" disabled={all} onClick={() => copy(picked.join("\n"), "ids copied")}>copy ids</button>
      {asking && (
        <Dialog title={`${asking[0]!.toUpperCase()}${asking.slice(1)} ${many}?`} onClose={() => ask(null)} onSubmit={run}
          footer={<><button type="button" onClick={() => ask(null)}>Leave them</button><button class={asking === "cancel" ? "warn" : "main"} disabled={progress !== ""}>{asking[0]!.toUpperCase() + asking.slice(1)}</button></>}>
          {all ? <p>Every task that matches the filters of this list, also those further down.</p>
            : <p class="mono dim">{plain(picked.slice(0, 12).join(", "))}{picked.length > 12 && ` and ${picked.length - 12} more`}</p>}
          {progress && <p class="num" role="status">{progress}</p>}
          {(asking === "pause" || asking === "cancel") && (
            <label class="field">Why (recorded with your name)<input type="text" value={because} onInput={(event) => setBecause(event.currentTarget.value)} /></label>
          )}
          {error && <Refused error={error} />}
        </Dialog>
      )}
    </div>
  );
}

export function TasksPlace({ route }: { route: Route }) {
  const filters = filtersOf(route.query);
  const tasks = useTasks(filters);
  const [tick, setTick] = useState(0);
  const counts = useGet<Counts>(`/api/tasks/count?${filters}`, tick);
  const box = useRef<HTMLDivElement>(null);
  const seen = useSeen(box, ROW, tasks.rows.length);
  const [at, setAt] = useState(0);
  const [picked, pick] = useState<Set<string>>(new Set());
  useTitle("Tasks");
  useLive(`/api/live?${filters}`, (name, data) => {
    if (name !== "tasks") return;
    tasks.arrive((data as { tasks: TaskRow[] }).tasks, (box.current?.scrollTop ?? 0) < ROW);
    setTick((n) => n + 1);
  }, ["tasks"]);
  useEffect(() => { if (seen.last > tasks.rows.length - 40) tasks.more(); }, [seen.last, tasks.rows.length]);
  const move = (to: number) => {
    const next = Math.max(0, Math.min(tasks.rows.length - 1, to));
    setAt(next);
    reveal(box.current, ROW, next);
  };
  const toggle = (id: string) => pick((old) => { const now = new Set(old); if (!now.delete(id)) now.add(id); return now; });
  useKeys({
    "/": () => document.getElementById("search")?.focus(),
    j: () => move(at + 1), k: () => move(at - 1), arrowdown: () => move(at + 1), arrowup: () => move(at - 1),
    pagedown: () => move(at + 20), pageup: () => move(at - 20),
    enter: () => tasks.rows[at] && go(taskAddress(tasks.rows[at]!.id)),
    x: () => tasks.rows[at] && toggle(tasks.rows[at]!.id),
    c: () => { const ids = [...picked]; if (ids.length >= 2) compareAll(ids); else say("Select two tasks with x, then c compares them."); },
    escape: () => pick(new Set()),
  });
  return (
    <div class="list">
      <Filters query={route.query} counts={counts.data} />
      {picked.size > 0 && <Bulk picked={[...picked]} filters={filters} counts={counts.data} onDone={() => { pick(new Set()); tasks.again(); }} />}
      {tasks.waiting.length > 0 && <div class="selected-bar"><button type="button" class="link" onClick={() => { tasks.takeWaiting(); box.current?.scrollTo(0, 0); }}>{plural(tasks.waiting.length, "new task")} above</button></div>}
      <div class="heads tasks-grid" aria-hidden="true">
        <span /><span>task</span><span class="hide-narrow">type</span><span>status</span>
        <span class="hide-narrow">where it is</span><span class="hide-narrow">user</span><span class="hide-narrow">began</span><span>changed</span>
      </div>
      {tasks.error && <div style={{ padding: "12px" }}><Refused error={tasks.error} /></div>}
      {!tasks.ready && <Loading what="Reading the list…" />}
      {tasks.ready && tasks.partial && <p class="empty" role="status">Searching further down…</p>}
      {tasks.ready && !tasks.error && !tasks.partial && tasks.rows.length === 0 && <p class="empty">{filters ? "No task matches." : "There is no task in this store yet."}</p>}
      <div class="scroller" ref={box} tabIndex={0} role="grid" aria-label="Tasks" aria-activedescendant={tasks.rows[at] && at >= seen.first && at < seen.last ? `row-${at}` : undefined} aria-rowcount={counts.data?.total ?? tasks.rows.length}>
        <div class="space" role="rowgroup" style={{ height: `${tasks.rows.length * ROW}px` }}>
          {tasks.rows.slice(seen.first, seen.last).map((task, i) => {
            const index = seen.first + i;
            return (
              <div class={`line tasks-grid${index === at ? " here" : ""}`} role="row" id={`row-${index}`} key={task.id} aria-rowindex={index + 1} aria-selected={picked.has(task.id)}
                style={{ top: `${index * ROW}px` }} onClick={() => setAt(index)}>
                <span role="gridcell"><input type="checkbox" aria-label={`Select ${task.id}`} checked={picked.has(task.id)} onChange={() => toggle(task.id)} /></span>
                <span role="gridcell" class="mono"><a href={taskAddress(task.id)}><bdi>{plain(task.id)}</bdi></a></span>
                <span role="gridcell" class="dim hide-narrow">{plain(task.type)}</span>
                <span role="gridcell"><Status status={task.status} note={task.note} /></span>
                <span role="gridcell" class="dim hide-narrow"><bdi>{plain(task.asks || task.position || "")}</bdi></span>
                <span role="gridcell" class="dim hide-narrow">{plain(task.user)}</span>
                <span role="gridcell" class="quiet num hide-narrow" title={moment(task.created_at)}>{ago(task.created_at)}</span>
                <span role="gridcell" class="quiet num" title={moment(task.updated_at)}>{ago(task.updated_at)}</span>
              </div>
            );
          })}
        </div>
      </div>
      <div class="filters quiet" style={{ borderTop: "1px solid var(--line)", borderBottom: 0 }}>
        <span class="num">{counts.data ? `${counts.data.exact ? "" : "more than "}${plural(counts.data.total, "task")}` : ""}</span>
        {counts.data && <button type="button" class="plain" style={{ marginLeft: "auto" }} title={counts.data.command} onClick={() => copy(counts.data!.command, "command copied")}>copy as command</button>}
      </div>
    </div>
  );
}
