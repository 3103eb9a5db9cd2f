/** The inbox: what needs a person, oldest first. Somebody who writes no code can use it alone. */

import { useState } from "preact/hooks";
import { type Need, type TaskRow, useGet } from "../api";
import { ago, plain, plural } from "../format";
import { useKeys } from "../keys";
import { Loading, Refused, Status, useMe, useTitle } from "../parts/basics";
import { NeedCard } from "../parts/needs";
import { go, taskAddress } from "../route";

interface Inbox { needs: Need[]; more: boolean; count: number; running: TaskRow[]; unreadable: string[] }

export function InboxPlace({ fresh }: { fresh: number }) {
  const inbox = useGet<Inbox>("/api/inbox", fresh);
  const [at, setAt] = useState(0);
  const me = useMe();
  useTitle("Inbox");
  const needs = inbox.data?.needs ?? [];
  const move = (to: number) => {
    const next = Math.max(0, Math.min(needs.length - 1, to));
    setAt(next);
    document.querySelectorAll<HTMLElement>(".need")[next]?.querySelector<HTMLElement>("input, button, a")?.focus();
  };
  useKeys({
    j: () => move(at + 1), k: () => move(at - 1), arrowdown: () => move(at + 1), arrowup: () => move(at - 1),
    enter: () => needs[at] && go(taskAddress(needs[at]!.task)),
  });
  if (inbox.error && !inbox.data) return <div class="column"><Refused error={inbox.error} /></div>;
  if (!inbox.data) return <Loading what="Looking for what needs you…" />;
  const { count, more, running, unreadable } = inbox.data;
  return (
    <div class="column">
      <h1>{count ? plural(count, "thing needs you", "things need you") : "Nothing needs you"}{more ? ", the oldest are here" : ""}</h1>
      {me?.read_only && <p class="said" style={{ marginTop: "10px" }}>This page is read-only. Start it without --read-only to answer here.</p>}
      {count === 0 && <p class="dim" style={{ marginTop: "6px" }}>Questions, approvals, calls in doubt, stopped and failed tasks appear here by themselves.</p>}
      {needs.length > 0 && (
        <ol class="needs">
          {needs.map((need, i) => (
            <NeedCard key={`${need.task} ${need.kind} ${need.id}`} need={need} here={i === at} onDone={() => inbox.again()} />
          ))}
        </ol>
      )}
      {unreadable.map((line) => <p class="said bad" key={line}><bdi>{plain(line)}</bdi></p>)}
      <section class="running rows">
        <h2>{running.length ? "Running now" : "Nothing runs now"}</h2>
        {running.map((task) => (
          <a class="row" key={task.id} href={taskAddress(task.id)}>
            <span class="mono cut">{plain(task.id)}</span><span class="dim cut">{plain(task.type)}</span>
            <Status status={task.status} note={task.note} /><span class="dim cut grow">{plain(task.position ?? "")}</span>
            <span class="quiet num">{ago(task.updated_at)}</span>
          </a>
        ))}
      </section>
    </div>
  );
}
