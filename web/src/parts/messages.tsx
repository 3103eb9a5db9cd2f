/** Messages of a conversation: who said what, with each tool call folded into its result. */

import { useState } from "preact/hooks";
import type { Block, Message, Summary, Value } from "../api";
import { bytes, clock, count, moment, plain } from "../format";
import { taskAddress } from "../route";
import { ValueView, briefValue } from "./value";

type Result = Extract<Block, { kind: "tool_result" }>;

function ToolCall({ name, input, result }: { name: string; input: Value; result: Result | undefined }) {
  return (
    <details class="tool-call">
      <summary>
        <b class="mono">{plain(name)}</b> <span class="mono dim"><bdi>{plain(briefValue(input, 70))}</bdi></span>
        {result && <span class={result.is_error ? "bad" : "dim"}> → <bdi class="mono">{resultLine(result)}</bdi></span>}
        {!result && <span class="quiet"> → no result yet</span>}
      </summary>
      <h3 class="section">input</h3>
      <ValueView of={input} />
      {result && <><h3 class="section">{result.is_error ? "failed with" : "result"}</h3><Result of={result} /></>}
    </details>
  );
}

function resultLine({ text, output }: Result): string {
  return plain(text ? `${text.slice(0, 90)}${text.length > 90 ? "…" : ""}` : briefValue(output, 90));
}

function Result({ of }: { of: Result }) {
  return of.output ? <ValueView of={of.output} /> : <><pre>{plain(of.text)}</pre><Rest of={of} /></>;
}

/** What is not shown of a long text, and where to have it. */
function Rest({ of }: { of: { cut: boolean; size: number; href: string } }) {
  if (!of.cut) return null;
  return <p class="quiet">{bytes(of.size)} in all, the beginning is shown. {of.href && <a href={of.href} download>Download it</a>}</p>;
}

const IMAGE = /^image(\/(png|jpeg|gif|webp))?$/;

/** An image as one. The server shows it only if its bytes are those of an image. */
function Picture({ of }: { of: Extract<Block, { kind: "media" }> }) {
  const [failed, fail] = useState(false);
  const name = plain(of.name || of.media_type);
  return (
    <p class="quiet">
      {of.href && IMAGE.test(of.media_type) && !failed && <><img class="said-image" alt={name} src={of.href} loading="lazy" onError={() => fail(true)} /><br /></>}
      {name}, {bytes(of.size)} {of.href && <a href={of.href} download>download</a>}
    </p>
  );
}

function Part({ of, results, names }: { of: Block; results: Map<string, Result>; names: Map<string, string> }) {
  switch (of.kind) {
    case "text": return <><p class="text"><bdi>{plain(of.text)}</bdi></p><Rest of={of} /></>;
    case "thinking": return <details><summary>thought</summary><p class="text dim"><bdi>{plain(of.text)}</bdi></p><Rest of={of} /></details>;
    case "tool_call": return <ToolCall name={of.name} input={of.input} result={results.get(of.id)} />;
    case "tool_result": return <details class="tool-call"><summary><b class="mono">{plain(of.name || names.get(of.id) || "")}</b> {of.is_error ? "failed" : "result"} <bdi class="mono dim">{resultLine(of)}</bdi></summary><Result of={of} /></details>;
    case "media": return <Picture of={of} />;
    case "other": return <ValueView of={of.value} />;
  }
}

export function resultsOf(messages: Message[]): Map<string, Result> {
  const found = new Map<string, Result>();
  for (const message of messages)
    for (const block of message.blocks) if (block.kind === "tool_result") found.set(block.id, block);
  return found;
}

/** The names of the tools that were called: a provider's result may say only which call it answers. */
export function namesOf(messages: Message[]): Map<string, string> {
  return new Map(messages.flatMap((m) => m.blocks.flatMap((b): [string, string][] => (b.kind === "tool_call" ? [[b.id, b.name]] : []))));
}

/** Whether all that a message has is shown folded into the call that asked for it. */
function isFolded(message: Message, called: Map<string, string>): boolean {
  return message.blocks.length > 0 && message.blocks.every((block) => block.kind === "tool_result" && called.has(block.id));
}

interface TurnProps { message: Message; results: Map<string, Result>; names: Map<string, string>; tag?: string }

export function Turn({ message, results, names, tag = "" }: TurnProps) {
  return (
    <article class={`turn ${message.role}${message.summarized ? " left-out" : ""}`} aria-label={`${message.role}, message ${message.number}`}>
      <div class="who">
        <div>{plain(message.role)}</div>
        <div class="num quiet" title={moment(message.at)}>{message.number > 0 && `#${message.number}`}{message.at && ` ${clock(message.at)}`}</div>
        {tag && <div><span class="tag">{tag}</span></div>}
        {message.pinned && <div><span class="tag">pinned</span></div>}
        {message.task && <div class="cut"><a href={taskAddress(message.task)} title={plain(message.path)}>{plain(message.task)}</a></div>}
      </div>
      <div>{message.blocks.map((block, i) => <Part key={i} of={block} results={results} names={names} />)}</div>
    </article>
  );
}

export function Compaction({ of }: { of: Summary }) {
  return (
    <aside class="compaction" aria-label={`Compaction up to message ${of.upto}`}>
      <div class="who quiet">summary</div>
      <div>
        <p><b>Compacted up to message {count(of.upto)}.</b> <span class="dim">The messages above stay in the log; later model calls see this instead:</span></p>
        <p class="text" style={{ whiteSpace: "pre-wrap", marginTop: "4px" }}><bdi>{plain(of.text)}</bdi></p>
      </div>
    </aside>
  );
}

/** A stretch of a conversation with its compactions where they belong. */
export function Talk({ messages, summaries }: { messages: Message[]; summaries: Summary[] }) {
  const results = resultsOf(messages);
  const called = namesOf(messages);
  const shown = messages.filter((message) => !isFolded(message, called));
  return (
    <>
      {shown.map((message, i) => {
        const next = shown[i + 1]?.number ?? Infinity;
        const here = summaries.filter((summary) => summary.upto >= message.number && summary.upto < next);
        return [
          <Turn key={message.number} message={message} results={results} names={called} />,
          ...here.map((summary) => <Compaction key={`s${summary.upto}-${summary.at}`} of={summary} />),
        ];
      })}
    </>
  );
}
