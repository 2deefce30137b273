// Calls to the node that served this page, with the token that its user typed. Nothing here is ever stored:
// the token is in this variable, and gone with the page.

const BASE = new URL(".", window.location.href);
let token = "";
let rights = null; // a Map by prefix: in an object a lock named `constructor` would find what it inherits
let isAlone = false;
const PATIENCE_MS = 2000; // for which a read may wait for the leader
const HEARD_MS = 1000; // a node that has heard its leader so lately can ask it

/** A refusal, or a node that does not answer (status 0). The message is for people. */
export class Problem extends Error {
    constructor(status, told = {}) {
        super(told.detail || told.title || (status ? `the node answered ${status}` : "the node does not answer"));
        this.status = status;
        this.code = told.code || "";
        this.outcome = told.outcome || "";
    }
}

/** Send a request and return the response. Throws Problem. */
export async function ask(method, path, { query = {}, body, signal, timeoutMs } = {}) {
    const url = new URL(path, BASE);
    for (const [name, value] of Object.entries(query)) {
        if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
    }
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (timeoutMs) headers["Holdfast-Timeout-Ms"] = timeoutMs;
    let response;
    try {
        const text = body === undefined ? undefined : JSON.stringify(body);
        // Nodes have no cookies; what this sends along is the certificate of a browser that has one.
        response = await fetch(url, { method, headers, body: text, signal, cache: "no-store", credentials: "same-origin" });
    } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new Problem(0);
    }
    if (!response.ok) throw new Problem(response.status, await response.json().catch(() => ({})));
    return response;
}

/** Return the JSON that a call answers. Throws Problem. */
export async function call(method, path, options) {
    return (await ask(method, path, options)).json();
}

/**
 * Return what is so now; while the node hears no leader, what it has itself, with how old that is (`lag_ms`).
 *
 * Stale answers alone would not do: on an idle cluster their times stand still.
 */
export async function read(path, query = {}, signal = undefined) {
    if (!isAlone) {
        try {
            return await call("GET", path, { query, signal, timeoutMs: PATIENCE_MS });
        } catch (error) {
            if (error.status !== 503) throw error;
            isAlone = true;
        }
    }
    const told = await call("GET", path, { query: { ...query, consistency: "stale" }, signal });
    isAlone = told.lag_ms === null || told.lag_ms > HEARD_MS;
    return told;
}

/** Return what was asked, or `instead` if the node refuses that: what is missing then hides nothing else. */
export async function unlessRefused(asked, instead) {
    try {
        return await asked;
    } catch (error) {
        if (!(error instanceof Problem) || error.status === 0) throw error;
        return instead;
    }
}

/** Return all rows of a listing, `most` of them, and whether there are more. */
export async function readAll(path, key, query, signal, most = 10000) {
    const rows = [];
    let page = { next: "" };
    while (page.next !== null && rows.length < most) {
        page = await read(path, { limit: 1000, ...query, after: page.next }, signal);
        rows.push(...page[key]);
    }
    return { rows, more: page.next !== null, lag_ms: page.lag_ms, revision: page.revision };
}

/** Use a token from now on, "" for none, and return whose it is and where. Throws Problem; then it is forgotten. */
export async function identify(text) {
    const before = token;
    token = text;
    try {
        const caller = await call("GET", "ui/caller");
        rights = new Map(Object.entries(caller.rights));
        return caller;
    } catch (error) {
        token = before;
        throw error;
    }
}

/** Whether the caller has a right for a name, or, without one, for the whole. The longest prefix counts. */
export function may(right, name = "") {
    if (rights === null) return false;
    let prefix = name;
    while (prefix && !rights.has(prefix)) {
        prefix = prefix.includes("/") ? prefix.slice(0, prefix.lastIndexOf("/")) : "";
    }
    return (rights.get(prefix) || []).includes(right);
}

/** Whether the caller has a right for all names, without an exception. */
export function mayEverywhere(right) {
    return rights !== null && rights.has("") && [...rights.values()].every((all) => all.includes(right));
}

/** Return a name as a part of a path. */
export function part(name) {
    // The path of a call, such as /v1/locks/acquire, takes no name: one letter encoded makes it one.
    const first = name.charCodeAt(0);
    const isPlain = first < 128;
    return isPlain ? `%${first.toString(16).padStart(2, "0")}${encodeURIComponent(name.slice(1))}` : encodeURIComponent(name);
}
