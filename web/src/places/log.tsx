/** The log of a task: every event in words, page by page. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type EventRow, type Value, get, of, useGet } from "../api";
import { bytes, clock, plain } from "../format";
import { useKeys } from "../keys";
import { Dialog, Loading } from "../parts/basics";
import { ValueView } from "../parts/value";
import { Pages, reveal, useSeen } from "../parts/virtual";

const ROW = 22;
const PAGE = 300;

interface Page { events: EventRow[]; head: number; total: number }

function Sentence({ of: event }: { of: EventRow }) {
  return (
    <bdi>{event.parts.map((part, i) => {
      if ("text" in part) return <span key={i}>{plain(part.text)}</span>;
      if ("time" in part) return <span key={i}>{clock(part.time)}</span>;
      return <span key={i}>{plain(part.value)}{part.size > part.value.length + 8 && <span class="quiet"> {bytes(part.size)}</span>}</span>;
    })}</bdi>
  );
}

function EventDialog({ task, seq, onClose }: { task: string; seq: number; onClose: () => void }) {
  const got = useGet<{ event: EventRow; json: Value }>(of.task(task, `/events/${seq}`));
  return (
    <Dialog title={`Event ${seq}${got.data ? `, ${got.data.event.type}` : ""}`} onClose={onClose}>
      {got.data ? <><p>{plain(got.data.event.sentence)}</p><ValueView of={got.data.json} open={3} /></> : <Loading />}
    </Dialog>
  );
}

export function LogTab({ id, head, seq, fresh, onMove, search }: { id: string; head: number; seq: number | null; fresh: number; onMove: (seq: number) => void; search: string }) {
  const box = useRef<HTMLDivElement>(null);
  const [, paint] = useState(0);
  const [open, setOpen] = useState<number | null>(null);
  useKeys({ enter: () => setOpen(seq ?? head) });
  const seen = useSeen(box, ROW, head);
  const pages = useMemo(() => new Pages<EventRow>(PAGE, async (offset, limit) => {
    const page = await get<Page>(of.task(id, `/events?after=${offset}&limit=${limit}`));
    return { rows: page.events, total: page.total };
  }, () => paint((n) => n + 1)), [id]);
  const atEnd = useRef(true);
  useEffect(() => { pages.load(Math.floor(Math.max(0, head - 1) / PAGE), true); }, [head, fresh]);
  useEffect(() => {
    if (seq !== null) reveal(box.current, ROW, seq - 1);
    else if (atEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [seq, head]);
  const rows: (EventRow | undefined)[] = [];
  for (let i = seen.first; i < seen.last; i++) rows.push(pages.at(i));
  const wanted = search.toLowerCase();
  return (
    <div class="scroller" ref={box} tabIndex={0} role="grid" aria-label="Events" aria-rowcount={head} aria-activedescendant={seq !== null && seq > seen.first && seq <= seen.last ? `event-${seq}` : undefined}
      onScroll={(event) => { const b = event.currentTarget; atEnd.current = b.scrollTop + b.clientHeight > b.scrollHeight - ROW * 2; }}>
      <div class="space" role="rowgroup" style={{ height: `${head * ROW}px` }}>
        {rows.map((event, i) => {
          const number = seen.first + i + 1;
          if (!event) return <div class="event" role="row" key={number} style={{ top: `${(number - 1) * ROW}px` }}><span role="gridcell" class="quiet num">{number}</span></div>;
          const dim = wanted !== "" && !event.sentence.toLowerCase().includes(wanted);
          return (
            <div class={`event${event.strong ? " strong" : ""}${(seq !== null && number > seq) || dim ? " later" : ""}`} role="row" id={`event-${number}`} aria-rowindex={number} key={number} aria-selected={number === seq}
              style={{ top: `${(number - 1) * ROW}px` }} onClick={() => onMove(number)} onDblClick={() => setOpen(number)}>
              <span role="gridcell" class="quiet num">{number}</span>
              <span role="gridcell" class="quiet num">{clock(event.at, true)}</span>
              <span role="gridcell" class="mono quiet hide-narrow">{plain(event.path)}</span>
              <span role="gridcell" class="hide-narrow"><bdi>{plain(event.name)}</bdi></span>
              <span role="gridcell" class={`what hide-narrow ${event.tone}`}>{event.what}</span>
              <span role="gridcell" class={`sentence ${event.tone === "quiet" || event.minor ? "quiet" : ""}`}><span class="only-narrow"><b>{plain(event.name)}</b> <span class={event.tone}>{event.what}</span> </span><Sentence of={event} /></span>
            </div>
          );
        })}
      </div>
      {open !== null && <EventDialog task={id} seq={open} onClose={() => setOpen(null)} />}
    </div>
  );
}
