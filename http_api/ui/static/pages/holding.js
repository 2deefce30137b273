// Tables of who holds and who waits, the same on every page, with the actions that the caller has a right to.

import { may } from "../api.js";
import { address, button, count, h, labels, number, state, time } from "../dom.js";
import { table } from "../table.js";

/** Return how long a row has been known, in milliseconds: lengths of time in it have grown by that. */
export function since(row) {
    return performance.now() - row.at;
}

/** Return rows with the moment at which they were true. */
export function stamped(rows, kind) {
    const at = performance.now();
    return rows.map((row) => ({ kind, ...row, at }));
}

/** Return a link to the page of a lock, a semaphore or an election. */
export function thingLink(kind, name) {
    return h("a", { href: address(kind, name) }, name);
}

/** Return a link to a session, or nothing. */
export function sessionLink(row) {
    return row.session_name ? h("a", { href: address("session", row.session_name) }, row.session_name) : "";
}

const ENDS = {
    title: "Ends in", class: "num",
    by: (row) => (row.no_deadline ? Infinity : (row.expires_in_ms || 0) - since(row)),
    cell: (row) => (row.no_deadline ? "no deadline" : row.expires_in_ms ? time(row.expires_in_ms - since(row)) : "with its session"),
};
const OWNER = { title: "Owner", by: (row) => row.owner, cell: (row) => row.owner };
const NAME = { title: "Name", by: (row) => row.name, cell: (row) => thingLink(row.kind, row.name) };
const SESSION = { title: "Session", cell: sessionLink };
const PRINCIPAL = { title: "Principal", by: (row) => row.principal || "", cell: (row) => row.principal || "" };

function isAnyOf(rows, name) {
    return rows.some((row) => row[name]);
}

function revoked(row) {
    const { reason, ends_in_ms: ends } = row.revocation;
    return state(`asked to give up, ${time(ends - since(row))} left: ${reason}`, "warn");
}

function holderActions(row) {
    if (!may("force", row.name)) return "";
    const ask = row.revocation
        ? button("Let it keep", "withdraw", row, { "aria-label": `Let ${row.owner} keep ${row.name}` })
        : button("Ask to give up", "revoke", row, { "aria-label": `Ask ${row.owner} to give up ${row.name}` });
    return [ask, " ", button("End", "force", row, { class: "danger", "aria-label": `End the hold of ${row.owner} on ${row.name}` })];
}

/** Return the table of holders; `hasNames` if they are of several names. */
export function holders(id, rows, hasNames) {
    const has = (name) => isAnyOf(rows, name);
    const columns = [
        hasNames ? NAME : OWNER, hasNames && OWNER,
        has("mode") && { title: "Mode", by: (row) => row.mode, cell: (row) => [row.mode, row.scope === "subtree" ? " subtree" : ""] },
        has("permits") && { title: "Permits", class: "num", by: (row) => row.permits, cell: (row) => number(row.permits) },
        { title: "Held for", class: "num", by: (row) => (row.since_ms || 0) + since(row), cell: (row) => time((row.since_ms || 0) + since(row)) },
        ENDS,
        { title: "Token", class: "num", by: (row) => row.token, cell: (row) => number(row.token) },
        SESSION, has("principal") && PRINCIPAL,
        {
            title: "About it",
            cell: (row) => [row.revocation ? revoked(row) : "", row.value ? h("span", { class: "mark" }, `value: ${row.value}`) : "", labels(row.labels), row.note || ""],
        },
        rows.some((row) => may("force", row.name)) && { title: "", class: "do", cell: holderActions },
    ].filter(Boolean);
    const key = (row) => `${row.kind} ${row.name} ${row.token}`;
    return table({ id, label: "Holders", columns, rows, key, empty: "Nobody holds it." });
}

function waiterActions(row) {
    return may("force", row.name)
        ? button("End the wait", "wait", row, { class: "danger", "aria-label": `End the wait of ${row.owner} for ${row.name}` }) : "";
}

function estimate(row) {
    if (row.estimate_ms === null || row.estimate_ms === undefined) return h("span", { class: "dim" }, "none yet");
    const left = row.estimate_ms - since(row);
    return left > 0 ? `in ${time(left)}` : "any moment";
}

/** Return the table of those who wait, in the order of the queue. */
export function waiters(id, rows, hasNames) {
    const has = (name) => isAnyOf(rows, name);
    const columns = [
        { title: "Place", class: "num place", cell: (row) => number(row.position) },
        hasNames && NAME, OWNER,
        has("mode") && { title: "Wants", cell: (row) => [row.mode, row.scope === "subtree" ? " subtree" : "", row.conversion ? ", holds it already" : ""] },
        has("permits") && { title: "Permits", class: "num", cell: (row) => number(row.permits) },
        { title: "Waited", class: "num", by: (row) => row.waited_ms + since(row), cell: (row) => time(row.waited_ms + since(row)) },
        rows.some((row) => row.ends_in_ms !== undefined) && {
            title: "Estimate", class: "num",
            cell: (row) => estimate(row),
        },
        rows.some((row) => row.ends_in_ms !== undefined) && {
            title: "Gives up in", class: "num", cell: (row) => (row.ends_in_ms === undefined ? "" : time(row.ends_in_ms - since(row))),
        },
        { title: "Ticket", class: "num", cell: (row) => row.ticket },
        SESSION, has("principal") && PRINCIPAL,
        rows.some((row) => may("force", row.name)) && { title: "", class: "do", cell: waiterActions },
    ].filter(Boolean);
    return table({ id, label: "Queue", columns, rows, key: (row) => `${row.ticket} ${row.name}`, empty: "Nobody waits for it." });
}

/** Return the line that says how much is shown, and what there is besides that nobody looked at. */
export function amount(data, word, rows = data.rows) {
    const shown = count(rows.length, word);
    if (!data.more) return h("p", { class: "dim" }, shown);
    const among = rows === data.rows ? `The first ${shown}` : `${shown} among the first ${number(data.rows.length)}`;
    return h("p", { class: "dim" }, `${among}. There are more, which were neither searched nor sorted.`);
}

/** Return a field to type what to look for. */
export function searchField(label, value) {
    return h("label", { class: "search" }, h("span", { class: "unseen" }, label),
        h("input", { type: "search", "data-input": "search", placeholder: label, value, autocomplete: "off", spellcheck: "false" }));
}
