// What operators set and look after: principals with their quotas, namespaces, freezes, deadlocks, refusals.

import { ask, may, read, readAll } from "../api.js";
import { address, bar, button, h, number, state, time } from "../dom.js";
import { table } from "../table.js";
import { amount, since, stamped } from "./holding.js";

const BOUNDED = ["sessions", "holds", "waits", "cells", "fences", "rate_limits", "bytes"];

/** Return the columns of what is used, each with a bar where it is bounded. */
function used(bounds, names) {
    return names.map((name) => ({
        title: `${name[0].toUpperCase()}${name.slice(1).replace("_", " ")}`, class: "num used", by: (row) => row.used[name],
        cell: (row) => {
            const most = bounds(row)?.[name] ?? null;
            return most === null ? number(row.used[name])
                : [`${number(row.used[name])} of ${number(most)}`, bar(row.used[name], most, `${name}: ${row.used[name]} of ${most}`)];
        },
    }));
}

async function loadAll(path, key, signal) {
    const all = await readAll(`v1/${path}`, key, {}, signal);
    return { ...all, rows: stamped(all.rows) };
}

export const principals = {
    path: "principals", name: "Principals", title: () => "Principals and their quotas",
    load: (_, { signal }) => loadAll("quotas", "quotas", signal),
    draw: (data) => [
        amount(data, "principal"),
        table({
            id: "principals", label: "Principals", rows: data.rows, key: (row) => row.principal,
            empty: "No principal has a quota or uses anything. Without tokens, callers have no names.",
            columns: [
                { title: "Principal", by: (row) => row.principal, cell: (row) => row.principal },
                { title: "Quota", cell: (row) => (row.quota ? "its own" : "that of *, if there is one") },
                ...used((row) => row.quota, BOUNDED),
            ],
        }),
    ],
};

function settings(all) {
    return Object.entries(all).filter(([, value]) => value !== null)
        .map(([name, value]) => h("span", { class: "mark" }, `${name}: ${typeof value === "object" ? JSON.stringify(value) : value}`));
}

export const namespaces = {
    path: "namespaces", name: "Namespaces", title: () => "Namespaces",
    load: (_, { signal }) => loadAll("namespaces", "namespaces", signal),
    draw: (data) => [
        amount(data, "namespace"),
        table({
            id: "namespaces", label: "Namespaces", rows: data.rows, key: (row) => row.prefix, empty: "No namespace is set.",
            columns: [
                { title: "Prefix", by: (row) => row.prefix, cell: (row) => h("a", { href: address("locks", `${row.prefix}/`) }, row.prefix) },
                ...used((row) => row.settings, BOUNDED.slice(1)),
                { title: "Settings", cell: (row) => settings(row.settings) },
            ],
        }),
    ],
};

export const freezes = {
    path: "freezes", name: "Freezes", title: () => "Frozen prefixes",
    load: (_, { signal }) => loadAll("freezes", "freezes", signal),
    draw: (data) => [
        may("force") ? h("div", { class: "tools" }, button("Freeze a prefix", "freeze", {})) : null,
        table({
            id: "freezes", label: "Frozen prefixes", rows: data.rows, key: (row) => row.prefix, empty: "Nothing is frozen.",
            columns: [
                { title: "Prefix", by: (row) => row.prefix, cell: (row) => row.prefix },
                { title: "Frozen for", class: "num", cell: (row) => time(row.frozen_ms + since(row)) },
                { title: "Thaws in", class: "num", cell: (row) => (row.ends_in_ms ? time(row.ends_in_ms - since(row)) : "when somebody does it") },
                { title: "Reason", cell: (row) => row.reason },
                { title: "", class: "do", cell: (row) => (may("force", row.prefix) ? button("Thaw", "thaw", row, { "aria-label": `Thaw ${row.prefix}` }) : "") },
            ],
        }),
    ],
};

const DEADLOCK = /^holdfast_deadlocks_total\{kind="(\w+)",path="((?:[^"\\]|\\.)*)",reason="([\w-]+)"\} (\d+)/gm;

export const deadlocks = {
    path: "deadlocks", name: "Deadlocks", title: () => "Deadlocks refused",
    load: async (_, { signal }) => {
        const text = await (await ask("GET", "metrics", { signal })).text();
        const found = [...text.matchAll(DEADLOCK)].map(([, kind, path, reason, count]) => ({ kind, path, reason, count: Number(count) }));
        return { rows: found.filter((row) => row.count > 0), lag_ms: 0 };
    },
    draw: (data) => [
        h("p", {}, "Requests that were refused because they would have waited for ever, since this node started, by the first part of the name. The refused client was told the whole cycle."),
        table({
            id: "deadlocks", label: "Deadlocks refused", rows: data.rows, key: (row) => `${row.kind} ${row.path} ${row.reason}`, empty: "None has been refused.",
            columns: [
                { title: "Path", by: (row) => row.path, cell: (row) => h("a", { href: address("locks", `${row.path}/`) }, row.path) },
                { title: "Kind", by: (row) => row.kind, cell: (row) => row.kind },
                { title: "Reason", by: (row) => row.reason, cell: (row) => row.reason },
                { title: "Refused", class: "num", by: (row) => row.count, cell: (row) => number(row.count) },
            ],
        }),
    ],
};

export const refusals = {
    path: "refusals", name: "Refusals", title: () => "Callers refused",
    load: async (_, { signal }) => {
        const { refusals: rows, count, node_id: node } = await (await ask("GET", "v1/refusals", { query: { limit: 1000 }, signal })).json();
        return { rows, count, node, lag_ms: 0 };
    },
    draw: (data) => [
        h("p", {}, `Calls that ${data.node} has refused because of who asked: ${number(data.count)} since it started. Other nodes have their own.`),
        table({
            id: "refusals", label: "Callers refused", rows: data.rows, key: (row) => row.number, empty: "None has been refused.",
            columns: [
                { title: "When", by: (row) => row.unix_ms, cell: (row) => new Date(row.unix_ms).toISOString().slice(0, 19).replace("T", " ") },
                { title: "Code", by: (row) => row.code, cell: (row) => state(row.code, "warn") },
                { title: "Principal", by: (row) => row.principal, cell: (row) => row.principal || h("span", { class: "dim" }, "unknown") },
                { title: "From", by: (row) => row.address, cell: (row) => row.address },
                { title: "Call", by: (row) => row.route, cell: (row) => `${row.method} ${row.route}` },
                { title: "Detail", cell: (row) => row.detail },
            ],
        }),
    ],
};
