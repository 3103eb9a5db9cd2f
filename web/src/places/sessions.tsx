/** Sessions: a conversation as a conversation, and the tasks that it had. */

import { useEffect, useState } from "preact/hooks";
import { type Messages, Refusal, type SessionRow, type SessionView, get, of, post, useEvery, useGet } from "../api";
import { ago, count, moment, plain, plural } from "../format";
import { useKeys } from "../keys";
import { Command, Loading, Refused, Status, say, useMe, useTitle } from "../parts/basics";
import { Talk } from "../parts/messages";
import { escaped, go, taskAddress } from "../route";

const FOLLOW_MS = 2500;
const PAGE = 100;

interface SessionsPage { sessions: SessionRow[]; next: string | null }

export function SessionsPlace() {
  const got = useGet<SessionsPage>(`/api/sessions?limit=${PAGE}`);
  const [further, setFurther] = useState<SessionsPage[]>([]);
  const [at, setAt] = useState(0);
  useTitle("Sessions");
  const pages = got.data ? [got.data, ...further] : [];
  const rows = pages.flatMap((page) => page.sessions);
  const next = pages.at(-1)?.next ?? null;
  const more = async (cursor: string) => {
    try {
      const page = await get<SessionsPage>(`/api/sessions?limit=${PAGE}&cursor=${encodeURIComponent(cursor)}`);
      setFurther((old) => (old.some((one) => one.next === page.next) ? old : [...old, page]));
    } catch (problem) { if (problem instanceof Refusal) say(problem.message); }
  };
  useKeys({
    j: () => setAt((n) => Math.min(rows.length - 1, n + 1)), k: () => setAt((n) => Math.max(0, n - 1)),
    enter: () => rows[at] && go(`/sessions/${escaped(rows[at]!.id)}`),
  });
  if (got.error) return <div class="column"><Refused error={got.error} /></div>;
  if (!got.data) return <Loading what="Reading the list…" />;
  return (
    <div class="column">
      <h1>Sessions</h1>
      {rows.length === 0 && <p class="empty">There is no session in this store.</p>}
      <div class="rows" style={{ marginTop: "10px" }}>{rows.map((one, i) => (
        <a class="row" key={one.id} href={`/sessions/${escaped(one.id)}`} style={i === at ? { background: "var(--panel)" } : {}}>
          <span class="mono cut grow">{plain(one.id)}</span><span class="dim">{plain(one.user)}</span><span class="dim">{one.status}</span><span class="quiet num" title={moment(one.updated_at)}>{ago(one.updated_at)}</span>
        </a>
      ))}</div>
      {next && <p class="section"><button type="button" class="link" onClick={() => void more(next)}>{count(rows.length)} are shown: more</button></p>}
    </div>
  );
}

function Say({ id, onDone }: { id: string; onDone: () => void }) {
  const [text, set] = useState("");
  const [error, setError] = useState<Refusal | null>(null);
  const me = useMe();
  if (me?.read_only) return null;
  const send = async (event: Event) => {
    event.preventDefault();
    if (!text.trim()) return;
    try { await post(of.session(id, "/say"), { text }); set(""); setError(null); onDone(); } catch (problem) { if (problem instanceof Refusal) setError(problem); }
  };
  return (
    <form onSubmit={send} style={{ display: "flex", gap: "6px", flexWrap: "wrap", paddingTop: "12px" }}>
      <input type="text" class="grow" aria-label="Say something in this conversation" placeholder="say something (recorded as the user's message)" value={text} onInput={(event) => set(event.currentTarget.value)} />
      <button>Say</button>{error && <Refused error={error} />}
    </form>
  );
}

export function SessionPlace({ id }: { id: string }) {
  const [fresh, setFresh] = useState(0);
  const [limit, setLimit] = useState(100);
  const about = useGet<SessionView>(of.session(id), fresh);
  const got = useGet<Messages>(of.session(id, `/messages?newest=1&limit=${limit}`), fresh);
  useTitle(id);
  const followed = useEvery(FOLLOW_MS, about.loading || got.loading);
  useEffect(() => setFresh((n) => n + 1), [followed]);
  if (about.error && !about.data) return <div class="column"><Refused error={about.error} /></div>;
  if (!about.data || !got.data) return <Loading what="Reading the conversation…" />;
  const view = about.data;
  return (
    <div class="talk">
      <header style={{ paddingBottom: "8px" }}>
        <h1 class="mono">{plain(view.id)}</h1>
        <p class="dim">{view.user && `with ${plain(view.user)} · `}{view.status} · {plural(view.messages, "message")} · {plural(view.summaries.length, "compaction")} · began {moment(view.created_at)}</p>
        {view.commands.show && <Command line={view.commands.show} />}
      </header>
      {view.tasks.length > 0 && <details class="section"><summary>{plural(view.tasks.length, "task")}</summary><div class="rows">{view.tasks.map((task) => (
        <a class="row" key={task.id} href={taskAddress(task.id)}><span class="mono cut grow">{plain(task.id)}</span><span class="dim">{plain(task.type)}</span><Status status={task.status} /></a>
      ))}</div></details>}
      {got.data.offset > 0 && <p><button type="button" class="link" onClick={() => setLimit((n) => n * 2)}>{count(got.data.offset)} earlier messages</button></p>}
      <Talk messages={got.data.messages} summaries={view.summaries} />
      <Say id={id} onDone={() => setFresh((n) => n + 1)} />
    </div>
  );
}
