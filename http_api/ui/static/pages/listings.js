// Semaphores, elections, rate limits and cells.

import { readAll } from "../api.js";
import { bar, h, labels, number, state, time, unlessBroken } from "../dom.js";
import { table } from "../table.js";
import { amount, searchField, since, stamped, thingLink } from "./holding.js";

/** Return a page that shows a listing as a table that can be searched. */
function listing({ path, name, key, word, columns, keyOf, text, empty }) {
    let typed = "";
    return {
        path, name, title: () => name,
        load: async (_, { signal }) => {
            const all = await readAll(`v1/${path}`, key, {}, signal);
            return { ...all, rows: stamped(all.rows) };
        },
        draw: (data) => {
            const sought = typed.toLowerCase();
            const rows = sought ? data.rows.filter((row) => unlessBroken(() => text(row), "").toLowerCase().includes(sought)) : data.rows;
            return [h("div", { class: "tools" }, searchField(`Search ${name.toLowerCase()}`, typed)), amount(data, word, rows),
                table({ id: path, label: name, columns, rows, key: keyOf, empty: typed ? "Nothing matches." : empty })];
        },
        typed: (_, value) => { typed = value; },
    };
}

const byName = (row) => row.name;
const NAME = { title: "Name", by: byName, cell: byName };
const queue = (row) => (row.queue_length ? state(number(row.queue_length), "warn") : "0");
const WAITING = { title: "Waiting", class: "num", by: (row) => row.queue_length, cell: queue };

export const semaphores = listing({
    path: "semaphores", name: "Semaphores", key: "semaphores", word: "semaphore", keyOf: byName, empty: "No semaphore is used.",
    text: (row) => [row.name, ...row.holders.map((holder) => holder.owner)].join("\n"),
    columns: [
        { title: "Name", by: byName, cell: (row) => thingLink("semaphore", row.name) },
        { title: "Permits", class: "wide", by: (row) => (row.limit - row.available) / row.limit, cell: (row) => bar(row.limit - row.available, row.limit, `${row.limit - row.available} of ${row.limit} permits are taken`) },
        { title: "Taken", class: "num", by: (row) => row.limit - row.available, cell: (row) => `${number(row.limit - row.available)} of ${number(row.limit)}` },
        { title: "Holders", class: "num", by: (row) => row.holders_count, cell: (row) => number(row.holders_count) },
        WAITING,
    ],
});

export const elections = listing({
    path: "elections", name: "Elections", key: "elections", word: "election", keyOf: byName, empty: "There is no election.",
    text: (row) => [row.name, row.leader?.owner, row.leader?.value].join("\n"),
    columns: [
        { title: "Name", by: byName, cell: (row) => thingLink("election", row.name) },
        { title: "Leader", by: (row) => row.leader?.owner || "", cell: (row) => row.leader?.owner || h("span", { class: "dim" }, "none") },
        { title: "Value", cell: (row) => row.leader?.value || "" },
        { title: "Leads for", class: "num", by: (row) => row.leader?.since_ms || 0, cell: (row) => (row.leader ? time((row.leader.since_ms || 0) + since(row)) : "") },
        { title: "Token", class: "num", by: (row) => row.leader?.token || 0, cell: (row) => number(row.leader?.token) },
        WAITING,
        { title: "Labels", cell: (row) => labels(row.leader?.labels) },
    ],
});

export const rateLimits = listing({
    path: "rate-limits", name: "Rate limits", key: "rate_limits", word: "rate limit", empty: "Nothing has been taken from a rate limit.",
    keyOf: (row) => `${row.name} ${row.algorithm} ${row.window_ms}`, text: byName,
    columns: [
        NAME,
        { title: "Algorithm", by: (row) => row.algorithm, cell: (row) => row.algorithm },
        { title: "Window", class: "num", by: (row) => row.window_ms, cell: (row) => time(row.window_ms) },
        { title: "Whole again", class: "wide", cell: (row) => bar(row.reset_in_ms - since(row), row.window_ms, `${time(row.reset_in_ms - since(row))} of its window are left`) },
        { title: "In", class: "num", by: (row) => row.reset_in_ms - since(row), cell: (row) => time(row.reset_in_ms - since(row)) },
        { title: "Waiting", class: "num", by: (row) => row.waiting, cell: (row) => number(row.waiting) },
        { title: "Principal", by: (row) => row.principal || "", cell: (row) => row.principal || "" },
    ],
});

const keyText = (row) => row.key ?? `base64:${row.key_base64}`;

export const cells = listing({
    path: "cells", name: "Cells", key: "cells", word: "cell", keyOf: keyText, empty: "There is no cell.",
    text: (row) => `${keyText(row)}\n${row.value ?? ""}\n${row.owner ?? ""}`,
    columns: [
        { title: "Key", by: keyText, cell: keyText },
        { title: "Value", class: "long", cell: (row) => h("span", { class: row.value === undefined ? "dim" : "mono" }, row.value ?? `base64:${row.value_base64}`) },
        { title: "Version", class: "num", by: (row) => row.version, cell: (row) => number(row.version) },
        { title: "Changed at", class: "num", by: (row) => row.mod_revision, cell: (row) => number(row.mod_revision) },
        { title: "Lives with", by: (row) => row.owner || "", cell: (row) => row.owner || "" },
        { title: "Ends in", class: "num", by: (row) => row.expires_in_ms ?? Infinity, cell: (row) => (row.expires_in_ms === undefined ? "" : time(row.expires_in_ms - since(row))) },
    ],
});
