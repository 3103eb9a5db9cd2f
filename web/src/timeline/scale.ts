/** Where a time is on the timeline. Stretches in which nothing ran are folded to a break mark, so
 * that a night's wait does not squash the minute of work. */

const FOLDED = 0.045; // of the width of what ran, for each fold

interface Stretch { from: number; to: number; at: number; width: number; folded: boolean }

export interface Scale {
  began: number; ended: number; width: number; stretches: Stretch[];
}

export function scaleOf(began: number, ended: number, gaps: [number, number][]): Scale {
  const end = Math.max(ended, began + 1);
  const inside = gaps
    .map(([from, to]): [number, number] => [Math.max(from, began), Math.min(to, end)])
    .filter(([from, to]) => to > from)
    .sort((a, b) => a[0] - b[0]);
  const idle = inside.reduce((sum, [from, to]) => sum + to - from, 0);
  const busy = Math.max(end - began - idle, 1);
  const fold = Math.min(busy * FOLDED, (busy * 0.5) / Math.max(1, inside.length));
  const stretches: Stretch[] = [];
  let at = 0;
  let from = began;
  const add = (to: number, folded: boolean) => {
    const width = folded ? Math.min(fold, to - from) : to - from;
    if (to > from) stretches.push({ from, to, at, width, folded });
    at += width;
    from = to;
  };
  for (const [start, stop] of inside) {
    if (start > from) add(start, false);
    add(stop, true);
  }
  if (end > from) add(end, false);
  return { began, ended: end, width: Math.max(at, 1), stretches };
}

/** The place of a time, from 0 to `scale.width`. */
export function place(scale: Scale, time: number): number {
  const all = scale.stretches;
  let low = 0;
  let high = all.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (all[middle]!.from <= time) low = middle;
    else high = middle - 1;
  }
  const one = all[low];
  if (!one) return 0;
  const share = (time - one.from) / (one.to - one.from);
  return one.at + Math.max(0, Math.min(1, share)) * one.width;
}

/** The time at a place: the other way. */
export function timeAt(scale: Scale, at: number): number {
  const one = scale.stretches.findLast((stretch) => stretch.at <= at) ?? scale.stretches[0];
  if (!one || one.width === 0) return scale.began;
  return one.from + Math.min(1, Math.max(0, (at - one.at) / one.width)) * (one.to - one.from);
}

/** A round number of milliseconds not below this. */
export function round(ms: number): number {
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 216e5, 432e5, 864e5];
  return steps.find((step) => step >= ms) ?? Math.ceil(ms / 864e5) * 864e5;
}
