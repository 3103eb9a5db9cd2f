/** The fleet: workers, queues, rates, failures and cost over time. */

import { useEffect, useState } from "preact/hooks";
import { type TaskRow, useEvery, useGet } from "../api";
import { ago, clock, coarse, count, duration, moment, money, plain } from "../format";
import { Loading, Refused, Status, statusWord, useTitle } from "../parts/basics";
import { taskAddress } from "../route";

interface Queue {
  name: string; pending: number; oldest_at: string | null; oldest_s: number | null;
  running: number | null; concurrency: number | null; paused: boolean; by: string; because: string;
}
interface Fleet {
  workers: { owner: string; tasks: number; ids: string[] }[]; statuses: Record<string, number>;
  queues: Queue[];
  limits: { name: string; key: string; held: number; paused_until: string | null; ready_at: string | null }[];
  waiting: { stopped: number; sleeping: number };
  throughput: { at: string; started: number; completed: number; failed: number; cancelled: number }[];
  bucket_s: number; failures: TaskRow[]; exact: boolean;
}
interface Figures {
  tasks: number; of: number; cost: { at: string; cost_usd: number | null; tokens: number | null }[];
  types: { type: string; tasks: number; duration_median_s: number | null; duration_p95_s: number | null; calls: number; failures: number; retries: number; tokens: number | null; cost_usd: number | null }[];
  calls: { name: string; kind: string; calls: number; failed: number; retries: number; median_s: number | null; p95_s: number | null; cost_usd: number | null }[];
  models: { model: string; calls: number; input_tokens: number; output_tokens: number; cost_usd: number | null }[]; complete: boolean;
}

/** A small plot: one bar a bucket, and what it says in words for those who don't see it. */
export function Plot({ of, words, tone = "var(--bar)" }: { of: { at: string; n: number }[]; words: (n: number) => string; tone?: string }) {
  const top = Math.max(1e-9, ...of.map((one) => one.n));
  const sum = of.reduce((total, one) => total + one.n, 0);
  const peak = of.reduce((best, one) => (one.n > best.n ? one : best), of[0] ?? { at: "", n: 0 });
  const wide = 100 / Math.max(1, of.length);
  return (
    <svg viewBox="0 0 100 48" preserveAspectRatio="none" role="img" aria-label={`${words(sum)} in all${peak.n ? `, most at ${clock(peak.at)}: ${words(peak.n)}` : ""}`}>
      <line x1="0" x2="100" y1="47.500" y2="47.500" stroke="var(--line-strong)" stroke-width="1" vector-effect="non-scaling-stroke" />
      {of.map((one, i) => one.n > 0 && (
        <rect key={i} x={i * wide + wide * 0.12} width={wide * 0.76} y={47 - (one.n / top) * 43} height={Math.max(1, (one.n / top) * 43)} fill={tone}><title>{`${moment(one.at)}: ${words(one.n)}`}</title></rect>
      ))}
    </svg>
  );
}

const secs = (s: number | null): string => (s === null ? "–" : duration(s * 1000));

export function FleetPlace() {
  const [hours, setHours] = useState(24);
  const [loading, setLoading] = useState(true);
  const got = useGet<Fleet>(`/api/fleet?hours=${hours}`, useEvery(5000, loading));
  const figures = useGet<Figures>(`/api/figures?hours=${hours}`);
  useTitle("Fleet");
  useEffect(() => setLoading(got.loading), [got.loading]);
  if (got.error && !got.data) return <div class="column"><Refused error={got.error} /></div>;
  if (!got.data) return <Loading what="Counting…" />;
  const fleet = got.data;
  const total = (key: "started" | "completed" | "failed") => fleet.throughput.reduce((sum, one) => sum + one[key], 0);
  const series = (key: "started" | "completed" | "failed") => fleet.throughput.map((one) => ({ at: one.at, n: one[key] }));
  const tasks = (n: number) => `${count(n)} ${n === 1 ? "task" : "tasks"}`;
  const cost = figures.data?.cost ?? [];
  return (
    <div class="column" style={{ maxWidth: "1180px" }}>
      <div style={{ display: "flex", gap: "10px", alignItems: "center", marginBottom: "10px" }}>
        <h1 class="grow">Fleet</h1>
        <select aria-label="How far back" value={String(hours)} onChange={(event) => setHours(Number(event.currentTarget.value))}><option value="1">last hour</option><option value="24">last day</option><option value="168">last week</option><option value="720">last month</option></select>
      </div>
      <div class="figures">
        <div class="figure"><h2>Started</h2><div class="n">{count(total("started"))}</div><Plot of={series("started")} words={tasks} /></div>
        <div class="figure"><h2>Completed</h2><div class="n">{count(total("completed"))}</div><Plot of={series("completed")} words={tasks} tone="var(--accent)" /></div>
        <div class="figure"><h2>Failed</h2><div class="n">{count(total("failed"))}</div><Plot of={series("failed")} words={tasks} tone="var(--bad)" /></div>
        <div class="figure"><h2>Cost</h2><div class="n">{money(cost.reduce((sum, one) => sum + (one.cost_usd ?? 0), 0)) || "–"}</div><Plot of={cost.map((one) => ({ at: one.at, n: one.cost_usd ?? 0 }))} words={(n) => money(n) || "$0"} /></div>
      </div>
      {!fleet.exact && <p class="quiet">There are more tasks than were counted here.</p>}
      <p class="dim section">{Object.entries(fleet.statuses).filter(([, n]) => n > 0).map(([status, n]) => <><span key={status} style={{ marginRight: "16px", whiteSpace: "nowrap" }}><a href={`/tasks?status=${status}`}>{count(n)} {status === "awaiting_user" && n !== 1 ? "wait for you" : statusWord(status)}</a></span>{" "}</>)}{fleet.waiting.stopped > 0 && <span class="doubt">{count(fleet.waiting.stopped)} stopped, with nobody driving</span>}</p>
      <section class="section"><h2>Workers</h2>
        {fleet.workers.length === 0 ? <p class="quiet">Nobody drives a task now.</p> : (
          <table class="sheet"><thead><tr><th scope="col">who</th><th scope="col" class="n">tasks</th><th scope="col">which</th></tr></thead>
            <tbody>{fleet.workers.map((one) => <tr key={one.owner}><td class="mono">{plain(one.owner)}</td><td class="n">{one.tasks}</td><td>{one.ids.slice(0, 4).map((id) => <a key={id} class="mono" style={{ marginRight: "10px" }} href={taskAddress(id)}>{plain(id)}</a>)}{one.tasks > 4 && <span class="quiet">and {one.tasks - 4} more</span>}</td></tr>)}</tbody></table>
        )}
      </section>
      {fleet.queues.length > 0 && <section class="section"><h2>Queues</h2><table class="sheet"><thead><tr><th scope="col">queue</th><th scope="col" class="n">running</th><th scope="col" class="n">pending</th><th scope="col" class="n">oldest waits for</th></tr></thead><tbody>{fleet.queues.map((one) => <tr key={one.name}><td><a class={one.name ? "mono" : ""} href={one.name ? `/tasks?status=pending&label=${encodeURIComponent(`queue=${one.name}`)}` : "/tasks?status=pending"}>{plain(one.name || "in no queue")}</a>{one.paused && <span class="doubt"> paused{one.by && ` by ${plain(one.by)}`}{one.because && `, because ${plain(one.because)}`}</span>}</td><td class="n">{one.running === null ? "–" : count(one.running)}{one.concurrency !== null && ` of ${count(one.concurrency)}`}</td><td class="n">{count(one.pending)}</td><td class="n">{one.oldest_s === null ? "–" : coarse(one.oldest_s * 1000)}</td></tr>)}</tbody></table></section>}
      {fleet.limits.length > 0 && <section class="section"><h2>Limits</h2><table class="sheet"><thead><tr><th scope="col">limit</th><th scope="col">key</th><th scope="col" class="n">calls under way</th><th scope="col">next one</th></tr></thead><tbody>{fleet.limits.map((one) => <tr key={`${one.name}:${one.key}`}><td class="mono">{plain(one.name)}</td><td class="mono">{plain(one.key)}</td><td class="n">{count(one.held)}</td><td>{one.paused_until ? `the provider refuses until ${moment(one.paused_until)}` : one.ready_at ? `at ${moment(one.ready_at)}` : "now"}</td></tr>)}</tbody></table></section>}
      {fleet.failures.length > 0 && <section class="section rows"><h2>Newest failures</h2>{fleet.failures.slice(0, 8).map((task) => <a class="row" key={task.id} href={taskAddress(task.id)}><span class="mono cut grow">{plain(task.id)}</span><span class="dim">{plain(task.type)}</span><Status status={task.status} /><span class="quiet num">{ago(task.updated_at)}</span></a>)}</section>}
      {figures.data && (
        <>
          <section class="section"><h2>By type</h2><table class="sheet"><thead><tr><th scope="col">type</th><th scope="col" class="n">tasks</th><th scope="col" class="n">median</th><th scope="col" class="n hide-narrow">p95</th><th scope="col" class="n hide-narrow">failures</th><th scope="col" class="n hide-narrow">retries</th><th scope="col" class="n">cost</th></tr></thead>
            <tbody>{figures.data.types.map((one) => <tr key={one.type}><td><a href={`/tasks?type=${encodeURIComponent(one.type)}`}>{plain(one.type)}</a></td><td class="n">{count(one.tasks)}</td><td class="n">{secs(one.duration_median_s)}</td><td class="n hide-narrow">{secs(one.duration_p95_s)}</td><td class="n hide-narrow">{one.failures}</td><td class="n hide-narrow">{one.retries}</td><td class="n">{money(one.cost_usd) || "–"}</td></tr>)}</tbody></table></section>
          <section class="section"><h2>By call</h2><table class="sheet"><thead><tr><th scope="col">call</th><th scope="col">kind</th><th scope="col" class="n">calls</th><th scope="col" class="n">failed</th><th scope="col" class="n hide-narrow">retries</th><th scope="col" class="n">median</th><th scope="col" class="n hide-narrow">p95</th></tr></thead>
            <tbody>{figures.data.calls.slice(0, 30).map((one) => <tr key={`${one.kind} ${one.name}`}><td class="mono">{plain(one.name)}</td><td class="dim">{one.kind}</td><td class="n">{count(one.calls)}</td><td class={`n ${one.failed ? "bad" : "dim"}`}>{one.failed}</td><td class="n hide-narrow">{one.retries}</td><td class="n">{secs(one.median_s)}</td><td class="n hide-narrow">{secs(one.p95_s)}</td></tr>)}</tbody></table></section>
          {!figures.data.complete && <p class="quiet">Of the newest {count(figures.data.tasks)} of {count(figures.data.of)} tasks.</p>}
        </>
      )}
    </div>
  );
}
