/** A failure: what it was, where, and its traceback. */

import type { Failure } from "../api";
import { plain } from "../format";

export function FailureView({ of, open = false, told = false }: { of: Failure; open?: boolean; told?: boolean }) {
  return (
    <div>
      {!told && <p class="bad"><b><bdi>{plain(of.type)}</bdi></b>{of.message && <>: <bdi>{plain(of.message)}</bdi></>}</p>}
      {of.where && <p class="mono dim"><bdi>{plain(of.where)}</bdi></p>}
      {of.traceback && (
        <details open={open} style={{ marginTop: "4px" }}>
          <summary>traceback</summary>
          <pre class="trace" tabIndex={0}>{plain(of.traceback)}</pre>
        </details>
      )}
    </div>
  );
}
