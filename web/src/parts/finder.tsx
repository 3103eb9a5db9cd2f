/** Find a task or a session by a part of its name; or any word in the logs. */

import { useEffect, useRef, useState } from "preact/hooks";
import { type EventRow, type TaskRow, useGet } from "../api";
import { count, plain } from "../format";
import { escaped, go, taskAddress } from "../route";
import { Dialog, Status, useSettled } from "./basics";

interface Found {
  tasks?: TaskRow[]; sessions?: { id: string; user: string; status: string }[]; exact?: string | null; partial?: boolean;
  hits?: { task: string; event: EventRow }[]; next?: string | null; searched?: number;
}

export function Finder({ onClose }: { onClose: () => void }) {
  const [text, set] = useState("");
  const [deep, setDeep] = useState(false);
  const words = useSettled(text.trim(), 200);
  const [cursor, setCursor] = useState("");
  useEffect(() => setCursor(""), [words, deep]);
  const found = useGet<Found>(words ? `/api/search?q=${encodeURIComponent(words)}${deep ? `&deep=1${cursor && `&cursor=${encodeURIComponent(cursor)}`}` : ""}` : null);
  const nothing = found.data && (found.data.tasks?.length ?? 0) + (found.data.sessions?.length ?? 0) + (found.data.hits?.length ?? 0) === 0;
  const box = useRef<HTMLInputElement>(null);
  useEffect(() => box.current?.focus(), []);
  const open = (address: string) => { onClose(); go(address); };
  const first = found.data?.exact ?? found.data?.tasks?.[0]?.id;
  return (
    <Dialog title="Find" onClose={onClose} onSubmit={() => first && open(taskAddress(first))}>
      <input ref={box} type="search" aria-label="Find" placeholder="a task, a session, a user" value={text} onInput={(event) => set(event.currentTarget.value)} />
      <label class="check dim"><input type="checkbox" checked={deep} onChange={(event) => setDeep(event.currentTarget.checked)} /> look into the logs too</label>
      <div class="rows">
        {found.data?.tasks?.map((task) => (
          <a class="row" key={task.id} href={taskAddress(task.id)} onClick={onClose}>
            <span class="mono cut">{plain(task.id)}</span><span class="dim cut grow">{plain(task.type)}</span><Status status={task.status} />
          </a>
        ))}
        {found.data?.sessions?.map((session) => (
          <a class="row" key={session.id} href={`/sessions/${escaped(session.id)}`} onClick={onClose}>
            <span class="mono cut grow">{plain(session.id)}</span><span class="dim">session of {plain(session.user)}</span>
          </a>
        ))}
        {found.data?.hits?.map((hit) => (
          <a class="row" key={`${hit.task} ${hit.event.seq}`} href={taskAddress(hit.task, hit.event.seq)} onClick={onClose}>
            <span class="mono">{plain(hit.task)}@{hit.event.seq}</span><span class="dim cut grow">{plain(hit.event.sentence)}</span>
          </a>
        ))}
        {words && nothing && !found.loading && <p class="quiet" role="status">{deep ? `Nothing says that${found.data!.next ? ` in the ${count(found.data!.searched ?? 0)} tasks that were looked at` : ""}.` : "Nothing is called that."}</p>}
        {deep && found.data?.next && <p><button type="button" class="link" onClick={() => setCursor(found.data!.next!)}>look into older tasks</button></p>}
      </div>
    </Dialog>
  );
}
