/** The other tabs of a task: tree, conversation, files, plan, why. Each as of the same event. */

import { useEffect, useRef, useState } from "preact/hooks";
import { type CallRow, type FileView, type Messages, type PlanView, type SessionView, type Why, of, useGet } from "../api";
import { bytes, clock, coarse, count, duration, moment, plain } from "../format";
import { Loading, Refused, Shape } from "../parts/basics";
import { Parts, SawDialog } from "../parts/call";
import { FailureView } from "../parts/failure";
import { Talk } from "../parts/messages";
import { DiffLines, ValueView, briefValue } from "../parts/value";
import { reveal, useSeen } from "../parts/virtual";
import { taskAddress } from "../route";
import { INSTANT } from "../timeline/bars";
import type { Calls } from "../timeline/calls";
import { ROW } from "../timeline/timeline";

const asOf = (seq: number | null): string => (seq === null ? "" : `?at=${seq}`);

export function TreeTab({ calls, selected, seq, onSelect, moveTo }: { calls: Calls; selected: string; seq: number | null; onSelect: (call: CallRow) => void; moveTo: { index: number; n: number } | null }) {
  const box = useRef<HTMLDivElement>(null);
  const seen = useSeen(box, ROW, calls.total);
  useEffect(() => { if (moveTo) reveal(box.current, ROW, moveTo.index); }, [moveTo?.n]);
  const rows: { call: CallRow; index: number }[] = [];
  for (let i = seen.first; i < seen.last; i++) { const call = calls.at(i); if (call) rows.push({ call, index: i }); }
  return (
    <div class="lanes tree grow" ref={box} role="listbox" tabIndex={0} aria-label="Calls as a tree" aria-activedescendant={rows.some((row) => row.call.path === selected) ? `call-${selected}` : undefined}>
      <div role="presentation" style={{ height: `${calls.total * ROW}px`, position: "relative" }}>
        {rows.map(({ call, index }) => (
          <div class={`lane${seq !== null && call.seq > seq ? " later" : ""}`} role="option" id={`call-${call.path}`} key={index} aria-selected={call.path === selected} style={{ top: `${index * ROW}px` }} onClick={() => onSelect(call)} data-path={call.path}>
            <div class="name" style={{ paddingLeft: `${12 + Math.min(call.depth, 12) * 16}px` }}><Shape status={call.status} /><span class="path">{INSTANT.has(call.kind) ? "" : plain(call.path)}</span><span class={`call ${call.kind}`}><bdi>{plain(call.name)}</bdi></span><span class="kind quiet">{call.kind}</span></div>
            <div class="out cut"><bdi class="cut">{plain(call.words)}</bdi></div>
            <div class="took">{call.ended_at ? duration(Date.parse(call.ended_at) - Date.parse(call.at)) : call.status.replaceAll("_", " ")}</div>
          </div>
        ))}
      </div>
    </div>
  );
}

interface ModelCalls { calls: { path: string; name: string; at: string; tokens: number | null; left_out: number; messages: number }[] }

export function ConversationTab({ id, session, seq, fresh, models, running }: { id: string; session: string; seq: number | null; fresh: number; models: boolean; running: CallRow[] }) {
  const [limit, setLimit] = useState(100);
  const got = useGet<Messages>(of.task(id, `/conversation?limit=${limit}${seq === null ? "&newest=1" : `&at=${seq}`}`), fresh);
  const about = useGet<SessionView>(session ? of.session(session) : null, fresh);
  const calls = useGet<ModelCalls>(models ? of.task(id, `/models${asOf(seq)}`) : null, fresh);
  const [open, setOpen] = useState("");
  if (got.error) return <div class="column"><Refused error={got.error} /></div>;
  if (!got.data) return <Loading what="Reading the conversation…" />;
  const summaries = (got.data.summaries ?? about.data?.summaries ?? []).filter((one) => seq === null || !got.data || one.upto <= got.data.total);
  return (
    <div class="talk">
      {(calls.data?.calls.length ?? 0) > 0 && (
        <details class="section"><summary>{count(calls.data!.calls.length)} model calls: exactly what each one saw</summary>
          <ul style={{ padding: "6px 0 10px" }}>{calls.data!.calls.map((call) => (
            <li key={call.path}><button type="button" class="link mono" onClick={() => setOpen(call.path)}>{plain(call.path)} {plain(call.name)}</button> <span class="dim num">{clock(call.at)} · {call.messages} messages{call.tokens ? ` · ${count(call.tokens)} tokens` : ""}{call.left_out ? ` · ${call.left_out} left out` : ""}</span></li>
          ))}</ul>
        </details>
      )}
      {got.data.messages.length === 0 && <p class="empty">Nothing was said{seq === null ? "" : " by then"}.</p>}
      {got.data.offset > 0 && <p><button type="button" class="link" onClick={() => setLimit((n) => n * 2)}>{count(got.data.offset)} earlier messages</button></p>}
      <Talk messages={got.data.messages} summaries={summaries} />
      {running.map((call) => <Parts key={call.path} task={id} path={call.path} name={call.name} />)}
      {open && <SawDialog task={id} path={open} onClose={() => setOpen("")} />}
    </div>
  );
}

function FileRow({ id, file }: { id: string; file: FileView }) {
  const name = encodeURIComponent(file.name);
  const [open, setOpen] = useState(false);
  const [pair, setPair] = useState<[number, number] | null>(null);
  const text = useGet<{ text: string | null; size: number; truncated: boolean; binary: boolean }>(open ? of.task(id, `/files/${name}?seq=${file.seq}&text=1`) : null);
  const diff = useGet<{ lines: { marker: string; text: string }[]; binary: boolean }>(pair ? of.task(id, `/files/${name}/diff?from=${pair[0]}&to=${pair[1]}`) : null);
  const image = /^image\/(png|jpeg|gif|webp)$/.test(file.media_type);
  const versions = file.versions;
  return (
    <section style={{ borderBottom: "1px solid var(--line)", padding: "8px 0" }}>
      <p><button type="button" class="link mono" aria-expanded={open} onClick={() => setOpen(!open)}><bdi>{plain(file.name)}</bdi></button> <span class="dim num">{bytes(file.size)} · {moment(file.at)}{file.by && ` · by ${plain(file.by)}`}{file.path && ` · call ${plain(file.path)}`}</span> <a href={of.task(id, `/files/${name}?seq=${file.seq}`)} download>download</a></p>
      {versions.length > 1 && (
        <p class="dim">{versions.length} versions: {versions.length > 12 && "the newest: "}{versions.slice(-12).map((one, i) => {
          const before = versions.filter((other) => other.seq < one.seq).sort((a, b) => b.seq - a.seq)[0];
          return <span key={one.seq}>{i > 0 && " · "}<button type="button" class="link" disabled={!before} onClick={() => before && setPair([before.seq, one.seq])}>event {one.seq}</button></span>;
        })}</p>
      )}
      {pair && diff.data && (diff.data.lines.length ? <DiffLines lines={diff.data.lines} /> : <p class="quiet">{diff.data.binary ? "It is no text." : "Nothing changed."}</p>)}
      {open && image && <img alt={file.name} style={{ maxWidth: "100%", maxHeight: "420px" }} src={of.task(id, `/files/${name}?seq=${file.seq}&image=1`)} />}
      {open && !image && text.data && (text.data.binary ? <p class="quiet">It is no text.</p> : <pre class="trace" tabIndex={0}>{plain(text.data.text ?? "")}{text.data.truncated && "\n…"}</pre>)}
    </section>
  );
}

export function FilesList({ id, files }: { id: string; files: FileView[] }) {
  if (!files.length) return <p class="empty">It has kept no files.</p>;
  return <>{files.map((file) => <FileRow key={file.name} id={id} file={file} />)}</>;
}

export function FilesTab({ id, seq, fresh }: { id: string; seq: number | null; fresh: number }) {
  const got = useGet<{ files: FileView[] }>(of.task(id, `/files${asOf(seq)}`), fresh);
  if (got.error) return <div class="column"><Refused error={got.error} /></div>;
  return got.data ? <div class="column"><FilesList id={id} files={got.data.files} /></div> : <Loading />;
}

export function PlanTab({ id, seq, fresh, onMove }: { id: string; seq: number | null; fresh: number; onMove: (seq: number) => void }) {
  const got = useGet<PlanView>(of.task(id, `/plan${asOf(seq)}`), fresh);
  if (got.error) return <div class="column"><Refused error={got.error} /></div>;
  if (!got.data) return <Loading />;
  const { mission, items, versions } = got.data;
  return (
    <div class="column">
      {mission && <p class="said" style={{ marginBottom: "12px" }}><bdi>{plain(mission)}</bdi></p>}
      {items.length === 0 && <p class="empty">It has made no plan{seq === null ? "" : " by then"}.</p>}
      <ol class="rows">{items.map((item, i) => (
        <li class="row" key={item.id || i} aria-current={got.data!.place === i + 1 ? "step" : undefined}>
          <span class="num quiet" style={{ width: "2.5ch" }}>{i + 1}</span><Shape status={item.status} />
          <span class="grow" style={{ fontWeight: item.status === "doing" ? 600 : 400 }}><bdi>{plain(item.text)}</bdi>{item.because && <span class="dim">, because {plain(item.because)}</span>}</span>
          <span class="dim">{item.status}</span>
        </li>
      ))}</ol>
      {versions.length > 1 && <section class="section"><h3>changes of the plan</h3><ul>{versions.slice(-40).map((one) => (
        <li key={one.seq}><button type="button" class="link num" onClick={() => onMove(one.seq)}>event {one.seq}</button> <span class="dim">{clock(one.at)} {plain([one.marked, one.because && `because ${one.because}`, one.by && `by ${one.by}`].filter(Boolean).join(", ")) || `${one.items} items`}</span></li>
      ))}</ul></section>}
    </div>
  );
}

export function WhyTab({ id, seq, fresh }: { id: string; seq: number | null; fresh: number }) {
  const got = useGet<Why>(of.task(id, `/why${asOf(seq)}`), fresh);
  if (got.error) return <div class="column"><Refused error={got.error} /></div>;
  if (!got.data) return <Loading />;
  const { chains, facts, notes, failures, readings } = got.data;
  const call = (path: string) => taskAddress(id, seq, `?call=${encodeURIComponent(path)}`);
  return (
    <div class="column">
      <h2>Decisions</h2>
      {chains.length === 0 && <p class="quiet">It recorded none.</p>}
      <ol>{chains.map((chain, i) => (
        <li key={i} style={{ borderBottom: "1px solid var(--line)", padding: "7px 0" }}>{chain.map((one) => (
          <div key={one.path} class={one.superseded_by ? "dim" : ""}>
            <a class="mono" href={call(one.path)}>{plain(one.path)}</a> <b>{plain(one.name)}</b>: <span class="mono">{plain(briefValue(one.choice))}</span>
            {one.because && <span> because <bdi>{plain(one.because)}</bdi></span>}{one.superseded_by && <span class="quiet"> (no longer counts: {plain(one.superseded_by)})</span>}
            {one.options && <details><summary>options</summary><ValueView of={one.options} /></details>}
          </div>
        ))}</li>
      ))}</ol>
      {failures.length > 0 && <section class="section"><h2>Failures</h2>{failures.map((one) => (
        <div key={`${one.path} ${one.attempt}`} class="section"><p><a class="mono" href={call(one.path)}>{plain(one.path)}</a> <b>{plain(one.name)}</b>, attempt {one.attempt} <span class="dim">{moment(one.at)}</span></p><FailureView of={one.failure} /><details><summary>input</summary><ValueView of={one.input} /></details></div>
      ))}</section>}
      {readings.length > 0 && <section class="section"><h2>Readings of the outside world</h2><ul>{readings.map((one) => <li key={one.path}><a class="mono" href={call(one.path)}>{plain(one.path)}</a> {plain(one.name)} <span class="dim">{one.of ? `as call ${plain(one.of)} said, ` : ""}{one.as_of && `as of ${moment(one.as_of)}`}{one.age_s !== null && `, ${coarse(one.age_s * 1000)} old when it was used`}{one.as_of && seq === null && `, ${coarse(Date.now() - Date.parse(one.as_of))} old now`}</span></li>)}</ul></section>}
      {facts.length > 0 && <section class="section"><h2>Facts</h2><ul>{facts.map((one) => <li key={one.path}><b>{plain(one.name)}</b> <span class="mono">{plain(briefValue(one.value))}</span> <span class="dim">as of {moment(one.as_of)}</span></li>)}</ul></section>}
      {notes.length > 0 && <section class="section"><h2>Notes</h2><ul>{notes.map((one, i) => <li key={i}><span class="quiet num">{one.at ? clock(one.at) : ""}</span> <bdi>{plain(one.text)}</bdi></li>)}</ul></section>}
    </div>
  );
}

