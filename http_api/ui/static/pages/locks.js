// All locks: by prefix, by what one types, by how long they are held, by how many wait. Ten thousand are smooth,
// because only those that have changed are loaded again, and only those in sight are drawn.

import { may, part, read, readAll, unlessRefused } from "../api.js";
import { address, button, h, labels, number, state, time, unlessBroken } from "../dom.js";
import { sortBy, table } from "../table.js";
import { amount, searchField, since, thingLink } from "./holding.js";

const PIECES_MAX = 25; // changed locks that are loaded one by one
const SMALL = 1000; // so many are loaded with one call
const WHOLE_MS = 60000; // after which all are loaded again in any case
const CHIPS = 14;
const TONES = { held: "", delayed: "warn", free: "good" };
let typed = "";
let found = { of: null, typed: null, rows: [] };

function row(lock, at) {
    return unlessBroken(() => whole(lock, at), { ...lock, at, text: lock.name.toLowerCase() });
}

function whole(lock, at) {
    const [first, ...others] = lock.holders;
    const ends = lock.holders.filter((holder) => holder.expires_in_ms).map((holder) => holder.expires_in_ms);
    const words = lock.holders.flatMap((holder) => [holder.owner, holder.note, holder.session_name, holder.principal, ...Object.entries(holder.labels || {}).flat()]);
    return {
        ...lock, at, first, others,
        heldMs: Math.max(0, ...lock.holders.map((holder) => holder.since_ms || 0)),
        leftMs: ends.length ? Math.min(...ends) : null,
        waitedMs: Math.max(0, ...lock.queue.map((waiter) => waiter.waited_ms)),
        text: [lock.name, ...words, ...lock.queue.map((waiter) => waiter.owner)].filter(Boolean).join("\n").toLowerCase(),
    };
}

async function load([prefix = ""], { signal, before, changed, isWhole }) {
    const isLarge = before && before.rows.length > SMALL;
    if (isLarge && !isWhole && changed.size <= PIECES_MAX && performance.now() - before.wholeAt < WHOLE_MS) {
        return { ...before, ...(await pieces(before, prefix, [...changed].filter((name) => name.startsWith(prefix)), signal)) };
    }
    const at = performance.now();
    const all = await readAll("v1/locks", "locks", { prefix }, signal);
    const rows = all.rows.map((lock) => row(lock, at));
    return { ...all, rows, wholeAt: at, below: below(rows, prefix) };
}

/** Load the locks that have changed, and put them where they belong in the order of names. */
async function pieces(before, prefix, names, signal) {
    if (!names.length) return {};
    const at = performance.now();
    const look = (name) => unlessRefused(read(`v1/locks/${part(name)}`, {}, signal), null);
    const answers = (await Promise.all(names.map(look))).filter(Boolean);
    const missed = answers.length < names.length ? { wholeAt: -WHOLE_MS } : {}; // the next time all are loaded
    if (!answers.length) return missed;
    const renewed = new Set(answers.map((lock) => lock.name));
    const rows = before.rows.filter((lock) => !renewed.has(lock.name));
    rows.push(...answers.filter((lock) => lock.state !== "free" || lock.queue.length).map((lock) => row(lock, at)));
    rows.sort((a, b) => (a.name < b.name ? -1 : 1));
    return { ...missed, rows, below: below(rows, prefix), lag_ms: answers[0].lag_ms, revision: answers[0].revision };
}

/** Return the next parts of names below a prefix, those with the most locks first. */
function below(rows, prefix) {
    const counts = new Map();
    for (const { name } of rows) {
        const end = name.indexOf("/", prefix.length);
        if (end >= 0) counts.set(name.slice(0, end + 1), (counts.get(name.slice(0, end + 1)) || 0) + 1);
    }
    return [...counts].sort((a, b) => b[1] - a[1]).slice(0, CHIPS);
}

function matching(rows) {
    if (found.of !== rows || found.typed !== typed) {
        const words = typed.toLowerCase().split(" ").filter(Boolean);
        found = { of: rows, typed, rows: words.length ? rows.filter((lock) => words.every((word) => lock.text.includes(word))) : rows };
    }
    return found.rows;
}

const COLUMNS = [
    { title: "Name", by: (lock) => lock.name, cell: (lock) => thingLink("lock", lock.name) },
    { title: "State", width: 80, by: (lock) => lock.state, cell: (lock) => state(lock.state, TONES[lock.state]) },
    { title: "Holder", width: 150, by: (lock) => lock.first?.owner || "", cell: (lock) => [lock.first?.owner || "", lock.others.length ? h("span", { class: "dim" }, ` and ${lock.others.length} more`) : ""] },
    { title: "Held for", width: 98, class: "num", by: (lock) => lock.heldMs - lock.at, cell: (lock) => (lock.first ? time(lock.heldMs + since(lock)) : "") },
    { title: "Ends in", width: 106, class: "num", by: (lock) => (lock.leftMs === null ? Infinity : lock.leftMs + lock.at), cell: (lock) => (lock.leftMs === null ? "" : time(lock.leftMs - since(lock))) },
    { title: "Token", width: 80, class: "num", by: (lock) => lock.first?.token || 0, cell: (lock) => (lock.first ? number(lock.first.token) : "") },
    { title: "Waiting", width: 82, class: "num", by: (lock) => lock.queue.length, cell: (lock) => (lock.queue.length ? state(number(lock.queue.length), "warn") : "0") },
    { title: "Longest wait", width: 112, class: "num", by: (lock) => lock.waitedMs, cell: (lock) => (lock.queue.length ? time(lock.waitedMs + since(lock)) : "") },
    { title: "Labels", width: 150, cell: (lock) => labels(lock.first?.labels) },
];

function draw(data, [prefix = ""]) {
    const rows = matching(data.rows);
    const bare = prefix.replace(/\/$/, "");
    const chips = data.below.map(([name, count]) => h("a", { class: "chip", href: address("locks", name) }, name, h("span", { class: "dim" }, ` ${number(count)}`)));
    const steps = prefix.split("/").slice(0, -1).map((_, place, parts) => `${parts.slice(0, place + 1).join("/")}/`);
    const path = prefix && h("p", { class: "path" }, h("a", { href: address("locks") }, "all"), steps.map((step) => [" › ", step === prefix ? h("span", {}, step) : h("a", { href: address("locks", step) }, step)]));
    const orders = [["By name", null, false], ["Longest held", "Held for", true], ["Most contended", "Waiting", true]];
    return [
        path || null,
        h("div", { class: "tools" }, searchField("Search names, owners, labels", typed),
            h("span", { class: "group", role: "group", "aria-label": "Order" },
                orders.map(([text, column, isDown]) => button(text, "call", () => sortBy("locks", column, isDown)))),
            bare && may("force", bare) ? button(`Freeze ${bare}`, "freeze", { prefix: bare }) : null),
        chips.length ? h("div", { class: "chips", role: "group", "aria-label": "Prefixes" }, chips) : null,
        amount(data, "lock", rows),
        table({ id: "locks", label: "Locks", columns: COLUMNS, rows, key: (lock) => lock.name, empty: typed ? "No lock matches." : "No lock is held or waited for." }),
    ];
}

export const locks = {
    path: "locks", name: "Locks", load, draw,
    title: ([prefix]) => (prefix ? `Locks below ${prefix}` : "Locks"),
    typed: (_, value) => { typed = value; },
};
