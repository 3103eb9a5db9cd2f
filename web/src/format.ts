/** Numbers and times as people read them. */

export function duration(ms: number): string {
  if (!Number.isFinite(ms)) return "–";
  if (ms < 0) return `−${duration(-ms)}`;
  if (ms < 1) return ms > 0 ? "<1 ms" : "0 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 10) return `${s.toFixed(2)} s`;
  if (s < 60) return `${s.toFixed(1)} s`;
  const m = Math.floor(s / 60);
  if (m < 60) return pair(m, "m", Math.floor(s % 60), "s");
  const h = Math.floor(m / 60);
  if (h < 48) return pair(h, "h", m % 60, "m");
  return pair(Math.floor(h / 24), "d", h % 24, "h");
}

/** A time on an axis whose ticks are `step` apart: with as many digits as tell one from the next. */
export function offset(ms: number, step: number): string {
  if (ms < 1000 && step < 1000) return `${Math.round(ms)} ms`;
  const digits = step < 1000 ? Math.ceil(Math.log10(1000 / step)) : 0;
  if (ms < 60_000) return `${(ms / 1000).toFixed(digits)} s`;
  if (step >= 60_000) return duration(Math.round(ms / 60_000) * 60_000);
  const s = ms / 1000;
  const [h, m] = [Math.floor(s / 3600), Math.floor((s % 3600) / 60)];
  const seconds = (s % 60).toFixed(digits).padStart(digits ? digits + 3 : 2, "0");
  return `${h ? `${h}:${two(m)}` : m}:${seconds}`;
}

function pair(a: number, x: string, b: number, y: string): string {
  return b ? `${a} ${x} ${b} ${y}` : `${a} ${x}`;
}

export function ago(iso: string | null | undefined, now: number = Date.now()): string {
  if (!iso) return "";
  const ms = now - Date.parse(iso);
  if (ms < -1000) return `in ${coarse(-ms)}`;
  return ms < 5000 ? "now" : `${coarse(ms)} ago`;
}

export function coarse(ms: number): string {
  const s = ms / 1000;
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return `${Math.round(s / 60)} min`;
  if (s < 86400 * 2) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}

const two = (n: number): string => String(n).padStart(2, "0");

export function clock(iso: string, withMs = false): string {
  const d = new Date(iso);
  if (Number.isNaN(d.getTime())) return iso;
  const text = `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
  return withMs ? `${text}.${String(d.getMilliseconds()).padStart(3, "0")}` : text;
}

export function moment(iso: string | null | undefined): string {
  if (!iso) return "";
  const d = new Date(iso);
  if (Number.isNaN(d.getTime())) return iso;
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${clock(iso)}`;
}

export function bytes(n: number): string {
  if (n < 1000) return `${n} B`;
  if (n < 1e6) return `${(n / 1e3).toFixed(n < 1e4 ? 1 : 0)} kB`;
  if (n < 1e9) return `${(n / 1e6).toFixed(n < 1e7 ? 1 : 0)} MB`;
  return `${(n / 1e9).toFixed(1)} GB`;
}

export function count(n: number): string {
  return n.toLocaleString("en-US");
}

export function money(usd: number | null | undefined): string {
  if (!usd) return "";
  return usd < 0.01 ? `$${usd.toFixed(4)}` : usd < 10 ? `$${usd.toFixed(3)}` : `$${usd.toFixed(2)}`;
}

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** A text with everything that could mislead the eye made visible: bidi controls, escapes, zero
 * width. The browser shows it as text in any case; this shows that there is something. */
const MISLEADING =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

export function plain(text: string): string {
  return text.replace(MISLEADING, (c) => {
    const code = c.charCodeAt(0);
    if (code === 0x1b) return "␛";
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}
