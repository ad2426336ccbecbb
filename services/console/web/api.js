// The service's REST API. The token lives in this module's memory alone: a reload asks for it again.

let token = "";

export class ApiError extends Error {
  constructor(status, problem) {
    super(problem?.detail ?? `the service answered ${status}`);
    this.status = status;
  }
}

export const signedIn = () => token !== "";
export const signOut = () => (token = "");

async function call(method, path, options = {}) {
  let reply;
  try {
    reply = await fetch(path, {method, headers: {Authorization: `Bearer ${token}`, ...options.headers},
                               body: options.body, signal: options.signal});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, {detail: "The service can't be reached."});
  }
  if (reply.ok) return reply;
  if (reply.status === 401 && !options.trying) dispatchEvent(new Event("token-refused"));
  throw new ApiError(reply.status, await reply.json().catch(() => null));
}

/** Whether the service takes it; throws when it can't be asked. */
export async function signIn(text) {
  token = text.trim();
  try {
    await call("GET", "/v1/namespaces/-/trainingJobs?pageSize=1&readMask=name", {trying: true});
    return true;
  } catch (error) {
    token = "";
    if (error.status === 401) return false;
    throw error;
  }
}

const jobPath = (ns, name) => `/v1/namespaces/${encodeURIComponent(ns)}/trainingJobs/${encodeURIComponent(name)}`;
const query = (fields) => {
  const entries = Object.entries(fields).filter(([, value]) => value !== undefined && value !== "");
  return entries.length ? `?${new URLSearchParams(entries)}` : "";
};
const get = async (path, signal) => (await call("GET", path, {signal})).json();

export const listJobs = (fields, signal) => get(`/v1/namespaces/-/trainingJobs${query(fields)}`, signal);
export const getJob = (ns, name, signal) => get(jobPath(ns, name), signal);
export const plans = (ns, name, signal) => get(`${jobPath(ns, name)}/plans`, signal);
export const metrics = (ns, name, fields, signal) => get(`${jobPath(ns, name)}/metrics${query(fields)}`, signal);
export const logs = (ns, name, fields, signal) => get(`${jobPath(ns, name)}/logs${query(fields)}`, signal);
export const checkpoints = (ns, name, signal) => get(`${jobPath(ns, name)}/checkpoints`, signal);
export const nodes = (signal) => get("/v1/nodes", signal);
export const links = (signal) => get("/v1/links", signal);
export const remove = (ns, name) => call("DELETE", jobPath(ns, name));
export const act = async (ns, name, verb, body) => (await call("POST", `${jobPath(ns, name)}:${verb}`, body && {
  body: JSON.stringify(body), headers: {"Content-Type": "application/json"}})).json();

export async function events(ns, name, signal) {
  const all = [];
  let pageToken = "";
  do {
    const page = await get(`${jobPath(ns, name)}/events${query({pageSize: 1000, pageToken})}`, signal);
    all.push(...(page.events ?? []));
    pageToken = page.nextPageToken ?? "";
  } while (pageToken);
  return all;
}

/** A page's wait, cut short when `signal` aborts. */
export const pause = (milliseconds, signal) => new Promise((resolve) => {
  const timer = setTimeout(resolve, milliseconds);
  signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()), {once: true});
});

/**
 * Every change of a job, beginning with what it is now, until it is deleted or `signal` aborts. Reconnects where the
 * stream broke. `on.update(job)`, `on.deleted()`, `on.link("live" | "reconnecting")`, `on.error(error)` (final).
 */
export async function watch(ns, name, on, signal) {
  let last = "";
  for (let wait = 500; !signal.aborted; wait = Math.min(2 * wait, 10000)) {
    try {
      const reply = await call("GET", `${jobPath(ns, name)}:watch`, {signal, headers: last ? {"Last-Event-ID": last} : {}});
      on.link("live");
      wait = 250;
      for await (const event of serverSentEvents(reply.body)) {
        last = event.id;
        const update = JSON.parse(event.data);
        if (event.event === "deleted") return on.deleted();
        on.update(update.trainingJob);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 404) return on.deleted();
      if (error.status === 410) last = "";  // the revision is too old: from the present state
      else if (error.status >= 400 && error.status < 500 && error.status !== 429) return on.error(error);
    }
    on.link("reconnecting");
    await pause(wait, signal);
  }
}

async function* serverSentEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (true) {
    const {value, done} = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const event = {};
      for (const line of text.slice(0, end).split("\n")) {
        const colon = line.indexOf(": ");
        if (colon > 0) event[line.slice(0, colon)] = line.slice(colon + 2);
      }
      if (event.data) yield event;
    }
  }
}
