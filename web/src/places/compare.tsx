/** Two tasks, or more of them, to their first divergence; and what differs after it. */

import { useState } from "preact/hooks";
import { type Change, type Comparison, type DiffLine, type Figure, type Made, type StateView, of, useGet } from "../api";
import { count, duration, money, plain } from "../format";
import { useKeys } from "../keys";
import { Command, Loading, Refused, Status, statusWord, useTitle } from "../parts/basics";
import { Changes, DiffLines, ValueView, briefValue } from "../parts/value";
import { escaped, go, taskAddress } from "../route";

/** What has an input: a question or a decision has none. */
const CALLED = new Set(["step", "tool", "child"]);

function Side({ made, id }: { made: Made | null; id: string }) {
  if (!made) return <p class="quiet">There is no such call in {plain(id)}.</p>;
  return (
    <>
      <p><a class="mono" href={taskAddress(id, null, `?call=${encodeURIComponent(made.path)}`)}>{plain(made.path)}</a> <b>{plain(made.name)}</b> <span class="dim">{made.kind}, {plain(made.outcome)}</span></p>
      {CALLED.has(made.kind) && <><h3 class="section">input</h3><ValueView of={made.input} /></>}
      {made.failure ? <p class="bad section">{plain(made.failure)}</p> : <><h3 class="section">output</h3><ValueView of={made.output} /></>}
    </>
  );
}

function Cell({ made }: { made: Made | null }) {
  if (!made) return <span class="quiet">–</span>;
  return <><span class="mono quiet">{plain(made.path)}</span> <b>{plain(made.name)}</b> <span class="mono dim">{plain(made.failure || briefValue(made.output, 90))}</span></>;
}

const ROWS: [string, (figure: Figure) => string][] = [
  ["status", (f) => statusWord(f.status)], ["result", (f) => f.failure || (f.status === "completed" ? briefValue(f.result, 120) : "–")],
  ["calls", (f) => count(Object.values(f.calls).reduce((sum, n) => sum + n, 0))],
  ["failures, retries", (f) => `${f.failures}, ${f.retries}`], ["took", (f) => duration(f.duration_s * 1000)],
  ["of that working", (f) => duration(f.working_s * 1000)], ["of that waiting", (f) => duration(f.waiting_s * 1000)],
  ["tokens", (f) => (f.tokens ? count(f.tokens) : "–")], ["cost", (f) => money(f.cost_usd) || "–"],
];

function Figures({ figures }: { figures: Figure[] }) {
  return (
    <div style={{ overflowX: "auto" }} tabIndex={0} role="group" aria-label="Figures">
      <table class="sheet">
        <thead><tr><th scope="col" />{figures.map((f) => <th scope="col" key={f.id}><a class="mono" href={taskAddress(f.id)}>{plain(f.id)}</a></th>)}</tr></thead>
        <tbody>{ROWS.map(([name, show]) => {
          const shown = figures.map(show);
          const differs = shown.some((one) => one !== shown[0]);
          return <tr key={name}><th scope="row">{name}</th>{shown.map((one, i) => <td key={i} class={`${name === "result" ? "mono" : "num"} ${differs && i > 0 && one !== shown[0] ? "" : "dim"}`} style={{ fontWeight: differs && i > 0 && one !== shown[0] ? 600 : 400 }}>{plain(one)}</td>)}</tr>;
        })}</tbody>
      </table>
    </div>
  );
}

function Section({ title, changes }: { title: string; changes: Change[] }) {
  return changes.length ? <section class="section"><h2>{title}</h2><Changes of={changes.slice(0, 100)} /></section> : null;
}

function StatesBefore({ a, b, seqs }: { a: string; b: string; seqs: { a_seq: number; b_seq: number } }) {
  const [open, show] = useState(false);
  const left = useGet<StateView>(open ? of.task(a, `/state?at=${seqs.a_seq}`) : null);
  const right = useGet<StateView>(open ? of.task(b, `/state?at=${seqs.b_seq}`) : null);
  return (
    <details class="section" onToggle={(event) => show(event.currentTarget.open)}><summary>what each knew right before</summary>
      <div class="versus"><div><ValueView of={left.data?.state ?? null} open={1} /></div><div><ValueView of={right.data?.state ?? null} open={1} /></div></div>
    </details>
  );
}

export function ComparePlace({ left, right, query }: { left: string; right: string; query: URLSearchParams }) {
  const others = query.getAll("and");
  const ids = [left, right, ...others].map((id) => `id=${encodeURIComponent(id)}`).join("&");
  const [limit, setLimit] = useState(200);
  const got = useGet<Comparison>(`/api/compare?${ids}&limit=${limit}`);
  useTitle(`${left} and ${right}`);
  useKeys({ escape: () => go(taskAddress(left)) });
  if (got.error && !got.data) return <div class="column"><Refused error={got.error} /></div>;
  if (!got.data) return <Loading what="Comparing…" />;
  const pair = got.data.pairs[0];
  const first = pair?.first ?? null;
  const states = got.data.states[0];
  return (
    <div class="column" style={{ maxWidth: "1180px" }}>
      <h1>{got.data.same ? "They are the same" : first ? "They part here" : "Compared"}: <a class="mono" href={taskAddress(left)}>{plain(left)}</a> and <a class="mono" href={taskAddress(right)}>{plain(right)}</a></h1>
      <p class="quiet" style={{ margin: "4px 0 14px" }}><Command line={got.data.command} /></p>
      {first && (
        <section aria-label="First divergence" data-first={first.path}>
          <p class="said doubt"><b>First divergence{first.path && <>, call <span class="mono">{plain(first.path)}</span></>}: </b><bdi>{plain(first.words)}</bdi></p>
          {first.lines.length > 0 && <DiffLines lines={first.lines as DiffLine[]} />}
          <div class="versus" style={{ marginTop: "8px", border: "1px solid var(--line)" }}>
            <div><h3>{plain(left)}</h3><Side made={first.a} id={left} /></div>
            <div><h3>{plain(right)}</h3><Side made={first.b} id={right} /></div>
          </div>
          {states && <StatesBefore a={left} b={right} seqs={states} />}
        </section>
      )}
      <section class="section"><h2>What came of it</h2><Figures figures={got.data.figures} /></section>
      {pair && <Section title="Input" changes={pair.input} />}
      {pair && <Section title="What they know in the end" changes={pair.knows} />}
      {pair && (
        <section class="section"><h2>Call by call</h2>
          <table class="pairs"><thead><tr><th style={{ width: "110px" }} scope="col" /><th scope="col">{plain(left)}</th><th scope="col">{plain(right)}</th></tr></thead>
            <tbody>{pair.rows.map((row, i) => (
              <tr key={i} class={`${row.what === "" ? "same" : ""} ${first && first.row === i ? "first" : ""}`}>
                <th scope="row">{first && first.row === i ? "they part" : row.what || "same"}</th><td class="cut"><Cell made={row.a} /></td><td class="cut"><Cell made={row.b} /></td>
              </tr>
            ))}</tbody></table>
          {pair.total > pair.rows.length && <p class="section"><button type="button" class="link" onClick={() => setLimit((n) => n * 4)}>{count(pair.total - pair.rows.length)} more calls</button></p>}
        </section>
      )}
      {got.data.pairs.length > 1 && (
        <section class="section"><h2>The others</h2>{got.data.pairs.slice(1).map((one) => <p key={one.b}><a class="mono" href={`/compare/${escaped(one.a)}/${escaped(one.b)}`}>{plain(one.b)}</a> <span class="dim">{plain(one.first?.words ?? "the same")}</span></p>)}</section>
      )}
      <p class="heard"><Status status={got.data.figures[1]?.status ?? ""} /></p>
    </div>
  );
}
