/** The calls of a task, in the order that the rows have: as a tree where they all fit, page by page
 * in the order that they began where they are many. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type CallRow, type EventRow, get, of, useAsking } from "../api";
import { Pages } from "../parts/virtual";
import { INSTANT, treeOrder } from "./bars";

const WHOLE = 2000;
const PAGE = 400;

export interface Calls {
  total: number;
  whole: boolean;
  at: (index: number) => CallRow | undefined;
  indexOf: (path: string) => number;
  /** The call that an event belongs to, or the last that began before it. */
  near: (seq: number) => Promise<{ call: CallRow; index: number } | null>;
}

/** What takes no time is one event: its row has the place and the words of that. */
function placed(call: CallRow, said: Map<string, EventRow>): CallRow {
  const event = INSTANT.has(call.kind) ? said.get(call.path) : undefined;
  if (!event) return call;
  const words = event.parts.map((part) => ("text" in part ? part.text : "time" in part ? "" : part.value)).join("");
  return { ...call, seq: event.seq, ended_seq: event.seq, words: words.length > 72 ? `${words.slice(0, 71)}…` : words };
}

interface Page { calls: CallRow[]; total: number; seq: number }

/** With `all`, readings of the clock and of the conversation have rows as well. */
export function useCalls(id: string, total: number | null, fresh: number, all: boolean, events: EventRow[]): Calls {
  const [made, setRows] = useState<CallRow[] | null>(null);
  const rows = useMemo(() => {
    const said = new Map(events.map((event) => [event.path, event]));
    return made?.filter((call) => all || call.kind !== "reading").map((call) => placed(call, said)) ?? null;
  }, [made, all, events]);
  const [, paint] = useState(0);
  const whole = total !== null && total <= WHOLE;
  const pages = useRef<Pages<CallRow> | null>(null);
  if (!pages.current) {
    pages.current = new Pages<CallRow>(PAGE, async (offset, limit) => {
      const page = await get<Page>(of.task(id, `/calls?offset=${offset}&limit=${limit}`));
      return { rows: page.calls, total: page.total };
    }, () => paint((n) => n + 1), 8);
  }
  const path = total === null || !whole ? null : of.task(id, `/calls?offset=0&limit=${WHOLE}`);
  useAsking<Page>(path, `${total} ${fresh}`, { came: (page) => setRows(treeOrder(page.calls)) });
  useEffect(() => { if (!whole && fresh > 0) pages.current?.refresh(); }, [fresh, whole]);
  const index = useMemo(() => new Map((rows ?? []).map((call, i) => [call.path, i])), [rows]);
  return useMemo<Calls>(() => {
    const held = pages.current!;
    const at = (i: number) => (whole ? rows?.[i] : held.at(i));
    const count = whole ? rows?.length ?? 0 : total ?? 0;
    const indexOf = (path: string) => {
      if (whole) return index.get(path) ?? -1;
      for (let i = 0; i < count; i += PAGE) if (held.holds(i)) {
        for (let n = i; n < Math.min(i + PAGE, count); n++) if (held.at(n)?.path === path) return n;
      }
      return -1;
    };
    const near = async (seq: number) => {
      if (whole) {
        let best: { call: CallRow; index: number } | null = null;
        rows?.forEach((call, i) => { if (call.seq <= seq && (!best || call.seq >= best.call.seq)) best = { call, index: i }; });
        return best;
      }
      let low = 0;
      let high = count - 1;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        const page = await get<Page>(of.task(id, `/calls?offset=${middle}&limit=1`));
        if ((page.calls[0]?.seq ?? Infinity) <= seq) low = middle;
        else high = middle - 1;
      }
      const page = await get<Page>(of.task(id, `/calls?offset=${low}&limit=1`));
      return page.calls[0] ? { call: page.calls[0], index: low } : null;
    };
    return { total: count, whole, at, indexOf, near };
  }, [rows, whole, total, index, id]);
}
