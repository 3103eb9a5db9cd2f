/** The slider over events: time as a place. Its marks are where a process died, where another took
 * over, and where the eye should go first. */

import { useEffect, useRef } from "preact/hooks";
import type { EventRow, Line } from "../api";
import { count } from "../format";

interface Props {
  head: number; seq: number | null; sentence: string; lines: Line[]; events: EventRow[]; playing: boolean; live: boolean;
  onMove: (seq: number | null) => void; onPlay: () => void;
}

function colour(canvas: HTMLCanvasElement, name: string): string {
  const probe = canvas.parentElement!;
  const before = probe.style.color;
  probe.style.color = `var(${name})`;
  const made = getComputedStyle(probe).color;
  probe.style.color = before;
  return made;
}

function draw(canvas: HTMLCanvasElement, head: number, lines: Line[], events: EventRow[]): void {
  const ratio = devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const ink = canvas.getContext("2d");
  if (!ink || head < 1) return;
  ink.scale(ratio, ratio);
  const x = (seq: number) => (head === 1 ? 0 : ((seq - 1) / (head - 1)) * (width - 2)) + 1;
  const quiet = colour(canvas, "--line-strong");
  const tones: Record<string, string> = { bad: colour(canvas, "--bad"), doubt: colour(canvas, "--doubt"), good: colour(canvas, "--bar") };
  ink.fillStyle = quiet;
  ink.fillRect(0, height - 6, width, 1);
  for (const event of events) {
    ink.fillStyle = tones[event.tone] ?? quiet;
    const tall = event.strong ? 15 : event.tone === "bad" || event.tone === "doubt" ? 12 : event.minor || event.tone === "quiet" ? 3 : 7;
    ink.fillRect(x(event.seq) - 0.75, height - 6 - tall, 1.5, tall);
  }
  for (const line of lines) {
    if (line.kind === "checkpoint" || line.kind === "begun" || line.kind === "ended") continue;
    ink.fillStyle = line.kind === "died" ? tones.bad! : colour(canvas, "--ink-3");
    ink.fillRect(x(line.seq) - 0.75, 1, 1.5, height - 3);
  }
}

export function Slider({ head, seq, sentence, lines, events, playing, live, onMove, onPlay }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const strip = useRef<HTMLDivElement>(null);
  const at = seq ?? head;
  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const again = () => draw(element, head, lines, events);
    again();
    const watch = new ResizeObserver(again);
    watch.observe(element);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", again);
    const themed = new MutationObserver(again);
    themed.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    return () => { watch.disconnect(); themed.disconnect(); scheme.removeEventListener("change", again); };
  }, [head, lines, events]);
  const pick = (event: PointerEvent) => {
    const box = strip.current!.getBoundingClientRect();
    const share = Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
    const next = Math.round(1 + share * (head - 1));
    onMove(next >= head ? null : next);
  };
  const key = (event: KeyboardEvent) => {
    const steps: Record<string, number> = { ArrowLeft: at - 1, ArrowRight: at + 1, ArrowDown: at - 1, ArrowUp: at + 1, PageDown: at - 10, PageUp: at + 10, Home: 1, End: head };
    const to = steps[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const next = Math.max(1, Math.min(head, to));
    onMove(next === head ? null : next);
  };
  return (
    <div class="slider">
      <button type="button" class="plain" onClick={onPlay} aria-label={playing ? "Stop playing" : "Play the events"} title="space">{playing ? "❚❚" : "▶"}</button>
      <div class="strip" ref={strip} role="slider" tabIndex={0} aria-label="Event" aria-valuemin={1} aria-valuemax={head} aria-valuenow={at}
        aria-valuetext={`event ${at} of ${head}: ${sentence}`} onKeyDown={key}
        onPointerDown={(event) => { event.currentTarget.setPointerCapture(event.pointerId); pick(event); }}
        onPointerMove={(event) => { if (event.buttons & 1) pick(event); }}>
        <canvas ref={canvas} />
        <span class="thumb" style={{ left: `${head <= 1 ? 100 : ((at - 1) / (head - 1)) * 100}%` }} />
      </div>
      <span class="place">event <b>{count(at)}</b> of {count(head)}</span>
      {seq === null
        ? <span class={`live ${live ? "on" : ""}`} title={live ? "New events appear by themselves" : "Not connected"}><i />{live ? "following" : "not live"}</span>
        : <button type="button" class="live link" onClick={() => onMove(null)}><i />to the newest</button>}
    </div>
  );
}
