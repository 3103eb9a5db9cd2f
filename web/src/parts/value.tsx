/** A value of the log: a tree that opens where you look. Everything is text, never markup. */

import { useMemo, useState } from "preact/hooks";
import type { Change, DiffLine, Value } from "../api";
import { bytes, count, plain } from "../format";
import { copy } from "./basics";
import { type Json, Digits, brief, isLiteralTag, isObject, parsed, python, tagged } from "./json";

const PAGE = 50;
const LONG = 400;

export type Marks = Map<string, Change["what"]>;

/** Which places of a state changed, by their path in the tree. */
export function marksOf(changes: Change[]): Marks {
  return new Map(changes.map((change) => [JSON.stringify(change.where), change.what]));
}

function Words({ text }: { text: string }) {
  const [whole, open] = useState(false);
  const shown = whole || text.length <= LONG ? text : text.slice(0, LONG);
  return (
    <>
      <bdi class="str">{JSON.stringify(plain(shown)).slice(0, whole || text.length <= LONG ? undefined : -1).replaceAll("\\n", "\n").replaceAll('\\"', '"')}</bdi>
      {shown.length < text.length && (
        <button type="button" class="link more" onClick={() => open(true)}>… {count(text.length)} characters</button>
      )}
    </>
  );
}

function Leaf({ value }: { value: Json }) {
  if (typeof value === "string") return <Words text={value} />;
  const text = value instanceof Digits ? value.text : String(value);
  return <span class="lit">{text}</span>;
}

function deeper(where: (string | number)[], key: string | number): (string | number)[] {
  return [...where, key];
}

interface NodeProps { value: Json; where: (string | number)[]; open: number; marks?: Marks | undefined; tidy?: boolean }

/** Whether there is nothing in it to look at. */
function isEmpty(value: Json): boolean {
  if (value === null || value === "") return true;
  return typeof value === "object" && !(value instanceof Digits) && Object.keys(value).length === 0;
}

function holdsMark(where: (string | number)[], marks?: Marks): boolean {
  if (!marks?.size) return false;
  const start = JSON.stringify(where).slice(0, -1);
  for (const place of marks.keys()) if (place.startsWith(start)) return true;
  return false;
}

function Node({ value, where, open, marks, tidy = false }: NodeProps) {
  const [shown, show] = useState<boolean | null>(null);
  const [pages, more] = useState(1);
  const tag = tagged(value);
  if (tag && isLiteralTag(tag[0]) && !isObject(tag[1])) {
    return <span title={tag[0]}><Leaf value={typeof tag[1] === "string" ? new Digits(plain(tag[1])) : tag[1]} /></span>;
  }
  if (value === null || typeof value !== "object" || value instanceof Digits) return <Leaf value={value} />;
  const list = Array.isArray(value);
  const every = list ? null : Object.keys(value);
  const keys = tidy && every ? every.filter((key) => !isEmpty((value as { [key: string]: Json })[key]!)) : every;
  const size = list ? value.length : keys!.length;
  if (size === 0) return <span class="lit">{list ? "[]" : "{}"}</span>;
  const expanded = shown ?? (open > 0 && (size <= 24 || where.length === 0)) ;
  const about = list ? `${count(size)} ${size === 1 ? "item" : "items"}` : brief(value, 60);
  const end = Math.min(size, pages * PAGE);
  const at = (i: number): [string | number, Json] => list ? [i, value[i]!] : [keys![i]!, value[keys![i]!]!];
  const root = where.length === 0 && open > 0 && size <= 24;
  return (
    <>
      {!root && <button type="button" class="twist" aria-expanded={expanded} onClick={() => show(!expanded)}>
        {expanded ? <span class="more">{list ? `${count(size)} ${size === 1 ? "item" : "items"}` : `${count(size)} ${size === 1 ? "field" : "fields"}`}</span> : <bdi>{plain(about)}</bdi>}
      </button>}
      {(expanded || root) && (
        <ul>
          {Array.from({ length: end }, (_, i) => {
            const [key, one] = at(i);
            return <Member key={key} name={key} value={one} where={deeper(where, key)} open={open - 1} marks={marks} />;
          })}
          {end < size && (
            <li><button type="button" class="link more" onClick={() => more(pages * 4)}>{count(size - end)} more</button></li>
          )}
          {tidy && every && keys && every.length > keys.length && <li class="more">nothing in {every.filter((key) => !keys.includes(key)).map(plain).join(", ")}</li>}
        </ul>
      )}
    </>
  );
}

const SIGNS = { added: "+", removed: "−", changed: "~", moved: "↕" } as const;

function Member({ name, value, where, open, marks }: NodeProps & { name: string | number }) {
  const mark = marks?.get(JSON.stringify(where));
  const wide = open > 0 || holdsMark(where, marks);
  return (
    <li class={mark ?? ""}>
      {mark && <b title={mark} aria-label={mark}>{SIGNS[mark]} </b>}
      <bdi class="key">{plain(String(name))}</bdi>{": "}
      <Node value={value} where={where} open={wide ? Math.max(open, 1) : 0} marks={marks} />
    </li>
  );
}

/** A value with what one does with it: copy as JSON or Python, download what is huge. */
export function ValueView({ of, open = 2, marks, bare = false, tidy = false }: { of: Value; open?: number; marks?: Marks; bare?: boolean; tidy?: boolean }) {
  const json = of && "json" in of ? of.json : null;
  const value = useMemo(() => (json === null ? undefined : parsed(json)), [json]);
  if (of === null) return <span class="quiet">none</span>;
  if ("cut" in of) {
    return (
      <div class="value">
        <bdi class="str">{plain(of.cut)}…</bdi>
        <p class="more">{bytes(of.size)} in all, the beginning is shown. <a href={of.href} download>Download it</a></p>
      </div>
    );
  }
  return (
    <div class="value">
      {value === undefined ? <bdi class="str">{plain(of.json)}</bdi> : <Node value={value} where={[]} open={open} marks={marks} tidy={tidy} />}
      {!bare && value !== undefined && typeof value === "object" && !isEmpty(value) && (
        <span class="more"> copy as <button type="button" class="link" onClick={() => copy(of.json, "JSON copied")}>JSON</button> or{" "}
          <button type="button" class="link" onClick={() => copy(python(value), "Python copied")}>Python</button></span>
      )}
    </div>
  );
}

/** A value in one line, for rows. */
export function briefValue(of: Value, room = 120): string {
  if (of === null) return "";
  if ("cut" in of) return `${of.cut.slice(0, room)}… ${bytes(of.size)}`;
  const value = parsed(of.json.length > 20000 ? "" : of.json);
  return value === undefined ? of.json.slice(0, room) : brief(value, room);
}

const LINES: Record<string, string> = { "+": "plus", "-": "minus", "−": "minus", "~": "tilde" };

export function DiffLines({ lines }: { lines: DiffLine[] }) {
  return (
    <ul class="diff">
      {lines.map((line, i) => (
        <li key={i} class={LINES[line.marker] ?? ""}><span>{line.marker}</span><bdi>{plain(line.text)}</bdi></li>
      ))}
    </ul>
  );
}

/** What changed, in lines: + − ~ and the place. */
export function Changes({ of }: { of: Change[] }) {
  if (of.length === 0) return <p class="quiet">Nothing changed.</p>;
  return (
    <ul class="diff">
      {of.map((change, i) => {
        const sign = SIGNS[change.what] ?? "~";
        const words = change.what === "removed" ? briefValue(change.before)
          : change.what === "changed" ? `${briefValue(change.before, 60)} → ${briefValue(change.after, 100)}`
          : briefValue(change.after, 160);
        return (
          <li key={i} class={LINES[sign] ?? "tilde"}>
            <span aria-label={change.what}>{sign}</span>
            <span><bdi class="dim">{plain(change.place)}</bdi> <bdi>{plain(words)}</bdi></span>
          </li>
        );
      })}
    </ul>
  );
}
