/** The page: a bar at the top, and the place that the address names. */

import { render } from "preact";
import { useCallback, useEffect, useState } from "preact/hooks";
import { type Me, useGet, useLive } from "./api";
import { plain } from "./format";
import { listen, useKeys } from "./keys";
import { Dialog, MeContext, Refused, Toasts } from "./parts/basics";
import { Finder } from "./parts/finder";
import { ComparePlace } from "./places/compare";
import { FleetPlace } from "./places/fleet";
import { InboxPlace } from "./places/inbox";
import { MissionPlace, MissionsPlace } from "./places/missions";
import { SessionPlace, SessionsPlace } from "./places/sessions";
import { TaskPlace } from "./places/task";
import { TasksPlace } from "./places/tasks";
import { type Route, followLinks, go, useRoute } from "./route";
import "./style.css";

const KEYS: [string, [string, string][]][] = [
  ["Everywhere", [["g i", "inbox"], ["g t", "tasks"], ["g s", "sessions"], ["g m", "missions"], ["g f", "fleet"], ["/", "search"], ["?", "this help"], ["esc", "close, let go"]]],
  ["Lists", [["j k", "next, previous"], ["enter", "open"], ["x", "select"], ["c", "compare those selected"]]],
  ["One task", [["j k", "next, previous call"], ["← →", "an event back, on"], ["[ ]", "a step back, on"], ["b", "before or after the call"], ["space", "play the events"], ["enter", "open the call; in the log, the event"], ["1 … 7", "timeline, tree, log …"]]],
  ["Another way", [["f", "fork here"], ["r", "rewind to here"], ["p", "replay the code over the log"], ["c", "compare with its original or a fork"], ["+ −", "zoom the timeline"], ["0", "the whole timeline"], ["a", "readings of the clock too"], ["y", "copy the address"]]],
];

function Help({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keyboard" onClose={onClose}>
      <div class="help">
        {KEYS.map(([name, keys]) => (
          <section key={name}>
            <h2 style={{ marginBottom: "8px" }}>{name}</h2>
            <dl>{keys.map(([key, words]) => (
              <div key={key}><dt>{key.split(" ").map((one) => <><kbd>{one}</kbd> </>)}</dt><dd>{words}</dd></div>
            ))}</dl>
          </section>
        ))}
      </div>
      <h2>What the bars say</h2>
      <ul class="dim">
        <li><b>solid</b>: really ran · <b>outline</b>: answered from the log, not run again</li>
        <li><b>hatched</b>: waited (for a retry, a timer, a person); long waits are folded</li>
        <li><b>?</b>: in doubt · <b>✕</b>: a failed attempt · <b>a vertical line</b>: a process died, or another took over</li>
      </ul>
    </Dialog>
  );
}

function nextTheme(): void {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("holdfast-theme", root.dataset.theme);
}

const PLACES: [string, string, string[]][] = [
  ["/", "Inbox", ["inbox"]], ["/tasks", "Tasks", ["tasks", "task", "compare"]], ["/sessions", "Sessions", ["sessions", "session"]],
  ["/missions", "Missions", ["missions", "mission"]], ["/fleet", "Fleet", ["fleet"]],
];

function Top({ me, route, inbox, onHelp, onFind }: { me: Me | null; route: Route; inbox: number; onHelp: () => void; onFind: () => void }) {
  return (
    <header class="top">
      <a class="brand" href="/" aria-label="Holdfast">
        <svg viewBox="0 0 16 16" aria-hidden="true"><path d="M8 2.5v5m0 0c0 3-4.500 2-4.500 6M8 7.500c0 3 4.500 2 4.500 6M8 7.500v7" fill="none" stroke="currentColor" stroke-width="1.700" stroke-linecap="round" /><circle cx="8" cy="2.500" r="1.800" fill="currentColor" /></svg>
        <span>holdfast</span>
      </a>
      <nav aria-label="Places">
        {PLACES.map(([href, name, places]) => (
          <a key={href} href={href} aria-current={places.includes(route.place.name) ? "page" : undefined}>
            {name}{href === "/" && inbox > 0 && <span class="badge" aria-label={`${inbox} need you`}>{inbox}</span>}
          </a>
        ))}
      </nav>
      <span class="grow" />
      {me && <span class="store cut hide-narrow" title={`${me.store}, as ${me.user}`}>{plain(me.store)}</span>}
      {me?.read_only && <span class="tag">read-only</span>}
      <button type="button" class="plain hide-narrow" onClick={onFind}>Find <kbd>/</kbd></button>
      <button type="button" class="plain hide-narrow" onClick={nextTheme} aria-label="Light or dark">◐</button>
      <button type="button" class="plain hide-narrow" onClick={onHelp} aria-label="Help with the keyboard"><kbd>?</kbd></button>
    </header>
  );
}

function Where({ route, fresh }: { route: Route; fresh: number }) {
  const place = route.place;
  switch (place.name) {
    case "inbox": return <InboxPlace fresh={fresh} />;
    case "tasks": return <TasksPlace route={route} />;
    case "task": return <TaskPlace key={place.id} id={place.id} seq={place.seq} query={route.query} />;
    case "compare": return <ComparePlace left={place.left} right={place.right} query={route.query} />;
    case "sessions": return <SessionsPlace />;
    case "session": return <SessionPlace key={place.id} id={place.id} />;
    case "missions": return <MissionsPlace />;
    case "mission": return <MissionPlace key={place.id} id={place.id} />;
    case "fleet": return <FleetPlace />;
    case "nowhere": return <p class="empty">There is nothing at {plain(place.path)}. <a href="/">To the inbox</a></p>;
  }
}

function Page() {
  const route = useRoute();
  const [fresh, setFresh] = useState(0);
  const me = useGet<Me>("/api/me?quick=1");
  const [count, setCount] = useState<number | null>(null);
  const [help, setHelp] = useState(false);
  const [find, setFind] = useState(false);
  const open = useCallback((address: string) => () => go(address), []);
  useLive(me.data ? "/api/live?only=inbox" : null, (_, data) => {
    setCount((data as { count: number }).count);
    setFresh((n) => n + 1);
  }, ["inbox"]);
  useKeys({
    "g i": open("/"), "g t": open("/tasks"), "g f": open("/fleet"), "g s": open("/sessions"), "g m": open("/missions"),
    "?": () => setHelp(true), "/": () => setFind(true),
  });
  const name = route.place.name;
  useEffect(() => { document.getElementById("place")?.focus({ preventScroll: true }); }, [name]);
  return (
    <MeContext.Provider value={me.data}>
      <div class="frame">
        <Top me={me.data} route={route} inbox={count ?? 0} onHelp={() => setHelp(true)} onFind={() => setFind(true)} />
        <main id="place" tabIndex={-1}>
          {me.error && !me.data ? <div class="column"><Refused error={me.error} /></div> : <Where route={route} fresh={fresh} />}
        </main>
      </div>
      {help && <Help onClose={() => setHelp(false)} />}
      {find && <Finder onClose={() => setFind(false)} />}
      <Toasts />
    </MeContext.Provider>
  );
}

const theme = localStorage.getItem("holdfast-theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
listen();
followLinks();
render(<Page />, document.getElementById("page")!);
