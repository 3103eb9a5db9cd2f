/** Missions: the plan as a board, with who works on what. */

import { useState } from "preact/hooks";
import { type FileView, type MissionView, useGet, useLive } from "../api";
import { ago, clock, plain } from "../format";
import { Loading, Refused, Shape, Status, useTitle } from "../parts/basics";
import { escaped, taskAddress } from "../route";
import { FilesList } from "./tabs";

interface MissionRow { id: string; text: string; status: string; items: number; done: number; failed: number; user: string; updated_at: string }

/** A number that grows whenever one of the tasks that match has moved: what is shown is read anew. */
function useMoves(filters: string): number {
  const [moves, set] = useState(0);
  useLive(`/api/live?${filters}`, (name) => { if (name === "tasks") set((n) => n + 1); }, ["tasks"]);
  return moves;
}

export function MissionsPlace() {
  const got = useGet<{ missions: MissionRow[] }>("/api/missions", useMoves("type=mission"));
  useTitle("Missions");
  if (got.error) return <div class="column"><Refused error={got.error} /></div>;
  if (!got.data) return <Loading what="Reading the missions…" />;
  return (
    <div class="column">
      <h1>Missions</h1>
      {got.data.missions.length === 0 && <p class="empty">No task in this store has a mission.</p>}
      <div class="rows" style={{ marginTop: "10px" }}>{got.data.missions.map((one) => (
        <a class="row" key={one.id} href={`/missions/${escaped(one.id)}`}>
          <span class="mono cut">{plain(one.id)}</span><span class="cut grow dim">{plain(one.text)}</span>
          <span class="num">{one.done} of {one.items}{one.failed > 0 && <span class="bad">, {one.failed} failed</span>}</span><Status status={one.status} /><span class="quiet num">{ago(one.updated_at)}</span>
        </a>
      ))}</div>
    </div>
  );
}

const COLUMNS: [string, string[]][] = [["To do", ["pending"]], ["Doing", ["doing"]], ["Done", ["done"]], ["Failed or skipped", ["failed", "skipped"]]];

export function MissionPlace({ id }: { id: string }) {
  const got = useGet<MissionView>(`/api/missions/${escaped(id)}`, useMoves(`text=${encodeURIComponent(id)}`));
  useTitle(id);
  if (got.error && !got.data) return <div class="column"><Refused error={got.error} /></div>;
  if (!got.data) return <Loading what="Reading the mission…" />;
  const view = got.data;
  return (
    <div style={{ minHeight: "100%", display: "flex", flexDirection: "column" }}>
      <header style={{ padding: "12px 14px" }}>
        <h1><a class="mono" href={taskAddress(id)}>{plain(id)}</a> <Status status={view.status} /></h1>
        <p style={{ maxWidth: "90ch", marginTop: "4px" }}><bdi>{plain(view.text)}</bdi></p>
      </header>
      <div class="board" role="group" aria-label="The plan as a board" style={{ minHeight: "240px" }}>
        {COLUMNS.map(([name, statuses]) => {
          const items = view.items.filter((item) => statuses.includes(item.status));
          return (
            <section key={name} aria-label={name}><h2><span>{name}</span><span class="num quiet">{items.length}</span></h2>
              {items.map((item) => (
                <article class="card" key={item.id}>
                  <div><Shape status={item.status} /> <span class="quiet mono">{plain(item.id)}</span> <bdi>{plain(item.text)}</bdi></div>
                  {item.because && <div class="dim"><bdi>{plain(item.because)}</bdi></div>}
                  {item.status === "pending" && <div class="quiet">{item.ready ? "ready" : `after ${item.after.map(plain).join(", ")}`}</div>}
                  {item.task && <div class="dim"><a href={taskAddress(item.task)}>{plain(item.task)}</a> {item.at_work ? `· ${plain(item.at_work)} works on it` : item.task_status ? `· ${item.task_status.replaceAll("_", " ")}` : ""}</div>}
                </article>
              ))}
            </section>
          );
        })}
      </div>
      <div class="versus grow">
        <section><h2>Artifacts</h2>
          {(view.files.length > 0 || view.artifacts.length === 0) && <FilesList id={id} files={view.files as FileView[]} />}
          {view.artifacts.map((one) => <div class="section" key={one.task}><h3>item {plain(one.item)}, <a href={taskAddress(one.task)}>{plain(one.task)}</a></h3><FilesList id={one.task} files={one.files} /></div>)}
        </section>
        <section><h2>Progress</h2>{view.progress.length === 0 && <p class="empty">No progress was written down yet.</p>}<ul>{view.progress.slice(-60).map((one, i) => <li key={i}><span class="quiet num">{clock(one.at)}</span> <bdi>{plain(one.text)}</bdi></li>)}</ul></section>
      </div>
    </div>
  );
}
