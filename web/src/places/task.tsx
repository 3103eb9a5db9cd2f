/** One task. Time is a place: moving the slider moves everything, and the address with it. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { type CallDetail, type CallRow, type EventRow, type StateView, type TaskView, type Timeline, get, of, useAsking, useGet, useLive } from "../api";
import { ago, count, duration, moment, money, plain, plural } from "../format";
import { useKeys } from "../keys";
import { Command, Dialog, Loading, Refused, Status, Tabs, copy, say, useMe, useSettled, useTitle } from "../parts/basics";
import { ForkDialog, ReplayDialog, RewindDialog } from "../parts/branching";
import { CallPane } from "../parts/call";
import { FailureView } from "../parts/failure";
import { NeedActions, askOf, useDoing } from "../parts/needs";
import { Changes, ValueView, briefValue, marksOf } from "../parts/value";
import { escaped, go, setQuery, taskAddress } from "../route";
import { type Calls, useCalls } from "../timeline/calls";
import { Slider } from "../timeline/slider";
import { TimelineView } from "../timeline/timeline";
import { LogTab } from "./log";
import { ConversationTab, FilesTab, PlanTab, TreeTab, WhyTab } from "./tabs";

const FEW = 1000;
const OVER = new Set(["completed", "failed", "cancelled"]);
const PLAY_MS = 260;

function Header({ view, onDone, past }: { view: TaskView; onDone: () => void; past: boolean }) {
  const doubt = view.needs.some((need) => need.kind === "doubt");
  const facts = [
    view.position.text, duration(past ? Date.parse(view.updated_at) - Date.parse(view.created_at) : view.duration_s * 1000), plural(view.processes, "process", "processes"),
    view.tokens ? `${count(view.tokens)} tokens` : "", money(view.cost_usd),
  ].filter(Boolean);
  return (
    <>
      <header>
        <h1 class="cut" title={view.id}><bdi>{plain(view.id)}</bdi></h1>
        <span class="dim"><bdi>{plain(view.type)}</bdi></span>
        {doubt && !past ? <span class="status doubt"><Status status="in_doubt" /></span> : <Status status={view.status} note={past ? "" : view.note ?? ""} />}
        {view.user && <span class="dim hide-narrow">for <bdi>{plain(view.user)}</bdi></span>}
        {view.session && <a class="hide-narrow" href={`/sessions/${escaped(view.session)}`}>conversation</a>}
        {view.parent && <a class="hide-narrow" href={taskAddress(view.parent)}>parent {plain(view.parent)}</a>}
        {view.fork && <a href={`/compare/${escaped(view.fork.of)}/${escaped(view.id)}`} title={view.fork.words}>fork of {plain(view.fork.of)}</a>}
        {past && <span class="tag">as of event {view.seq}</span>}
        <div class="facts">{facts.map((fact) => <span key={fact}>{plain(fact)}</span>)}</div>
      </header>
      {view.damage && <p class="todo bad" role="alert"><bdi>{plain(view.damage)}</bdi></p>}
      {!past && <Todo view={view} onDone={onDone} />}
    </>
  );
}

function Todo({ view, onDone }: { view: TaskView; onDone: () => void }) {
  const doing = useDoing(onDone);
  const me = useMe();
  const need = view.needs[0];
  const finished = view.status === "completed";
  if (!need && (finished || !view.todo)) return null;
  const offered = view.actions.filter((action) => ["retry", "resume", "unpause", "compensate"].includes(action.do) && action.enabled);
  return (
    <div class={`todo ${need?.kind === "failed" ? "bad" : need ? "" : "calm"}`} role="region" aria-label="What to do">
      <span class="words"><b>{need || offered.length > 0 ? "What to do" : "Now"}: </b><bdi>{plain(need ? askOf(need) : view.todo)}</bdi>{!need && view.wake_at && <span class="dim"> It goes on {ago(view.wake_at)}, at {moment(view.wake_at)}.</span>}{need?.call && <span class="mono dim"> {plain(briefValue(need.call.input, 90))}</span>}</span>
      {need ? <NeedActions need={need} onDone={onDone} key={`${need.kind} ${need.id}`} /> : (
        <span class="buttons">{offered.map((action) => <button type="button" key={action.do} disabled={doing.busy || me?.read_only} title={action.command} onClick={() => doing.run(of.task(view.id, action.do === "unpause" ? "/resume" : `/${action.do}`), {})}>{plain(action.label)}</button>)}</span>
      )}
      {need && view.todo && view.todo !== need.title && <span class="dim">{plain(view.todo)}</span>}
      {view.needs.length > 1 && <a href="/">{view.needs.length - 1} more</a>}
      {doing.error && <Refused error={doing.error} />}
    </div>
  );
}

function More({ view, onClose, onDone }: { view: TaskView; onClose: () => void; onDone: () => void }) {
  const doing = useDoing(() => { onDone(); onClose(); });
  const me = useMe();
  const [because, setBecause] = useState("");
  const act = (verb: string) => doing.run(of.task(view.id, `/${verb}`), because ? { because } : {});
  const can = (verb: string) => view.actions.some((action) => action.do === verb && action.enabled) && !me?.read_only;
  return (
    <Dialog title={view.id} onClose={onClose}>
      {["pause", "cancel", "compensate"].some(can) && <section><h2>Stop it</h2>
        <p style={{ margin: "6px 0" }}><input type="text" aria-label="Why" placeholder="why (recorded with your name)" style={{ width: "100%" }} value={because} onInput={(event) => setBecause(event.currentTarget.value)} /></p>
        <div class="buttons">{["pause", "cancel", "compensate"].map((verb) => <button type="button" key={verb} class={verb === "pause" ? "" : "warn"} disabled={!can(verb) || doing.busy} title={view.actions.find((one) => one.do === verb)?.why_not} onClick={() => act(verb)}>{verb === "compensate" ? "Undo what it did" : verb[0]!.toUpperCase() + verb.slice(1)}</button>)}</div>
      </section>}
      {doing.error && <Refused error={doing.error} />}
      <section><h2>On the command line</h2>{Object.values(view.commands).map((line) => <p key={line}><Command line={line} /></p>)}</section>
      <section><h2>Take it along</h2><p><a href={of.task(view.id, "/export")} download>Export as one HTML file</a>, which works offline · <a href={of.task(view.id, "/audit")} download>audit</a> · <button type="button" class="link" onClick={() => copy(location.href, "address copied")}>copy this address</button></p></section>
      {view.forks.length > 0 && <section><h2>Forks</h2><ul>{view.forks.map((id) => <li key={id}><a href={taskAddress(id)} onClick={onClose}>{plain(id)}</a> · <a href={`/compare/${escaped(view.id)}/${escaped(id)}`} onClick={onClose}>compare</a></li>)}</ul>
        {view.forks.length > 1 && <p><a href={`/compare/${escaped(view.id)}/${escaped(view.forks[0]!)}?${view.forks.slice(1, 11).map((id) => `and=${encodeURIComponent(id)}`).join("&")}`} onClick={onClose}>All of them as a grid</a></p>}</section>}
      <section><h2>Facts</h2><dl class="facts-list">
        <dt>began</dt><dd>{moment(view.created_at)}</dd><dt>changed</dt><dd>{moment(view.updated_at)}</dd><dt>engine</dt><dd>{plain(view.engine || "local")}</dd><dt>driven by</dt><dd>{plain(view.at_work ?? "nobody now")}</dd>
        {Object.entries(view.labels).map(([name, value]) => <><dt>{plain(name)}</dt><dd>{plain(value)}</dd></>)}
        {view.children.length > 0 && <><dt>children</dt><dd>{view.children.slice(0, 40).map((child) => <span key={child.id}><a href={taskAddress(child.id)} onClick={onClose}>{plain(child.id)}</a> {child.status} </span>)}</dd></>}
      </dl></section>
    </Dialog>
  );
}

function StatePane({ id, at, title, now }: { id: string; at: number; title: string; now: boolean }) {
  const got = useGet<StateView>(of.task(id, `/state?at=${at}`));
  const data = got.data;
  return (
    <section class="pane" aria-label="What it knew here">
      <header><h2>{plain(title)}</h2><span class="grow" />{data && <span class="quiet num">event {data.seq}</span>}</header>
      <div class="inside" tabIndex={0} aria-label="State" role="group" data-state-at={data?.seq ?? ""}>
        {got.error && <Refused error={got.error} />}
        {!data && !got.error && <Loading />}
        {data && (
          <>
            <section class="section"><h3>changed since event {data.since}</h3><Changes of={data.changes.slice(0, 60)} />{data.changes.length > 60 && <p class="quiet">{data.changes.length - 60} more</p>}</section>
            <section class="section"><h3>{now ? "all it knows" : "all it knew"}</h3><ValueView of={data.state} open={1} marks={marksOf(data.changes)} tidy /></section>
          </>
        )}
      </div>
    </section>
  );
}

function TaskFacts({ view }: { view: TaskView }) {
  return (
    <div>
      {view.failure && <section class="section"><h3>failed</h3><FailureView of={view.failure} open /></section>}
      <section class="section"><h3>input</h3><ValueView of={view.input} /></section>
      {view.result && <section class="section"><h3>result</h3><ValueView of={view.result} open={3} /></section>}
      <p class="quiet section">Choose a call above<span class="hide-narrow">, or with <kbd>j</kbd> and <kbd>k</kbd></span>.</p>
    </div>
  );
}

/** The events of a log that fits: for the marks of the slider, and for the sentence of each place. */
function useEvents(id: string, head: number): EventRow[] {
  const [events, set] = useState<EventRow[]>([]);
  const path = head === 0 || head > FEW ? null : of.task(id, `/events?after=0&limit=${FEW}`);
  useAsking<{ events: EventRow[] }>(path, head, { came: (page) => set(page.events) });
  return events;
}

/** How much room the upper half takes: what its rows need, what the reader chose, or all of it. */
function upperStyle(lower: boolean, split: number | null, rows: number | null): Record<string, string> {
  if (!lower) return { "--tall": "1", "--height": "auto", overflow: "auto" };
  if (split !== null) return { "--tall": `0 0 ${split * 100}%` };
  if (rows === null) return {};
  const px = Math.max(120, 34 + rows * 24);
  return { "--tall": `0 1 ${px}px`, "--most": "60%", "--height": `${px}px` };
}

/** The calls that are being made, of a task that is shown whole: they may stream. */
function runningIn(calls: Calls): CallRow[] {
  const found: CallRow[] = [];
  for (let i = 0; calls.whole && i < calls.total; i++) {
    const call = calls.at(i);
    if (call && !call.ended_at && (call.kind === "step" || call.kind === "tool") && call.status === "running") found.push(call);
  }
  return found.slice(-4);
}

interface Cursor { seq: number | null; head: number; move: (seq: number | null) => void }

/** ← → [ ] and play: moving along the events. */
function usePlaying(cursor: Cursor): [boolean, () => void] {
  const [playing, set] = useState(false);
  const held = useRef(cursor);
  held.current = cursor;
  useEffect(() => {
    if (!playing) return;
    const timer = window.setInterval(() => {
      const { seq, head, move } = held.current;
      const next = (seq ?? head) + 1;
      if (next >= head) { move(null); set(false); } else move(next);
    }, PLAY_MS);
    return () => clearInterval(timer);
  }, [playing]);
  return [playing, () => { if (!playing && cursor.seq === null) cursor.move(1); set(!playing); }];
}

function useSteps(id: string, calls: Calls, cursor: Cursor, selected: string, select: (call: CallRow, index: number) => void) {
  const moveCall = (by: number) => {
    const now = selected ? calls.indexOf(selected) : -1;
    const next = Math.max(0, Math.min(calls.total - 1, now < 0 ? (by > 0 ? 0 : calls.total - 1) : now + by));
    const call = calls.at(next);
    if (call) select(call, next);
  };
  const moveStep = async (by: number) => {
    const at = cursor.seq ?? cursor.head;
    if (calls.whole) {
      const steps: { call: CallRow; index: number }[] = [];
      for (let i = 0; i < calls.total; i++) { const call = calls.at(i); if (call && call.scope === "") steps.push({ call, index: i }); }
      steps.sort((a, b) => a.call.seq - b.call.seq);
      const found = by > 0 ? steps.find((one) => one.call.seq - 1 > at) : steps.findLast((one) => one.call.seq - 1 < at);
      if (found) { select(found.call, found.index); cursor.move(Math.max(1, found.call.seq - 1)); }
      else if (by > 0) cursor.move(null);
      return;
    }
    const near = await calls.near(at);
    const index = Math.max(0, Math.min(calls.total - 1, (near?.index ?? 0) + by));
    const call = calls.at(index) ?? (await get<{ calls: CallRow[] }>(of.task(id, `/calls?offset=${index}&limit=1`))).calls[0];
    if (call) { select(call, index); cursor.move(Math.max(1, call.seq - 1)); }
  };
  return { moveCall, moveStep };
}

export function TaskPlace({ id, seq: placed, query }: { id: string; seq: number | null; query: URLSearchParams }) {
  const me = useMe();
  const [fresh, setFresh] = useState(0);
  const [newest, setNewest] = useState(0);
  const asked = useSettled(placed, 60);
  const got = useGet<TaskView>(of.task(id, asked === null ? "" : `?at=${asked}`), fresh);
  const times = useGet<Timeline>(of.task(id, "/timeline"), fresh);
  const view = got.data;
  const head = Math.max(view?.head ?? 0, newest);
  const events = useEvents(id, head);
  const calls = useCalls(id, times.data?.total_calls ?? null, fresh, query.has("all"), events);
  const tab = query.get("tab") ?? "timeline";
  const selected = query.get("call") ?? "";
  const [dialog, setDialog] = useState<"" | "fork" | "rewind" | "replay" | "more" | "call">("");
  const [zoom, setZoom] = useState(1);
  const [search, setSearch] = useState("");
  const [moveTo, setMoveTo] = useState<{ index: number; n: number } | null>(null);
  const [split, setSplit] = useState<number | null>(null);
  const again = useCallback(() => setFresh((n) => n + 1), []);
  useTitle(id);
  const pending = useRef(0);
  const live = useLive(view ? `/api/live/tasks/${escaped(id)}?after=${view.head}` : null, (name, data) => {
    if (name === "events") setNewest((old) => Math.max(old, (data as { head: number }).head));
    if (name === "gone") say("This task was deleted.");
    if (!pending.current) pending.current = window.setTimeout(() => { pending.current = 0; again(); }, 500);
  }, ["events", "task", "gone"]);
  const move = useCallback((seq: number | null) => {
    const words = new URLSearchParams(location.search);
    go(taskAddress(id, seq, words.size ? `?${words}` : ""), true);
  }, [id]);
  const cursor: Cursor = { seq: placed, head, move };
  const [playing, play] = usePlaying(cursor);
  const scrollTo = (index: number) => setMoveTo((old) => ({ index, n: (old?.n ?? 0) + 1 }));
  const select = (call: CallRow, index?: number) => {
    setQuery({ call: call.path });
    const at = index ?? calls.indexOf(call.path);
    if (at >= 0) scrollTo(at);
  };
  useEffect(() => { // an address may name a call far down
    if (!selected || calls.total === 0) return;
    const here = calls.indexOf(selected);
    if (here >= 0) return scrollTo(here);
    const stop = new AbortController();
    get<CallDetail>(of.call(id, selected), stop.signal).then((call) => scrollTo(call.index), () => undefined);
    return () => stop.abort();
  }, [id, selected, calls.total > 0]);
  const { moveCall, moveStep } = useSteps(id, calls, cursor, selected, select);
  const picked = selected ? calls.at(calls.indexOf(selected)) : undefined;
  const stepEvent = (by: number) => {
    const next = Math.max(1, Math.min(head, (placed ?? head) + by));
    move(next >= head ? null : next);
  };
  const beforeAfter = () => {
    if (!picked) return say("Choose a call with j or k first.");
    const before = Math.max(1, picked.seq - 1);
    move((placed ?? head) === before ? picked.ended_seq || null : before);
  };
  const compare = () => {
    const other = view?.fork?.of ?? view?.forks[0];
    if (other === undefined) return say("It has no fork to compare with. f makes one.");
    return go(view?.fork ? `/compare/${escaped(other)}/${escaped(id)}` : `/compare/${escaped(id)}/${escaped(other)}`);
  };
  const change = (what: "fork" | "rewind") => (me?.read_only ? say("This page is read-only.") : setDialog(what));
  const tabs = [
    { name: "timeline", label: "Timeline" }, { name: "tree", label: "Tree" }, { name: "log", label: "Log" },
    ...(view?.session || view?.model_calls ? [{ name: "conversation", label: "Conversation" }] : []),
    { name: "files", label: view?.files ? `Files ${view.files}` : "Files" }, { name: "plan", label: "Plan" }, { name: "why", label: "Why" },
  ];
  const tabKeys = Object.fromEntries(tabs.map((one, i) => [String(i + 1), () => setQuery({ tab: i ? one.name : null })]));
  useKeys({
    ...tabKeys, "/": () => document.getElementById("search")?.focus(),
    j: () => moveCall(1), k: () => moveCall(-1), arrowdown: () => moveCall(1), arrowup: () => moveCall(-1),
    arrowleft: () => stepEvent(-1), arrowright: () => stepEvent(1), "[": () => void moveStep(-1), "]": () => void moveStep(1),
    home: () => move(1), end: () => move(null), b: beforeAfter, space: play, f: () => change("fork"), r: () => change("rewind"), p: () => setDialog("replay"), c: compare,
    enter: () => picked && (picked.child ? go(taskAddress(picked.child)) : setDialog("call")),
    "+": () => setZoom((z) => Math.min(4096, z * 2)), "=": () => setZoom((z) => Math.min(4096, z * 2)), "-": () => setZoom((z) => Math.max(1, z / 2)), "0": () => setZoom(1),
    a: () => setQuery({ all: query.has("all") ? null : "1" }), y: () => void copy(location.href, "address copied"), m: () => setDialog("more"), escape: () => { setQuery({ call: null }); setSearch(""); },
  });
  const find = async () => {
    if (!search) return;
    const from = placed ?? 0;
    const found = await get<{ hits: EventRow[]; searched_to: number }>(of.task(id, `/search?q=${encodeURIComponent(search)}&after=${from >= head ? 0 : from}&limit=1`));
    const hit = found.hits[0] ?? (from ? (await get<{ hits: EventRow[] }>(of.task(id, `/search?q=${encodeURIComponent(search)}&after=0&limit=1`))).hits[0] : undefined);
    if (!hit) return say(`Nothing in the log says ${search}.`);
    move(hit.seq);
    const near = await calls.near(hit.seq);
    if (near) select(near.call, near.index);
  };
  if (got.error && !view) return <div class="column"><Refused error={got.error} /></div>;
  if (!view || !times.data) return <Loading />;
  const at = placed ?? head;
  const event = events[at - 1];
  const title = picked && at === picked.seq - 1 ? `what it knew before ${picked.path} ${picked.name}` : picked && at === picked.ended_seq ? `what it knew after ${picked.path} ${picked.name}` : placed === null ? "what it knows" : "what it knew here";
  const isLater = picked !== undefined && placed !== null && picked.seq > placed;
  const lower = tab === "timeline" || tab === "tree" || tab === "log";
  const drag = (down: PointerEvent) => {
    const bar = down.currentTarget as HTMLElement;
    bar.setPointerCapture(down.pointerId);
    const box = bar.parentElement!.getBoundingClientRect();
    bar.onpointermove = (moved) => setSplit(Math.max(0.15, Math.min(0.85, (moved.clientY - box.top) / box.height)));
    bar.onpointerup = () => { bar.onpointermove = null; };
  };
  return (
    <div class="task">
      <Header view={view} onDone={again} past={placed !== null} />
      <Tabs tabs={tabs} at={tab} label="Views of this task" onPick={(name) => setQuery({ tab: name === "timeline" ? null : name })}>
        <input type="search" id="search" class="hide-narrow" aria-label="Search the log" placeholder="search  ( / )" value={search} onInput={(event) => setSearch(event.currentTarget.value)}
          onKeyDown={(event) => { if (event.key === "Enter") { event.preventDefault(); void find(); } }} />
        <button type="button" class="plain" disabled={me?.read_only} onClick={() => change("fork")}>Fork <kbd>f</kbd></button>
        <button type="button" class="plain" disabled={me?.read_only} onClick={() => change("rewind")}>Rewind <kbd>r</kbd></button>
        <button type="button" class="plain hide-narrow" onClick={() => setDialog("replay")}>Replay <kbd>p</kbd></button>
        <button type="button" class="plain hide-narrow" onClick={compare}>Compare <kbd>c</kbd></button>
        <button type="button" class="plain" onClick={() => setDialog("more")} aria-label="More: stop, command line, export">More</button>
      </Tabs>
      <p class="heard" role="status" aria-live="polite">{event ? `event ${at}: ${event.path} ${event.name} ${event.sentence}` : `event ${at}`}</p>
      <div class="work" id="tab-panel" role="tabpanel" aria-labelledby={`tab-${tab}`}>
        <div class="upper" style={upperStyle(lower, split, tab === "log" ? null : calls.total)}>
          {tab === "timeline" && <TimelineView calls={calls} times={times.data} goesOn={placed === null && !OVER.has(view.status)} selected={selected} seq={placed} seqAt={event?.at ?? (asked === null ? null : view.updated_at)} search={search} zoom={zoom} moveTo={moveTo} onSelect={(call) => select(call)} />}
          {tab === "tree" && <TreeTab calls={calls} selected={selected} seq={placed} onSelect={(call) => select(call)} moveTo={moveTo} />}
          {tab === "log" && <LogTab id={id} head={head} seq={placed} fresh={fresh} onMove={(seq) => move(seq >= head ? null : seq)} search={search} />}
          {tab === "conversation" && <ConversationTab id={id} session={view.session} seq={placed} fresh={fresh} models={view.model_calls} running={placed === null ? runningIn(calls) : []} />}
          {tab === "files" && <FilesTab id={id} seq={placed} fresh={fresh} />}
          {tab === "plan" && <PlanTab id={id} seq={placed} fresh={fresh} onMove={(seq) => move(seq)} />}
          {tab === "why" && <WhyTab id={id} seq={placed} fresh={fresh} />}
        </div>
        <Slider head={head} seq={placed} sentence={event?.sentence ?? ""} lines={times.data.lines} events={events} playing={playing} live={live} onMove={move} onPlay={play} />
        {lower && (
          <>
            <div class="splitter" onPointerDown={drag} />
            <div class="lower">
              <StatePane id={id} at={asked ?? head} title={title} now={placed === null} />
              <section class="pane" aria-label="The call">
                <header><h2>{picked ? <><span class="quiet mono">{plain(picked.path)}</span> {plain(picked.name)}</> : selected || "the task"}</h2>{picked && <span class="quiet">{picked.kind}</span>}{isLater && <span class="tag">not begun at event {placed}</span>}</header>
                <div class={`inside${isLater ? " later" : ""}`} tabIndex={0} role="group" aria-label="The call's details">
                  {selected ? <CallPane key={selected} task={id} path={selected} fresh={fresh} at={asked !== null && picked && picked.seq <= asked ? asked : null} onPlace={(seq) => move(seq >= head ? null : seq)} /> : <TaskFacts view={view} />}
                </div>
              </section>
            </div>
          </>
        )}
      </div>
      {dialog === "fork" && <ForkDialog task={view} call={selected} seq={placed} onClose={() => setDialog("")} />}
      {dialog === "rewind" && <RewindDialog task={view} call={selected} seq={placed} onClose={() => setDialog("")} onDone={again} />}
      {dialog === "replay" && <ReplayDialog task={view} call={selected} onClose={() => setDialog("")} />}
      {dialog === "more" && <More view={view} onClose={() => setDialog("")} onDone={again} />}
      {dialog === "call" && picked && <Dialog title={`${picked.path} ${picked.name}`} onClose={() => setDialog("")}><CallPane task={id} path={selected} at={null} onPlace={(seq) => { setDialog(""); move(seq >= head ? null : seq); }} /></Dialog>}
    </div>
  );
}
