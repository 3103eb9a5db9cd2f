/** Long lists: only the rows that can be seen are made. */

import type { RefObject } from "preact";
import { useCallback, useEffect, useLayoutEffect, useState } from "preact/hooks";

export interface Seen { first: number; last: number; height: number }

/** Which rows of a scrolling box are in view, with a few around them. */
export function useSeen(box: RefObject<HTMLElement | null>, row: number, count: number, around = 8): Seen {
  const [seen, set] = useState<Seen>({ first: 0, last: Math.min(count, 60), height: 600 });
  const measure = useCallback(() => {
    const element = box.current;
    if (!element) return;
    const height = element.clientHeight;
    const first = Math.max(0, Math.floor(element.scrollTop / row) - around);
    const last = Math.min(count, Math.ceil((element.scrollTop + height) / row) + around);
    set((old) => old.first === first && old.last === last && old.height === height ? old : { first, last, height });
  }, [row, count, around]);
  useLayoutEffect(measure, [measure]);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    element.addEventListener("scroll", measure, { passive: true });
    const watch = new ResizeObserver(measure);
    watch.observe(element);
    return () => {
      element.removeEventListener("scroll", measure);
      watch.disconnect();
    };
  }, [measure]);
  return seen;
}

/** Scroll so that a row can be seen, and no further than that needs. */
export function reveal(box: HTMLElement | null, row: number, index: number): void {
  if (!box) return;
  const top = index * row;
  if (top < box.scrollTop) box.scrollTop = Math.max(0, top - row);
  else if (top + row > box.scrollTop + box.clientHeight) box.scrollTop = top + 2 * row - box.clientHeight;
}

/** A browser asks a server six things at once. Pages that were scrolled past must not keep it from
 * what is asked for next, such as the state at an event. */
const AT_ONCE = 2;
const MOST_WAITING = 4;

/** Pages of a long list, asked for when a row of them is looked at, and forgotten when far away. */
export class Pages<T> {
  private pages = new Map<number, T[] | null>();
  private asking = 0;
  private waiting: number[] = [];
  total = 0;

  constructor(
    private readonly size: number,
    private readonly fetchPage: (offset: number, limit: number) => Promise<{ rows: T[]; total: number }>,
    private readonly changed: () => void,
    private readonly keep = 12,
  ) {}

  at(index: number): T | undefined {
    const number = Math.floor(index / this.size);
    const page = this.pages.get(number);
    if (page === undefined) this.load(number);
    return page?.[index % this.size];
  }

  /** Whether the page of this row is here. */
  holds(index: number): boolean {
    return Boolean(this.pages.get(Math.floor(index / this.size)));
  }

  /** Ask again for what is held, without dropping it first. */
  refresh(): void {
    for (const number of [...this.pages.keys()]) this.load(number, true);
  }

  load(number: number, again = false): void {
    if (!again) this.pages.set(number, null);
    if (this.asking >= AT_ONCE) {
      this.waiting = [...this.waiting.filter((other) => other !== number), number];
      this.dropScrolledPast();
    } else this.ask(number);
  }

  /** Forget pages that wait to be shown first. One that is looked at again is asked for again. */
  private dropScrolledPast(): void {
    const fresh = this.waiting.filter((number) => this.pages.get(number) === null);
    for (const number of fresh.slice(0, -MOST_WAITING)) {
      this.pages.delete(number);
      this.waiting = this.waiting.filter((other) => other !== number);
    }
  }

  private ask(number: number): void {
    this.asking++;
    this.fetchPage(number * this.size, this.size).then(
      ({ rows, total }) => {
        this.pages.set(number, rows);
        this.total = total;
        while (this.pages.size > this.keep) {
          const far = [...this.pages.keys()].sort((a, b) => Math.abs(b - number) - Math.abs(a - number))[0]!;
          this.pages.delete(far);
        }
        this.changed();
      },
      () => {
        if (this.pages.get(number) === null) this.pages.delete(number);
      },
    ).finally(() => {
      this.asking--;
      const next = this.waiting.pop();
      if (next !== undefined) this.ask(next);
    });
  }
}
