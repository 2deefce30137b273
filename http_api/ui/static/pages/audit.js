// The audit: what happened, to whom, by whom and why.

import { read } from "../api.js";
import { address, h, number, state, time } from "../dom.js";
import { table } from "../table.js";
import { amount, searchField, thingLink } from "./holding.js";

const ROWS = 1000;
const BY_OPERATORS = "by-operators";
const TONES = {
    granted: "good", elected: "good", released: "", resigned: "", expired: "warn", revoked: "warn", frozen: "warn",
    forced: "bad", "wait-forced": "bad", "session-forced": "bad", "session-expired": "warn",
};
let typed = "";

function columns(nowMs, events, hasNames) {
    const has = (name) => events.some((event) => event[name]);
    return [
        { title: "Ago", class: "num", cell: (event) => time(nowMs - event.at_ms) },
        { title: "Event", by: (event) => event.event, cell: (event) => state(event.event, TONES[event.event]) },
        hasNames && { title: "Name", by: (event) => event.name, cell: (event) => (event.kind ? thingLink(event.kind, event.name) : event.name) },
        { title: "Owner", by: (event) => event.owner, cell: (event) => event.owner },
        has("principal") && { title: "Principal", by: (event) => event.principal || "", cell: (event) => event.principal || "" },
        { title: "Token", class: "num", by: (event) => event.token || 0, cell: (event) => (event.token ? number(event.token) : "") },
        { title: "Lasted", class: "num", by: (event) => event.lasted_ms || 0, cell: (event) => (event.lasted_ms ? time(event.lasted_ms) : "") },
        has("by") && { title: "By", by: (event) => event.by || "", cell: (event) => event.by || "" },
        { title: "Reason", cell: (event) => event.reason || "" },
    ].filter(Boolean);
}

/** Return the table of events, the newest first. */
export function eventList(events, nowMs, hasNames, empty = "Nothing has happened to it that the audit still knows.") {
    const key = (event) => event.number ?? `${event.revision} ${event.event} ${event.token}`;
    return table({ id: "events", label: "What happened", columns: columns(nowMs, events, hasNames), rows: events, key, empty });
}

export const audit = {
    path: "audit", name: "Audit", title: () => "Audit",
    load: async ([whose], { signal }) => {
        const told = await read("v1/audit", { limit: ROWS, by_operators: whose === BY_OPERATORS }, signal);
        return { ...told, rows: told.events, at: performance.now(), more: told.events.length === ROWS };
    },
    draw: (data, [whose]) => {
        const isAll = whose !== BY_OPERATORS;
        const other = isAll
            ? h("a", { href: address("audit", BY_OPERATORS) }, "Only what operators did")
            : h("a", { href: address("audit") }, "All records");
        const word = typed.toLowerCase();
        const matches = (event) => [event.name, event.owner, event.event, event.reason, event.principal, event.by].some((text) => text && text.toLowerCase().includes(word));
        const rows = word ? data.rows.filter(matches) : data.rows;
        return [h("div", { class: "tools" }, searchField("Search names, owners, events, reasons", typed), other), amount(data, "record", rows),
            eventList(rows, data.now_ms + performance.now() - data.at, true, typed ? "None of these records matches." : "The audit has no record.")];
    },
    typed: (_, value) => { typed = value; },
};
