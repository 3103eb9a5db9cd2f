/** The keyboard: places and parts say which keys they answer, and the newest that does so wins. */

import { useLayoutEffect, useRef } from "preact/hooks";

export type Keys = Record<string, (event: KeyboardEvent) => void>;

const stack: { current: Keys }[] = [];
let pending = "";
let forget = 0;

function typing(target: EventTarget | null): boolean {
  const element = target as HTMLElement | null;
  if (!element || !element.closest) return false;
  return element.closest("input:not([type=checkbox]):not([type=radio]), textarea, select") !== null;
}

function named(event: KeyboardEvent): string {
  const key = event.key;
  if (key === " ") return "space";
  return key.length === 1 ? key : key.toLowerCase();
}

function find(name: string): ((event: KeyboardEvent) => void) | undefined {
  for (let i = stack.length - 1; i >= 0; i--) {
    const keys = stack[i]!.current;
    if (keys[name]) return keys[name];
    if (keys["*"]) return undefined; // a dialog keeps the keys of what is under it from answering
  }
  return undefined;
}

export function listen(): void {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const name = named(event);
    if (typing(event.target) && name !== "escape") return;
    const inButton = (event.target as HTMLElement | null)?.closest?.("button, a, summary, [role=tab], input");
    if (inButton && (name === "enter" || name === "space")) return;
    const chord = pending ? `${pending} ${name}` : name;
    clearTimeout(forget);
    pending = "";
    const action = find(chord);
    if (action) {
      event.preventDefault();
      action(event);
    } else if (name === "g") {
      pending = "g";
      forget = window.setTimeout(() => (pending = ""), 1200);
    }
  });
}

/** While this part is shown it answers these keys. */
export function useKeys(keys: Keys): void {
  const held = useRef(keys);
  held.current = keys;
  // Not after the next paint: keys typed at once after a dialog has closed are for what was under it.
  useLayoutEffect(() => {
    stack.push(held);
    return () => {
      stack.splice(stack.indexOf(held), 1);
    };
  }, []);
}
