/** Addresses: every place has one that can be sent to somebody. */

import { useEffect, useState } from "preact/hooks";

export type Place =
  | { name: "inbox" }
  | { name: "tasks" }
  | { name: "task"; id: string; seq: number | null }
  | { name: "compare"; left: string; right: string }
  | { name: "session"; id: string; seq: number | null }
  | { name: "sessions" }
  | { name: "mission"; id: string }
  | { name: "missions" }
  | { name: "fleet" }
  | { name: "nowhere"; path: string };

export interface Route {
  place: Place;
  query: URLSearchParams;
}

function decoded(part: string): string {
  if (part === "~." || part === "~..") return part.slice(1);
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** `trip-42@23` is the task trip-42 as of event 23. An @ that belongs to an id is written %40. */
function asOf(part: string): { id: string; seq: number | null } {
  const found = /^(.*)@(\d+)$/.exec(part);
  return found
    ? { id: decoded(found[1]!), seq: Number(found[2]) }
    : { id: decoded(part), seq: null };
}

export function parse(path: string): Place {
  const parts = path.split("/").filter((part) => part !== "");
  const [first, second, third] = parts;
  if (first === undefined) return { name: "inbox" };
  if (first === "tasks" && parts.length === 1) return { name: "tasks" };
  if (first === "tasks" && second !== undefined && parts.length === 2)
    return { name: "task", ...asOf(second) };
  if (first === "compare" && second !== undefined && third !== undefined && parts.length === 3)
    return { name: "compare", left: decoded(second), right: decoded(third) };
  if (first === "sessions")
    return second === undefined ? { name: "sessions" } : { name: "session", ...asOf(second) };
  if (first === "missions")
    return second === undefined ? { name: "missions" } : { name: "mission", id: decoded(second) };
  if (first === "fleet" && parts.length === 1) return { name: "fleet" };
  return { name: "nowhere", path };
}

/** An id as one part of an address. Browsers resolve dots, so an id of nothing but dots has a mark. */
export function escaped(id: string): string {
  return id === "." || id === ".." ? `~${id}` : encodeURIComponent(id);
}

export function taskAddress(id: string, seq: number | null = null, query = ""): string {
  return `/tasks/${escaped(id)}${seq === null ? "" : `@${seq}`}${query}`;
}

const listeners = new Set<() => void>();

function changed(): void {
  for (const listener of listeners) listener();
}

export function go(address: string, replace = false): void {
  if (replace) history.replaceState(null, "", address);
  else {
    history.pushState(null, "", address);
    document.getElementById("place")?.scrollTo(0, 0);
  }
  changed();
}

/** Set some words of the query and keep the rest; null removes one. */
export function setQuery(words: Record<string, string | null>, replace = true): void {
  const query = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(words)) {
    if (value === null || value === "") query.delete(key);
    else query.set(key, value);
  }
  const text = query.toString();
  go(location.pathname + (text ? `?${text}` : ""), replace);
}

function current(): Route {
  return { place: parse(location.pathname), query: new URLSearchParams(location.search) };
}

export function useRoute(): Route {
  const [route, set] = useState(current);
  useEffect(() => {
    const update = () => set(current());
    listeners.add(update);
    window.addEventListener("popstate", update);
    return () => {
      listeners.delete(update);
      window.removeEventListener("popstate", update);
    };
  }, []);
  return route;
}

/** Links within the page don't load it anew. */
export function followLinks(): void {
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element | null)?.closest?.("a");
    if (!link || link.target || link.hasAttribute("download")) return;
    const href = link.getAttribute("href");
    if (href === null || !href.startsWith("/") || href.startsWith("/api/")) return;
    event.preventDefault();
    go(href);
  });
}
