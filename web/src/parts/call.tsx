/** One call: what it was given, what came of it, each attempt, and why. */

import { useState } from "preact/hooks";
import { type CallDetail, type Message, type Saw, type Value, of, useGet, useLive } from "../api";
import { clock, coarse, count, duration, moment, money, plain } from "../format";
import { taskAddress } from "../route";
import { Command, Dialog, Loading, Refused, Status, statusWord } from "./basics";
import { FailureView } from "./failure";
import { Turn, namesOf, resultsOf } from "./messages";
import { Changes, ValueView, briefValue } from "./value";

const MOST = 20000;

interface PartData { number: number; attempt: number; begins_anew: boolean; text?: string; value?: Value }

/** What a step yields while it runs, as it comes. Nothing is shown for a step that yields nothing. */
export function Parts({ task, path, name = "" }: { task: string; path: string; name?: string }) {
  const [told, set] = useState({ text: "", parts: 0, anew: 0, over: false });
  const on = (event: string, data: unknown) => {
    if (event === "end") return set((old) => ({ ...old, over: true }));
    const part = data as PartData;
    if (part.begins_anew) return set((old) => ({ text: "", parts: 0, anew: old.anew + 1, over: false }));
    const more = part.text ?? `${briefValue(part.value ?? null, 200)}\n`;
    return set((old) => ({ ...old, parts: part.number, text: (old.text + more).slice(-MOST) }));
  };
  useLive(told.over ? null : `/api/live${of.call(task, path).slice(4)}`, on, ["part", "end"]);
  if (told.parts === 0 && told.anew === 0) return null;
  return (
    <section class="section" aria-label={`Stream of call ${path}`}>
      <h3>{name ? `${plain(path)} ${plain(name)} ` : ""}streams{told.over ? "ed" : " now"}<span class="quiet num">{count(told.parts)} parts{told.anew > 0 && ", begun anew"}</span></h3>
      <p class="text" style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}><bdi>{plain(told.text)}</bdi></p>
    </section>
  );
}

function Attempts({ of: call }: { of: CallDetail }) {
  if (call.attempts.length < 2 && !call.attempts[0]?.failure) return null;
  return (
    <section class="section">
      <h3>attempts</h3>
      <ol>{call.attempts.map((one) => (
        <li key={one.number} style={{ marginBottom: "6px" }}>
          <span class="num">{one.number}. {clock(one.at, true)}</span>{" "}
          <span class={one.outcome === "failed" ? "bad" : one.outcome === "interrupted" ? "doubt" : ""}>{one.outcome}</span>{" "}
          {one.ended_at && <span class="quiet">{duration(Date.parse(one.ended_at) - Date.parse(one.at))}</span>}
          {one.failure && <FailureView of={one.failure} />}
        </li>
      ))}</ol>
    </section>
  );
}

function Model({ task, path, usage }: { task: string; path: string; usage: CallDetail["usage"] }) {
  const [open, show] = useState(false);
  return (
    <section class="section">
      <h3>model call</h3>
      <p>{usage && <Used of={usage} />} <button type="button" onClick={() => show(true)}>What it saw and said</button></p>
      {open && <SawDialog task={task} path={path} onClose={() => show(false)} />}
    </section>
  );
}

function Used({ of: usage }: { of: NonNullable<CallDetail["usage"]> }) {
  const words = [
    usage.model, usage.input_tokens !== null && `${count(usage.input_tokens)} tokens in`, usage.output_tokens !== null && `${count(usage.output_tokens)} out`,
    usage.cached_tokens ? `${count(usage.cached_tokens)} cached` : "", money(usage.cost_usd),
    usage.first_token_s !== null && usage.first_token_s !== undefined && `first token after ${duration(usage.first_token_s * 1000)}`,
  ].filter(Boolean);
  return <span class="dim num">{plain(words.join(" · "))}</span>;
}

export function SawDialog({ task, path, onClose }: { task: string; path: string; onClose: () => void }) {
  const saw = useGet<Saw>(of.call(task, path, "/saw"));
  const before = useGet<Saw>(saw.data?.previous ? of.call(task, saw.data.previous, "/saw") : null);
  const [only, setOnly] = useState(false);
  // What the harness adds (the goal, the plan, a summary) has no number: it is new if its words are.
  const mark = (message: Message) => message.number || JSON.stringify(message.blocks);
  const known = new Set(before.data?.messages.map((one) => mark(one.message)));
  const data = saw.data;
  const messages = data?.messages.map((one) => one.message) ?? [];
  const results = resultsOf(messages);
  const names = namesOf(messages);
  return (
    <Dialog title={`What the model saw, call ${path}`} onClose={onClose}>
      {saw.error && <Refused error={saw.error} />}
      {!data && !saw.error && <Loading />}
      {data && (
        <>
          <p class="dim num">{count(data.messages.length)} messages{data.tokens !== null && `, ${count(data.tokens)} tokens`}{data.budget !== null && ` of ${count(data.budget)}`}{data.tools.length > 0 && `, ${data.tools.length} tools`}. {data.usage && <Used of={data.usage} />}</p>
          {data.left_out.messages > 0 && <p class="said doubt">{plain(data.left_out.words)}</p>}
          {before.data && <label class="check"><input type="checkbox" checked={only} onChange={(event) => setOnly(event.currentTarget.checked)} /> only what is new since call {before.data.path}</label>}
          <section aria-label="What it saw">
            {data.messages.map(({ kind, message }, i) => {
              const fresh = before.data !== null && !known.has(mark(message));
              if (only && !fresh) return null;
              return <Turn key={i} message={message} results={results} names={names} tag={[kind === "recent" ? "" : kind, fresh ? "+ new" : ""].filter(Boolean).join(" ")} />;
            })}
          </section>
          {data.tools.length > 0 && <details><summary>tools it could call</summary>
            {data.tools.map((tool) => <div class="section" key={tool.name}><b class="mono">{plain(tool.name)}</b> <span class="dim">{plain(tool.description)}</span><ValueView of={tool.parameters} open={1} /></div>)}
          </details>}
          <section><h2>What it said</h2><ValueView of={data.said} open={4} /></section>
        </>
      )}
    </Dialog>
  );
}

/** Whether the words of a call only say again what its status does. */
function isTold({ status, settled_by, words }: CallDetail): boolean {
  return ["", statusWord(status), `${statusWord(status)}, settled by ${settled_by}`].includes(words);
}

export function CallPane({ task, path, at, fresh = 0, onPlace }: { task: string; path: string; at: number | null; fresh?: number; onPlace: (seq: number) => void }) {
  const got = useGet<CallDetail>(of.call(task, path, at === null ? "" : `?at=${at}`), fresh);
  const call = got.data;
  if (got.error) return <Refused error={got.error} />;
  if (!call) return <Loading />;
  return (
    <div class="call-detail">
      <dl class="facts-list">
        <dt>status</dt><dd><Status status={call.status} /> {call.settled_by && <span class="dim">settled by {plain(call.settled_by)}</span>}</dd>
        {!isTold(call) && <><dt>in words</dt><dd><bdi>{plain(call.words)}</bdi></dd></>}
        <dt>began</dt><dd class="num">{moment(call.at)}{call.ended_at && <span class="dim">, took {duration(Date.parse(call.ended_at) - Date.parse(call.at))}</span>}</dd>
        {call.why && <><dt>why</dt><dd><bdi>{plain(call.why)}</bdi></dd></>}
        {call.key && <><dt>key</dt><dd class="mono">{plain(call.key)}</dd></>}
        {call.adopted_of && <><dt>outcome of</dt><dd><a href={taskAddress(call.adopted_of[0])}>{plain(call.adopted_of[0])}</a> {call.adopted_of[1]}</dd></>}
        {call.child && <><dt>child task</dt><dd><a href={taskAddress(call.child)}>{plain(call.child)}</a></dd></>}
        {call.reading && call.reading.as_of && <><dt>as of</dt><dd>{moment(call.reading.as_of)}{call.reading.age_s !== null && `, ${coarse(call.reading.age_s * 1000)} old`}</dd></>}
        <dt>places</dt><dd><button type="button" class="link" onClick={() => onPlace(call.before_seq)}>before it</button> · <button type="button" class="link" onClick={() => onPlace(call.after_seq)}>after it</button></dd>
      </dl>
      {call.failure && call.status !== "completed" && <section class="section"><h3>failed</h3><FailureView of={call.failure} open /></section>}
      {call.question && (
        <section class="section"><h3>question</h3><p class="ask"><bdi>{plain(call.question.question)}</bdi></p>
          {call.question.answer && <p>{plain(call.question.by)} answered <ValueView of={call.question.answer} bare /></p>}
          {call.question.refused && <p class="doubt">{plain(call.question.refused)}</p>}
        </section>
      )}
      {call.decision && (
        <section class="section"><h3>decision</h3><ValueView of={call.decision.choice} />
          {call.decision.because && <p>because <bdi>{plain(call.decision.because)}</bdi></p>}
          {call.decision.options && <details><summary>of these options</summary><ValueView of={call.decision.options} /></details>}
        </section>
      )}
      {at === null && !call.ended_at && (call.kind === "step" || call.kind === "tool") && <Parts task={task} path={path} />}
      {call.model && <Model task={task} path={path} usage={call.usage} />}
      {call.input && <section class="section"><h3>input</h3><ValueView of={call.input} open={call.model ? 1 : 2} /></section>}
      {call.output && !call.decision && <section class="section"><h3>output</h3><ValueView of={call.output} open={3} /></section>}
      <Attempts of={call} />
      {call.changes.length > 0 && <section class="section"><h3>what it changed</h3><Changes of={call.changes} /></section>}
      {Object.values(call.commands).length > 0 && (
        <details class="section"><summary class="quiet">on the command line</summary>{Object.values(call.commands).map((line) => <p key={line}><Command line={line} /></p>)}</details>
      )}
    </div>
  );
}
