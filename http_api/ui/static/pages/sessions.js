// Sessions, and what one of them holds and waits for.

import { mayEverywhere, read, readAll } from "../api.js";
import { button, h, labels, number, time, unlessBroken } from "../dom.js";
import { table } from "../table.js";
import { amount, holders, searchField, sessionLink, since, stamped, waiters } from "./holding.js";

let typed = "";

function endButton(row) {
    return button("End", "session", row, { class: "danger", "aria-label": `End the session ${row.session_name} of ${row.owner}` });
}

function columns(rows) {
    return [
        { title: "Session", by: (row) => Number(row.session_name.slice(2)), cell: sessionLink },
        { title: "Owner", by: (row) => row.owner, cell: (row) => row.owner },
        rows.some((row) => row.principal) && { title: "Principal", by: (row) => row.principal || "", cell: (row) => row.principal || "" },
        { title: "Ends in", class: "num", by: (row) => row.expires_in_ms - since(row), cell: (row) => time(row.expires_in_ms - since(row)) },
        { title: "Lease", class: "num", by: (row) => row.ttl_ms, cell: (row) => time(row.ttl_ms) },
        { title: "Holds", class: "num", by: (row) => row.holds_count, cell: (row) => number(row.holds_count) },
        { title: "Waits", class: "num", by: (row) => row.tickets_count, cell: (row) => number(row.tickets_count) },
        { title: "Labels", cell: (row) => labels(row.labels) },
        mayEverywhere("force") && { title: "", class: "do", cell: endButton },
    ].filter(Boolean);
}

export const sessions = {
    path: "sessions", name: "Sessions", title: () => "Sessions",
    load: async (_, { signal }) => {
        const all = await readAll("v1/sessions", "sessions", {}, signal);
        return { ...all, rows: stamped(all.rows) };
    },
    draw: (data) => {
        const word = typed.toLowerCase();
        const text = (row) => [row.session_name, row.owner, row.principal, ...Object.entries(row.labels).flat()].join("\n").toLowerCase();
        const rows = word ? data.rows.filter((row) => unlessBroken(() => text(row), "").includes(word)) : data.rows;
        return [h("div", { class: "tools" }, searchField("Search owners, labels", typed)), amount({ ...data, rows }, "session"),
            table({ id: "sessions", label: "Sessions", columns: columns(rows), rows, key: (row) => row.session_name, empty: "There is no such session." })];
    },
    typed: (_, value) => { typed = value; },
};

export const session = {
    path: "session", title: ([name]) => `Session ${name}`,
    load: async ([name], { signal }) => {
        const told = await read("v1/holds", { session_name: name }, signal);
        return { ...told, holds: stamped(told.holds), tickets: stamped(told.tickets) };
    },
    draw: (data, [name]) => {
        const owner = [...data.holds, ...data.tickets][0]?.owner || "";
        return [
            owner ? h("p", { class: "facts" }, `of ${owner}`) : null,
            h("h2", {}, "Holds"), holders("session-holds", data.holds, true),
            h("h2", {}, "Waits"), waiters("session-waits", data.tickets, true),
            mayEverywhere("force") ? h("p", {}, button("End this session", "session", { session_name: name, owner }, { class: "danger" })) : null,
        ];
    },
};
