/** The timeline: a row for each call, and time from left to right with idle stretches folded. Only
 * the rows in view are made, and with many calls the time in view is that of those rows. */

import type { RefObject } from "preact";
import { memo } from "preact/compat";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { CallRow, Line, Timeline } from "../api";
import { count, duration, moment, money, offset, plain } from "../format";
import { reveal, useSeen } from "../parts/virtual";
import { type Bar, INSTANT, barsOf, echoesOf, idleOf, sinceOf } from "./bars";
import type { Calls } from "./calls";
import { type Scale, place, round, scaleOf, timeAt } from "./scale";

export const ROW = 24;
const ANSWERED = new Set(["question", "approval"]);
const LOUD = new Set(["died", "took_over", "resumed", "rewound", "moved", "retried"]);

export interface Window { from: number; to: number }

interface Props {
  calls: Calls; times: Timeline; selected: string; seq: number | null; seqAt: string | null; goesOn: boolean;
  search: string; onSelect: (call: CallRow) => void; zoom: number; moveTo: { index: number; n: number } | null;
}

function Mark({ of, x }: { of: Bar["mark"]; x: number }) {
  if (of === "") return null;
  const at = { left: `${x}px` };
  switch (of) {
    case "cross": return <span class="mark bad" style={at}><svg viewBox="0 0 16 16"><path d="M4.5 4.500l7 7m0-7l-7 7" stroke="currentColor" stroke-width="2" /></svg></span>;
    case "query": return <span class="mark doubt" style={at}><svg viewBox="0 0 16 16"><path d="M5 6c0-4.500 6.500-3.500 5.800 0C10.400 8 8 7.800 8 10" fill="none" stroke="currentColor" stroke-width="1.900" /><circle cx="8" cy="13" r="1.200" fill="currentColor" /></svg></span>;
    case "check": return <span class="mark good" style={at}><svg viewBox="0 0 16 16"><path d="M4 8.500l3 3 5-7" fill="none" stroke="currentColor" stroke-width="1.900" /></svg></span>;
    case "diamond": return <span class="mark" style={at}><svg viewBox="0 0 16 16"><path d="M8 3l5 5-5 5-5-5z" fill="var(--raised)" stroke="var(--ink-2)" stroke-width="1.500" /></svg></span>;
  }
}

interface LaneProps {
  call: CallRow; index: number; selected: boolean; dim: boolean; later: boolean; x: (time: number) => number;
  now: number; lines: Line[]; onSelect: (call: CallRow) => void; width: number;
}

/** What the shapes of the bars say, for those who hear the page. */
function heardOf(call: CallRow): string {
  const failed = call.attempts.filter((attempt) => attempt.outcome === "failed").length;
  const how = call.answered ? "answered from the log, not run" : call.doubt ? "in doubt" : "";
  return [`, ${call.kind}`, call.status.replaceAll("_", " "), failed ? `${failed} failed attempts` : "", how].filter(Boolean).join(", ");
}

function afterWords(call: CallRow, now: number): string {
  const took = duration((call.ended_at ? Date.parse(call.ended_at) : now) - Date.parse(call.at));
  if (INSTANT.has(call.kind)) return call.words === call.status ? "" : call.words;
  const cost = (call.tokens ? ` · ${count(call.tokens)} tokens` : "") + (call.cost_usd ? ` · ${money(call.cost_usd)}` : "");
  if (!call.ended_at && call.until && call.kind === "sleep") return `waits until ${moment(call.until)}`;
  if (!call.ended_at && call.until && call.kind === "limit") return `waits for its limit until ${moment(call.until)}`;
  if (call.settled_by && ANSWERED.has(call.kind)) return `answered by ${call.settled_by} after ${took}`;
  if (call.settled_by) return `${call.settled_by === "check" ? "asked the check" : `settled by ${call.settled_by}`}: ${call.status === "completed" ? "it happened" : call.words}`;
  if (call.status === "completed") return `${call.attempts.length > 1 ? `${call.attempts.length} attempts · ` : ""}${call.answered ? "from the log" : took}${cost}`;
  const status = call.status.replaceAll("_", " ");
  return call.words.startsWith(status) ? call.words : [status, call.words].filter(Boolean).join(" · ");
}

const Lane = memo(function Lane({ call, index, selected, dim, later, x, now, lines, onSelect, width }: LaneProps) {
  const bars = barsOf(call, now, lines);
  const echoes = echoesOf(call, lines);
  const look = call.tokens !== null ? "model" : call.kind === "tool" ? "tool" : "";
  let right = 0;
  let gap: [number, number] = [0, 0]; // before the last bar
  const drawn = bars.map((bar, i) => {
    const from = x(bar.from);
    const to = Math.max(from, x(bar.to));
    gap = [right + 6, from - 6];
    right = Math.max(right, Math.max(to, from + (bar.look === "doubted" ? 14 : bar.look === "log" ? 8 : 2)) + (bar.mark ? 16 : 0));
    return (
      <>
        {bar.mark !== "diamond" && bar.mark !== "check" && (
          <span key={i} class={`bar ${bar.look} ${bar.look === "ran" ? look : ""}`} title={bar.words} style={{ left: `${from}px`, width: `${Math.max(2, to - from)}px` }} />
        )}
        <Mark of={bar.mark} x={bar.mark === "diamond" ? from - 8 : bar.mark === "check" ? from - 3 : Math.max(to, from + (bar.look === "doubted" ? 14 : 2)) - 1} />
      </>
    );
  });
  const words = afterWords(call, now);
  const plainEnd = Math.max(right, 0) + 6;
  const long = words.length * 6;
  const inTheWay = echoes.map((line) => x(Date.parse(line.at))).filter((at) => at > plainEnd - 12 && at < plainEnd + long);
  const textAt = inTheWay.length ? Math.max(...inTheWay) + 16 : plainEnd;
  const instant = INSTANT.has(call.kind);
  const ahead = Math.max(0, x(bars[0]?.from ?? 0) - (instant ? 14 : 6));
  const behind = width - textAt - 4;
  const between = bars.length > 1 && behind < long && gap[1] - gap[0] >= long;
  const flipped = !between && (instant ? textAt > width * 0.45 : behind < long && ahead > behind);
  const room = between ? gap[1] - gap[0] : flipped ? ahead : behind;
  // Three letters say nothing; and what is to come is not told in the time that was before it.
  const said = room < Math.min(long, 64) || (later && flipped) ? null : plain(words).slice(0, 160);
  return (
    <div class={`lane${later ? " later" : ""}${dim ? " unmatched" : ""}`} role="option" id={`call-${call.path}`} aria-selected={selected}
      style={{ top: `${index * ROW}px` }} onClick={() => onSelect(call)} data-path={call.path}>
      <div class="name" style={{ paddingLeft: `${12 + Math.min(call.depth, 8) * 12}px` }}>
        <span class="path">{INSTANT.has(call.kind) ? "" : plain(call.path)}</span>
        <span class={`call ${call.kind}`}><bdi>{plain(call.name)}</bdi></span>
        {call.child && <span class="child-id quiet"><bdi>{plain(call.child)}</bdi></span>}
        <span class="heard">{heardOf(call)}</span>
      </div>
      <div class="track">
        {drawn}
        {echoes.map((line) => <span key={line.seq} class="bar log" title={`answered from the log: ${line.words}`} style={{ left: `${x(Date.parse(line.at)) + 3}px`, width: "7px" }} />)}
        {said && <span class="after" title={plain(words)} style={{ [flipped || between ? "right" : "left"]: `${between ? width - gap[1] : flipped ? width - room : textAt}px`, maxWidth: `${room}px` }}>{said}</span>}
      </div>
    </div>
  );
});

/** The part of the scale that is shown: all of it, a zoomed part, or that of the rows in view. */
function windowOf(scale: Scale, shown: CallRow[], calls: Calls, zoom: number, focus: number | null, now: number): Window {
  let from = 0;
  let to = scale.width;
  if (!calls.whole && shown.length) {
    from = Math.min(...shown.map((call) => place(scale, Date.parse(call.at))));
    to = Math.max(...shown.map((call) => place(scale, call.ended_at ? Date.parse(call.ended_at) : now)));
  }
  const room = Math.max(to - from, 1);
  if (zoom > 1) {
    const wide = room / zoom;
    const middle = focus === null ? from + wide / 2 : Math.max(from + wide / 2, Math.min(to - wide / 2, focus));
    return { from: middle - wide / 2, to: middle + wide / 2 };
  }
  return { from: from - room * 0.008, to: to + room * 0.12 };
}

function useWidth(box: RefObject<HTMLElement | null>, names: RefObject<HTMLElement | null>): { names: number; track: number } {
  const [width, set] = useState({ names: 200, track: 800 });
  useLayoutEffect(() => {
    const measure = () => {
      const all = box.current?.clientWidth ?? 1000;
      const left = names.current?.offsetWidth ?? 200;
      set((old) => (old.names === left && old.track === all - left ? old : { names: left, track: Math.max(60, all - left) }));
    };
    measure();
    const watch = new ResizeObserver(measure);
    if (box.current) watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  return width;
}

function Axis({ scale, view, width, times, names }: { scale: Scale; view: Window; width: number; times: Timeline; names: RefObject<HTMLDivElement | null> }) {
  const x = (time: number) => ((place(scale, time) - view.from) / (view.to - view.from)) * width;
  const step = round(((view.to - view.from) / width) * 110);
  let free = -1;
  const flags: { at: number; kind: string; words: string; whole: string }[] = [];
  const add = (at: number, kind: string, words: string, whole: string) => {
    if (at < -1 || at > width) return;
    const room = words.length * 6.2 + 14;
    const left = Math.max(Math.min(at, width - room), free);  // beside the one before, if that is near
    if (left > at + 110 || left > width - room) return;
    flags.push({ at: left, kind, words, whole });
    free = left + room;
  };
  const marks: [number, string, string, string][] = [
    ...times.lines.filter((line) => LOUD.has(line.kind)).map((line): [number, string, string, string] => [x(Date.parse(line.at)), line.kind, flagWords(line), line.words]),
  ];
  marks.sort((a, b) => a[0] - b[0]);
  for (const mark of marks) add(...mark);
  const ticks: { at: number; words: string }[] = [];
  for (let u = Math.max(0, Math.ceil(view.from / step) * step); u < view.to && ticks.length < 40; u += step) {
    const fold = scale.stretches.find((one) => one.folded && u > one.at && u < one.at + one.width);
    const at = ((u - view.from) / (view.to - view.from)) * width;
    const words = offset(timeAt(scale, u) - scale.began, step);
    const ends = at + words.length * 6.2 + 6;
    const hidden = ends > width || flags.some((flag) => flag.at < ends && flag.at + flag.words.length * 6.2 + 14 > at);
    if (!fold) ticks.push({ at, words: hidden ? "" : words });
  }
  return (
    <div class="axis" aria-hidden="true">
      <div class="names" ref={names}><span>call</span><span>{duration(scale.ended - scale.began)}</span></div>
      <div class="ticks">
        {ticks.map((tick) => <span class="tick" key={tick.at} style={{ left: `${tick.at}px` }}>{tick.words}</span>)}
        {flags.map((flag) => <span class={`flag ${flag.kind}`} key={`${flag.at} ${flag.kind}`} title={plain(flag.whole)} style={{ left: `${flag.at}px` }}>{plain(flag.words)}</span>)}
      </div>
    </div>
  );
}

function flagWords(line: Line): string {
  switch (line.kind) {
    case "died": return "✕ process died";
    case "took_over": return "taken over";
    case "resumed": return "resumed";
    case "rewound": return "rewound";
    case "moved": return "moved";
    default: return line.kind;
  }
}

interface LayerProps { scale: Scale; view: Window; width: number; left: number }

function layer(left: number, width: number): Record<string, string> {
  return { position: "absolute", left: `${left}px`, width: `${width}px`, top: "0", bottom: "0", overflow: "hidden", pointerEvents: "none" };
}

/** Where time is folded: behind the bars, with how long it was. */
function Folds({ scale, view, width, left }: LayerProps) {
  const of = (at: number) => ((at - view.from) / (view.to - view.from)) * width;
  const inside = (at: number) => at >= 0 && at <= width;
  return (
    <div aria-hidden="true" style={layer(left, width)}>
      {scale.stretches.filter((one) => one.folded && inside(of(one.at + one.width / 2))).slice(0, 200).map((one) => (
        <i key={one.at} class="fold" style={{ left: `${of(one.at)}px`, width: `${Math.max(8, of(one.at + one.width) - of(one.at))}px` }}><span>{duration(one.to - one.from)}</span></i>
      ))}
    </div>
  );
}

/** Lines across all rows: a process died, another took over; and where the slider is. */
function Rules({ scale, view, width, left, times, cursor }: LayerProps & { times: Timeline; cursor: number | null }) {
  const of = (at: number) => ((at - view.from) / (view.to - view.from)) * width;
  const inside = (at: number) => at >= 0 && at <= width;
  return (
    <div aria-hidden="true" style={layer(left, width)}>
      {times.lines.filter((line) => LOUD.has(line.kind) && inside(of(place(scale, Date.parse(line.at))))).slice(0, 200).map((line) => (
        <i key={`${line.seq} ${line.kind}`} class={`rule ${line.kind === "died" ? "died" : line.kind === "rewound" ? "rewound" : "took"}`} style={{ left: `${of(place(scale, Date.parse(line.at)))}px` }} />
      ))}
      {cursor !== null && (
        <>
          <i class="beyond" style={{ position: "absolute", top: 0, bottom: 0, right: 0, left: `${Math.max(0, of(cursor))}px`, background: "var(--paper)", opacity: 0.5 }} />
          {inside(of(cursor)) && <i class="rule cursor" style={{ left: `${of(cursor)}px` }} />}
        </>
      )}
    </div>
  );
}

export function TimelineView({ calls, times, selected, seq, seqAt, goesOn, search, onSelect, zoom, moveTo }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const names = useRef<HTMLDivElement>(null);
  const seen = useSeen(box, ROW, calls.total);
  const width = useWidth(box, names);
  // A task that is not over goes on to now; its last event is the end of any other.
  const last = Date.parse(times.ended);
  const now = goesOn ? Math.max(Date.parse(times.now), last) : Math.min(Date.parse(times.now), last);
  const scale = useMemo(() => {
    const gaps = times.gaps.map(([a, b]): [number, number] => [Date.parse(a), Date.parse(b)]);
    const began = Date.parse(times.began);
    const idle = gaps.length || !calls.whole ? gaps : idleOf(calls, times.lines, began, last);
    const busy = idle.reduce((rest, [from, to]) => rest - (to - from), last - began);
    return scaleOf(began, now, [...idle, ...sinceOf(calls, busy, last, now)]);
  }, [times, calls, now]);
  const shown: { call: CallRow; index: number }[] = [];
  for (let i = seen.first; i < seen.last; i++) {
    const call = calls.at(i);
    if (call) shown.push({ call, index: i });
  }
  const cursor = seq === null || seqAt === null ? null : place(scale, Date.parse(seqAt));
  const picked = shown.find((one) => one.call.path === selected)?.call;
  const focus = picked ? place(scale, Date.parse(picked.at)) : cursor;
  const view = windowOf(scale, shown.map((one) => one.call), calls, zoom, focus, now);
  const x = useMemo(() => (time: number) => ((place(scale, time) - view.from) / (view.to - view.from)) * width.track, [scale, view.from, view.to, width.track]);
  useEffect(() => { if (moveTo) reveal(box.current, ROW, moveTo.index); }, [moveTo?.n]);
  const wanted = search.toLowerCase();
  return (
    <div class="timeline">
      <Axis scale={scale} view={view} width={width.track} times={times} names={names} />
      <div style={{ flex: 1, minHeight: 0, position: "relative", display: "flex" }}>
        {times.total_calls > 0 && <Folds scale={scale} view={view} width={width.track} left={width.names} />}
        {times.total_calls === 0 && <p class="empty" style={{ position: "absolute", inset: 0 }}>It has made no call.</p>}
        <div class="lanes" ref={box} role="listbox" tabIndex={0} aria-label="Calls on a timeline" aria-activedescendant={picked ? `call-${selected}` : undefined}>
          <div role="presentation" style={{ height: `${calls.total * ROW}px`, position: "relative" }}>
            {shown.map(({ call, index }) => (
              <Lane key={index} call={call} index={index} selected={call.path === selected} later={seq !== null && call.seq > seq}
                dim={wanted !== "" && !`${call.path} ${call.name} ${call.words}`.toLowerCase().includes(wanted)}
                x={x} now={now} lines={times.lines} onSelect={onSelect} width={width.track} />
            ))}
          </div>
        </div>
        <Rules scale={scale} view={view} width={width.track} left={width.names} times={times} cursor={cursor} />
      </div>
    </div>
  );
}
