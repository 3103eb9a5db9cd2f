/** Fork and rewind, with the effects chosen by you, never by default; and replay, which has none. */

import { useMemo, useState } from "preact/hooks";
import { type CallDetail, type Replayed, Refusal, type StateView, type TaskView, of, post, useGet } from "../api";
import { plain, plural } from "../format";
import { escaped, go, taskAddress } from "../route";
import { Command, Dialog, Refused, useMe } from "./basics";
import { type Json, isObject, parsed, written } from "./json";
import { useDoing } from "./needs";
import { ValueView } from "./value";

interface Effect { name: string; words: string }
interface Done { path: string; name: string; kind: string; status: string; key: string; undo: string; undo_words: string; child: string }
interface Preview { place: { seq: number; path: string; when: string; words: string }; effects: Done[]; allowed: boolean; why_not: string }

function EffectsChoice({ at, onPick, name }: { at: string; onPick: (name: string) => void; name: string }) {
  const effects = useGet<{ effects: Effect[] }>("/api/effects");
  return (
    <fieldset class="choices">
      <legend>What becomes of the tools that are called from here on? Choose.</legend>
      {(effects.data?.effects ?? []).map((effect) => (
        <label key={effect.name}>
          <input type="radio" name={name} value={effect.name} checked={at === effect.name} onChange={() => onPick(effect.name)} />
          <span><b>{effect.name}</b> <span class="dim">{plain(effect.words)}</span></span>
        </label>
      ))}
    </fieldset>
  );
}

/** Text as a value: JSON where it is, else the text itself. */
function asValue(text: string): Json {
  return parsed(text) ?? text;
}

/** The fields that were changed, as an object; undefined if the text is no JSON object. */
function changed(text: string, was: string): { [key: string]: Json } | undefined {
  const [now, before] = [parsed(text), parsed(was)];
  if (now === undefined || !isObject(now)) return undefined;
  const old = before !== undefined && isObject(before) ? before : {};
  return Object.fromEntries(Object.entries(now).filter(([name, value]) => !Object.hasOwn(old, name) || written(value) !== written(old[name]!)));
}

function shown(value: CallDetail["output"] | undefined): string {
  if (!value || !("json" in value)) return "";
  const found = parsed(value.json);
  return found === undefined ? value.json : written(found, "  ");
}

/** The state of a checkpoint that was not edited yet: it is shown once it is here. */
const UNTOUCHED = "\0";

export function ForkDialog({ task, call, seq, onClose }: { task: TaskView; call: string; seq: number | null; onClose: () => void }) {
  const me = useMe();
  const detail = useGet<CallDetail>(call ? of.call(task.id, call) : null);
  const [where, setWhere] = useState<"call" | "event">(call && seq === null ? "call" : call ? "call" : "event");
  const [effects, setEffects] = useState("");
  const [result, setResult] = useState<string | null>(null);
  const [input, setInput] = useState<string | null>(null);
  const [args, setArgs] = useState<string | null>(null);
  const [state, setState] = useState<string | null>(null);
  const [code, setCode] = useState<string | null>(null);
  const [stubs, setStubs] = useState("");
  const [because, setBecause] = useState("");
  const [newId, setNewId] = useState("");
  const [run, setRun] = useState(true);
  const [wrong, setWrong] = useState("");
  const doing = useDoing((done) => { if (done.fork) go(`/compare/${escaped(task.id)}/${escaped(done.fork.id)}`); });
  const recorded = useMemo(() => shown(detail.data?.output ?? null), [detail.data]);
  const given = useMemo(() => shown(task.input), [task.input]);
  const called = useMemo(() => shown(detail.data?.input ?? null), [detail.data]);
  const callee = detail.data && ["step", "tool", "child"].includes(detail.data.kind) ? detail.data.name : "";
  const ready = !call || detail.data !== null || detail.error !== null; // else a button moves as it is clicked
  const place = where === "event" ? seq ?? task.seq : result !== null ? detail.data?.after_seq : detail.data?.before_seq;
  const kept = useGet<StateView>(state !== null && place ? of.task(task.id, `/state?at=${place}&checkpoint=1`) : null);
  const checkpoint = useMemo(() => shown(kept.data?.checkpoint), [kept.data]);
  const send = async () => {
    if (!effects) return setWrong("Choose what becomes of the tools first.");
    const body: { [key: string]: Json } = { effects };
    if (where === "call") { body.at = call; body.when = result !== null ? "after" : "before"; } else body.seq = seq ?? task.seq;
    if (result !== null) body.results = { [call]: asValue(result) };
    if (input !== null) {
      const value = changed(input, given);
      if (!value) return setWrong("The task's input must be a JSON object: a name and a value for each argument.");
      body.input = value;
    }
    if (args !== null) {
      const value = changed(args, called);
      if (!value) return setWrong("The arguments must be a JSON object: a name and a value for each.");
      body.arguments = { [callee]: value };
    }
    if (state !== null && state !== UNTOUCHED) {
      const value = parsed(state);
      if (value === undefined) return setWrong("The state must be JSON: a text needs quotes.");
      body.state = value;
    }
    if (effects === "stub" && stubs.trim()) {
      const value = asValue(stubs);
      if (!isObject(value)) return setWrong("What tools return must be a JSON object: the name of each tool and its result.");
      body.stubs = value;
    }
    if (code) body.task = code;
    if (because) body.because = because;
    if (newId) body.new_id = newId;
    if (run && me?.can_drive) body.run = true;
    setWrong("");
    if (await doing.run(of.task(task.id, "/fork"), body)) onClose();
  };
  return (
    <Dialog title={`Fork ${task.id}`} onClose={onClose} onSubmit={send}
      footer={<><button type="button" onClick={onClose}>Leave it</button><button class="main" disabled={doing.busy || !effects}>Fork</button></>}>
      <p class="dim">A fork is a new task that shares this one's past up to a place. This task is not changed.</p>
      <fieldset class="choices"><legend>Where</legend>
        {call && <label><input type="radio" name="where" checked={where === "call"} onChange={() => setWhere("call")} /><span>{result !== null ? "after" : "before"} call <b class="mono">{plain(call)} {plain(detail.data?.name ?? "")}</b></span></label>}
        <label><input type="radio" name="where" checked={where === "event"} onChange={() => { setWhere("event"); setResult(null); }} /><span>after event <b>{seq ?? task.seq}</b></span></label>
      </fieldset>
      {where === "call" && detail.data && detail.data.ended_seq > 0 && (result === null
        ? <p><button type="button" onClick={() => setResult(recorded)}>Give it another result…</button></p>
        : <label class="field">What {plain(detail.data.name)} returns in the fork<textarea rows={6} id="fork-result" value={result} onInput={(event) => setResult(event.currentTarget.value)} /></label>)}
      {callee && (args === null
        ? <p><button type="button" class="link" onClick={() => setArgs(called || "{}")}>Call {plain(callee)} with other arguments…</button></p>
        : <label class="field">The arguments of {plain(callee)} in the fork, each time that it is called: those that you change<textarea rows={4} id="fork-arguments" value={args} onInput={(event) => setArgs(event.currentTarget.value)} /></label>)}
      {ready && task.checkpoint && (state === null
        ? <p><button type="button" class="link" onClick={() => setState(UNTOUCHED)}>Go on from another state…</button></p>
        : <label class="field">The state of the last checkpoint before that place<textarea rows={4} id="fork-state" value={state === UNTOUCHED ? checkpoint : state} onInput={(event) => setState(event.currentTarget.value)} /></label>)}
      {ready && (input === null
        ? <p><button type="button" class="link" onClick={() => setInput(given || "{}")}>Begin with another input…</button></p>
        : <label class="field">The task's input in the fork (it runs from the beginning)<textarea rows={4} value={input} onInput={(event) => setInput(event.currentTarget.value)} /></label>)}
      {ready && (code === null
        ? <p><button type="button" class="link" onClick={() => setCode("")}>Run another task function…</button></p>
        : <label class="field">The task function that goes on from there, by its name<input type="text" value={code} placeholder={task.type} onInput={(event) => setCode(event.currentTarget.value)} /></label>)}
      <EffectsChoice at={effects} onPick={setEffects} name="effects" />
      {effects === "stub" && <label class="field">What tools return, by their names, as JSON; empty if the original has all answers<textarea rows={3} value={stubs} placeholder={'{"send_mail": {"id": 4}}'} onInput={(event) => setStubs(event.currentTarget.value)} /></label>}
      <label class="field">Why<input type="text" value={because} onInput={(event) => setBecause(event.currentTarget.value)} placeholder="what if the weather had been fine" /></label>
      <label class="field">Its id (leave it empty to have one made)<input type="text" value={newId} onInput={(event) => setNewId(event.currentTarget.value)} /></label>
      {me?.can_drive && <label class="check"><input type="checkbox" checked={run} onChange={(event) => setRun(event.currentTarget.checked)} /> run it here at once</label>}
      {wrong && <p class="said bad" role="alert">{wrong}</p>}
      {doing.error && <Refused error={doing.error} />}
    </Dialog>
  );
}

export function RewindDialog({ task, call, seq, onClose, onDone }: { task: TaskView; call: string; seq: number | null; onClose: () => void; onDone: () => void }) {
  const [effects, setEffects] = useState("");
  const [because, setBecause] = useState("");
  const [undo, setUndo] = useState(false);
  const [where, setWhere] = useState<"call" | "event">(call ? "call" : "event");
  const event = seq ?? Math.max(1, task.head - 1);
  const place = where === "event" ? `seq=${event}` : `to=${encodeURIComponent(call)}&when=before`;
  const preview = useGet<Preview>(of.task(task.id, `/rewind?${place}`));
  const doing = useDoing(() => { onDone(); go(taskAddress(task.id)); });
  const send = async () => {
    if (!effects) return;
    const body = { ...(where === "event" ? { seq: event } : { to: call, when: "before" }), effects, undo, ...(because ? { because } : {}) };
    if (await doing.run(of.task(task.id, "/rewind"), body)) onClose();
  };
  const data = preview.data;
  return (
    <Dialog title={`Rewind ${task.id}`} onClose={onClose} onSubmit={send}
      footer={<><button type="button" onClick={onClose}>Leave it</button><button class="main" disabled={doing.busy || !effects || !data?.allowed}>Rewind</button></>}>
      <fieldset class="choices"><legend>Where to</legend>
        {call && <label><input type="radio" name="rewind-where" checked={where === "call"} onChange={() => setWhere("call")} /><span>before call <b class="mono">{plain(call)}</b></span></label>}
        <label><input type="radio" name="rewind-where" checked={where === "event"} onChange={() => setWhere("event")} /><span>after event <b>{event}</b></span></label>
      </fieldset>
      {preview.error && <Refused error={preview.error} />}
      {data && (
        <>
          <p>Rewind <b>{plain(data.place.words || `to event ${data.place.seq}`)}</b>. What came since stays in the log, but is no longer this task's past.</p>
          {!data.allowed && <p class="said bad" role="alert">{plain(data.why_not)}</p>}
          <section><h3>{data.effects.length ? "It did these things since:" : "It has done nothing to the outside world since."}</h3>
            <ul>{data.effects.map((one) => <li key={one.path} style={{ padding: "3px 0" }}><b class="mono">{plain(one.path)} {plain(one.name)}</b> {one.status.replaceAll("_", " ")} <span class={one.undo === "possible" ? "good" : "dim"}>undo: {plain(one.undo_words)}</span></li>)}</ul>
          </section>
          {data.effects.some((one) => one.undo === "possible") && <label class="check"><input type="checkbox" checked={undo} onChange={(event) => setUndo(event.currentTarget.checked)} /> undo what can be undone first</label>}
          <EffectsChoice at={effects} onPick={setEffects} name="rewind-effects" />
          <label class="field">Why<input type="text" value={because} onInput={(event) => setBecause(event.currentTarget.value)} /></label>
        </>
      )}
      {doing.error && <Refused error={doing.error} />}
    </Dialog>
  );
}

/** Runs the code that the server has over the log. It calls nothing and writes nothing. */
export function ReplayDialog({ task, call, onClose }: { task: TaskView; call: string; onClose: () => void }) {
  const [to, setTo] = useState(false);
  const [busy, setBusy] = useState(false);
  const [done, setDone] = useState<Replayed | null>(null);
  const [error, setError] = useState<Refusal | null>(null);
  const me = useMe();
  const send = async () => {
    setBusy(true);
    setError(null);
    setDone(null);
    try { setDone(await post<Replayed>(of.task(task.id, "/replay"), to ? { to: call } : {})); } catch (problem) { setError(problem instanceof Refusal ? problem : new Refusal("internal", String(problem), null, 0)); }
    setBusy(false);
  };
  return (
    <Dialog title={`Replay ${task.id}`} onClose={onClose} onSubmit={send}
      footer={<><button type="button" onClick={onClose}>Close</button><button class="main" disabled={busy || me?.read_only}>Replay</button></>}>
      <p class="dim">Runs the code that this server has over the log, and says whether it does the same. Recorded calls answer from the log: no step or tool is called, and nothing is written.</p>
      {call && <fieldset class="choices"><legend>How far</legend>
        <label><input type="radio" name="replay-to" checked={!to} onChange={() => setTo(false)} /><span>to the end of the log</span></label>
        <label><input type="radio" name="replay-to" checked={to} onChange={() => setTo(true)} /><span>to call <b class="mono">{plain(call)}</b></span></label>
      </fieldset>}
      {done && (
        <section aria-label="What the replay found" role="status">
          <p class={`said ${done.same ? "" : "doubt"}`}><b>{plain(done.words)}</b>{done.problem && <>: <bdi>{plain(done.problem)}</bdi></>}</p>
          <p class="dim">The log answered {plural(done.answered, "call")}. The code: {plain(done.outcome)}. The log: {plain(done.recorded)}.{done.stopped_at && <> It stopped at <bdi>{plain(done.stopped_at)}</bdi>.</>}</p>
          {done.result && done.outcome === "completed" && <><h3>result</h3><ValueView of={done.result} open={2} /></>}
          <p><Command line={done.command} /></p>
        </section>
      )}
      {error && <Refused error={error} />}
    </Dialog>
  );
}
