/** What needs a person, and the means to do it: answer, approve, settle a doubt, try again. */

import { useState } from "preact/hooks";
import { type Action, type Done, type Need, Refusal, of, post } from "../api";
import { ago, moment, plain } from "../format";
import { taskAddress } from "../route";
import { Command, Dialog, Refused, say, useMe } from "./basics";
import { FailureView } from "./failure";
import { ValueView } from "./value";

export interface Doing { busy: boolean; error: Refusal | null; run: (path: string, body: unknown) => Promise<Done | null>; clear: () => void }

/** One action at a time: its words are told, and a refusal is shown where it was asked for. */
export function useDoing(onDone: (done: Done) => void): Doing {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Refusal | null>(null);
  const run = async (path: string, body: unknown): Promise<Done | null> => {
    setBusy(true);
    setError(null);
    try {
      const done = await post<Done>(path, body);
      say([done.words, done.next].filter(Boolean).join(" "));
      onDone(done);
      return done;
    } catch (problem) {
      setError(problem instanceof Refusal ? problem : new Refusal("internal", String(problem), null, 0));
      return null;
    } finally {
      setBusy(false);
    }
  };
  return { busy, error, run, clear: () => setError(null) };
}

/** The values that an annotation allows, if it names them: `Literal['a', 'b']`, `bool`. */
export function choicesOf(expects: string): { label: string; answer: unknown }[] | null {
  if (expects === "bool") return [{ label: "Yes", answer: true }, { label: "No", answer: false }];
  const named = /^(?:typing\.)?Literal\[(.*)\]$/.exec(expects);
  if (!named) return null;
  const found = [...named[1]!.matchAll(/'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|(-?\d+)|(True|False|None)/g)];
  if (found.length === 0 || found.length > 9) return null;
  return found.map((one) => {
    if (one[3] !== undefined) return { label: one[3], answer: Number(one[3]) };
    if (one[4] !== undefined) return { label: one[4], answer: one[4] === "None" ? null : one[4] === "True" };
    const text = (one[1] ?? one[2] ?? "").replace(/\\(.)/g, "$1");
    return { label: text, answer: text };
  });
}

/** What is asked, in a line. The arguments of a call that asks for approval are shown below it. */
export function askOf(need: Need): string {
  return need.kind === "approval" && need.call?.name ? `May it call ${need.call.name}?` : need.question || need.title;
}

interface Field { hint: string; lines?: true; mode?: "numeric" | "decimal"; given: (text: string) => object }

/** How an answer of this annotation is typed in, in words for somebody who writes no code. */
export function fieldOf(expects: string): Field {
  const optional = /^(.*?) \| None$/.exec(expects);
  if (optional) {
    const inner = fieldOf(optional[1]!);
    return { ...inner, hint: `${inner.hint}; nothing for none`, given: (text) => (text === "" ? { answer: null } : inner.given(text)) };
  }
  const asText = (text: string) => ({ text });
  switch (expects) {
    case "": case "str": return { hint: "your answer", lines: true, given: (text) => ({ answer: text }) };
    case "int": return { hint: "a whole number", mode: "numeric", given: asText };
    case "float": case "Decimal": return { hint: "a number", mode: "decimal", given: asText };
    case "date": return { hint: "a date, as 2026-03-31", given: asText };
    case "datetime": return { hint: "a date and a time, as 2026-03-31T18:00:00", given: asText };
    case "list[str]": return { hint: "one in each line", lines: true, given: (text) => ({ answer: text.split("\n").filter((line) => line !== "") }) };
    default: return { hint: `${expects}, as JSON`, lines: true, given: asText };
  }
}

interface FormProps { need: Need; doing: Doing; field: string }

function Answer({ need, doing, field }: FormProps) {
  const [text, set] = useState("");
  const me = useMe();
  const off = doing.busy || (me?.read_only ?? false);
  const choices = choicesOf(need.expects ?? "");
  const send = (body: object) => doing.run(of.task(need.task, "/answer"), { question: need.id, ...body });
  if (choices) {
    return (
      <div class="buttons">
        {choices.map((one, i) => (
          <button type="button" key={one.label} class={i === 0 ? "main" : ""} disabled={off} onClick={() => send({ answer: one.answer })}>{plain(one.label)}</button>
        ))}
      </div>
    );
  }
  const as = fieldOf(need.expects ?? "");
  const about = { id: field, "aria-label": `Answer: ${need.title}`, value: text, disabled: off, placeholder: as.hint };
  const isSent = (event: KeyboardEvent) => event.key === "Enter" && (event.ctrlKey || event.metaKey);
  return (
    <form onSubmit={(event) => { event.preventDefault(); void send(as.given(text)); }}>
      {as.lines
        ? <textarea {...about} rows={2} onInput={(event) => set(event.currentTarget.value)} onKeyDown={(event) => { if (isSent(event)) event.currentTarget.form?.requestSubmit(); }} />
        : <input {...about} type="text" inputMode={as.mode ?? "text"} onInput={(event) => set(event.currentTarget.value)} />}
      <button class="main" disabled={off}>Answer</button>
    </form>
  );
}

function SettleDialog({ need, doing, onClose }: { need: Need; doing: Doing; onClose: () => void }) {
  const [result, setResult] = useState("");
  const [because, setBecause] = useState("");
  const [unchecked, setUnchecked] = useState(false);
  const send = async () => {
    const body = { path: need.path, happened: true, because, unchecked, result_text: result.trim() || "null" };
    if (await doing.run(of.task(need.task, "/resolve"), body)) onClose();
  };
  return (
    <Dialog title={`${need.call?.name ?? need.path} happened`} onClose={onClose} onSubmit={send}
      footer={<><button type="button" onClick={onClose}>Leave it</button><button class="main" disabled={doing.busy}>It happened</button></>}>
      <p>The task goes on with the result you give here, as if the call had returned it. It is recorded with your name.</p>
      <label class="field">What it returned, as JSON (a text needs quotes); empty for nothing
        <textarea value={result} onInput={(event) => setResult(event.currentTarget.value)} />
      </label>
      <label class="field">How you know
        <input type="text" value={because} placeholder="the calendar has the invite" onInput={(event) => setBecause(event.currentTarget.value)} />
      </label>
      {doing.error && <Refused error={doing.error} />}
      {(doing.error?.code === "needs_code" || unchecked) && (
        <label class="check"><input type="checkbox" checked={unchecked} onChange={(event) => setUnchecked(event.currentTarget.checked)} />
          Record it without checking that it fits the tool's annotation</label>
      )}
    </Dialog>
  );
}

/** The buttons of a need, as the server offers them. */
export function NeedActions({ need, onDone }: { need: Need; onDone: (done: Done) => void }) {
  const doing = useDoing(onDone);
  const me = useMe();
  const [settling, settle] = useState(false);
  const field = `answer-${need.task}-${need.id}`;
  const click = (action: Action) => {
    if (action.do === "happened") return settle(true);
    if (action.do === "did_not_happen") return doing.run(of.task(need.task, "/resolve"), { path: need.path, happened: false });
    if (action.do === "approve" || action.do === "refuse")
      return doing.run(of.task(need.task, "/approve"), { question: need.id, approved: action.do === "approve" });
    return doing.run(of.task(need.task, `/${action.do}`), {});
  };
  const offered = need.actions.filter((action) => action.do !== "answer" && action.do !== "fork" && action.do !== "rewind" && action.do !== "replay");
  return (
    <>
      {need.kind === "question" && <Answer need={need} doing={doing} field={field} />}
      {offered.length > 0 && (
        <div class="buttons">
          {offered.map((action, i) => (
            <button type="button" key={action.do} class={i === 0 && need.kind !== "question" ? "main" : ""}
              disabled={doing.busy || !action.enabled || me?.read_only} title={action.enabled ? action.command : action.why_not}
              onClick={() => click(action)}>
              {plain(action.label)}
            </button>
          ))}
        </div>
      )}
      {offered.filter((action) => !action.enabled && action.why_not).map((action) => <p class="quiet" key={action.do}>{plain(action.label)}: {plain(action.why_not)}</p>)}
      {doing.error && !settling && <Refused error={doing.error} />}
      {settling && <SettleDialog need={need} doing={doing} onClose={() => { doing.clear(); settle(false); }} />}
    </>
  );
}

const KINDS: Record<Need["kind"], string> = {
  question: "asks", approval: "asks for approval", doubt: "in doubt", stuck: "stopped", failed: "failed",
};

/** One need in the inbox: who, since when, what, with the exact arguments, and what can be done. */
export function NeedCard({ need, onDone, here }: { need: Need; onDone: (done: Done) => void; here: boolean }) {
  return (
    <li class={`need${here ? " here" : ""}`} data-need={need.kind}>
      <div class="top-line">
        <a class="mono" href={taskAddress(need.task)}><bdi>{plain(need.task)}</bdi></a>
        <span><bdi>{plain(need.type)}</bdi></span>
        <span class={need.kind === "failed" ? "bad" : "doubt"}>{KINDS[need.kind]}</span>
        {need.user && <span>for <bdi>{plain(need.user)}</bdi></span>}
        <time dateTime={need.since} title={moment(need.since)}>{ago(need.since)}</time>
        {need.until && <span>until {moment(need.until)}</span>}
      </div>
      <p class="ask"><bdi>{plain(askOf(need))}</bdi></p>
      {need.call && (
        <div class="said">
          <p class="dim"><b class="mono">{plain(need.call.name)}</b> with exactly these arguments:</p>
          <ValueView of={need.call.input} bare />
        </div>
      )}
      {need.why && need.kind !== "approval" && <p class="dim"><bdi>{plain(need.why)}</bdi></p>}
      {need.failure && <FailureView of={need.failure} told />}
      <NeedActions need={need} onDone={onDone} />
      {need.actions[0]?.command && (
        <details><summary class="quiet">on the command line</summary>
          {need.actions.map((action) => <p key={action.do}><Command line={action.command} /></p>)}
        </details>
      )}
    </li>
  );
}
