/** JSON as the log has it: large integers keep their digits, and nothing is run or called. */

export class Digits {
  constructor(readonly text: string) {}
}
export type Json = null | boolean | number | string | Digits | Json[] | { [key: string]: Json };

export function isObject(value: Json): value is { [key: string]: Json } {
  return value !== null && typeof value === "object" && !Array.isArray(value) && !(value instanceof Digits);
}

interface Source { source?: string }

/** The parsed value, or undefined if the text is no JSON that a browser can hold. */
export function parsed(text: string): Json | undefined {
  try {
    if (!/\d{16}|[\d.]e|\.\d*0(?!\d)/i.test(text)) return JSON.parse(text) as Json;
    const exact = (_: string, value: Json, context?: Source): Json =>
      typeof value === "number" && context?.source !== undefined && String(value) !== context.source
        ? new Digits(context.source) : value;
    return JSON.parse(text, exact as (key: string, value: unknown) => unknown) as Json;
  } catch {
    return undefined;
  }
}

/** The value as JSON, with every digit that it was read with. */
export function written(value: Json, indent = "", end = ""): string {
  if (value instanceof Digits) return value.text;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const inner = indent && `${end || "\n"}${indent}`;
  const all = Array.isArray(value)
    ? value.map((one) => written(one, indent, inner))
    : Object.entries(value).flatMap(([key, one]) => one === undefined ? [] : [`${JSON.stringify(key)}:${indent && " "}${written(one, indent, inner)}`]);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  return all.length ? `${open}${inner}${all.join(`,${inner}`)}${indent && (end || "\n")}${close}` : `${open}${close}`;
}

/** The value as Python writes it. */
export function python(value: Json): string {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (value instanceof Digits) return value.text;
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value === "number") return String(value);
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  return `{${Object.entries(value).map(([key, one]) => `${JSON.stringify(key)}: ${python(one)}`).join(", ")}}`;
}

const LITERAL = ["$datetime", "$date", "$time", "$timedelta", "$uuid", "$decimal", "$path", "$float", "$int"];

/** The one tag of a tagged value and what it holds: `{"$tuple": [1, 2]}` gives `["tuple", [1, 2]]`. */
export function tagged(value: Json): [string, Json] | null {
  if (!isObject(value)) return null;
  const keys = Object.keys(value);
  if (keys.length !== 1 || !keys[0]!.startsWith("$")) return null;
  return [keys[0]!.slice(1), value[keys[0]!]!];
}

export function isLiteralTag(name: string): boolean {
  return LITERAL.includes(`$${name}`);
}

/** A value in one short line. */
export function brief(value: Json, room = 80): string {
  const text = briefly(value, room);
  return text.length > room ? `${text.slice(0, room - 1)}…` : text;
}

function briefly(value: Json, room: number): string {
  if (value === null || typeof value !== "object") {
    return typeof value === "string" ? JSON.stringify(value.slice(0, room + 1)) : String(value);
  }
  if (value instanceof Digits) return value.text;
  const tag = tagged(value);
  if (tag && isLiteralTag(tag[0]) && typeof tag[1] === "string") return tag[1];
  const parts: string[] = [];
  let used = 2;
  const items: [string, Json][] = Array.isArray(value)
    ? value.slice(0, 30).map((one) => ["", one]) : Object.entries(value).slice(0, 30);
  for (const [key, one] of items) {
    if (used > room) break;
    const part = (key ? `${key}: ` : "") + briefly(one, room - used);
    parts.push(part);
    used += part.length + 2;
  }
  const all = Array.isArray(value) ? value.length : Object.keys(value).length;
  if (parts.length < all) parts.push("…");
  return Array.isArray(value) ? `[${parts.join(", ")}]` : `{${parts.join(", ")}}`;
}
