// One lock, semaphore or election: who holds it, who waits, who waits for whom, and what happened to it.

import { may, part, read, unlessRefused } from "../api.js";
import { bar, button, h, number, state } from "../dom.js";
import { drawGraph, loadGraph } from "../graph.js";
import { drawTimeline } from "../timeline.js";
import { eventList } from "./audit.js";
import { holders, stamped, waiters } from "./holding.js";

const PATHS = { lock: "v1/locks", semaphore: "v1/semaphores", election: "v1/elections" };
const ESTIMATED = 8; // the first of a queue, whose estimates are asked for
const EVENTS = 100;

async function load(kind, name, signal) {
    const look = (one, of) => read(`${PATHS[one]}/${part(of)}`, {}, signal);
    const [info, told] = await Promise.all([look(kind, name), read("v1/audit", { name, limit: EVENTS }, signal)]);
    const leads = info.leader ? [{ ...info.leader, name }] : [];
    const held = stamped(info.holders || leads, kind).map((row) => ({ ...row, name: row.name || name }));
    const tickets = await Promise.all(info.queue.slice(0, ESTIMATED).map((waiter) => estimate(waiter.ticket, signal)));
    const queue = stamped(info.queue, kind).map((row, place) => ({ ...row, name: row.name || name, ...tickets[place] }));
    const events = told.events.filter((event) => !event.kind || event.kind === kind);
    const graph = await loadGraph(kind, name, info, look, signal);
    return { ...info, held, queue, events, graph, nowMs: told.now_ms, at: performance.now() };
}

/** Return when a wait may end, and when it gives up; nothing if the node does not say so: it may have ended meanwhile. */
async function estimate(ticket, signal) {
    const told = await unlessRefused(read(`v1/tickets/${ticket}`, {}, signal), null);
    return told && { estimate_ms: told.estimate_ms, ends_in_ms: told.ends_in_ms };
}

function draw(kind, name, data) {
    const age = performance.now() - data.at;
    return [
        h("p", { class: "facts" }, facts(kind, data)),
        h("h2", {}, kind === "election" ? "Leader" : "Holders"), holders("holders", data.held, false),
        h("h2", {}, "Queue"), waiters("queue", data.queue, false),
        data.graph.edges.length > 1 ? [h("h2", {}, "Who waits for whom"), drawGraph(data.graph)] : null,
        h("h2", {}, "What happened"), drawTimeline(data.events, data.held, data.nowMs + age), eventList(data.events, data.nowMs + age, false),
        may("force", name) ? h("p", {}, button(`Freeze ${name}`, "freeze", { prefix: name })) : null,
    ];
}

function facts(kind, data) {
    if (kind === "semaphore") {
        const used = data.limit - data.available;
        return data.limit
            ? [`${number(used)} of ${number(data.limit)} permits are taken`, bar(used, data.limit, `permits: ${used} of ${data.limit}`)]
            : "Nobody uses it now.";
    }
    const word = kind === "lock" ? data.state : data.leader ? "led" : "without a leader";
    return [state(word, { delayed: "warn", free: "good" }[word] || ""), ` ${data.queue.length} waiting`];
}

function page(kind, path, title) {
    return {
        path, title: ([name]) => `${title} ${name}`,
        load: ([name], { signal }) => load(kind, name, signal),
        draw: (data, [name]) => draw(kind, name, data),
    };
}

export const lock = page("lock", "lock", "Lock");
export const semaphore = page("semaphore", "semaphore", "Semaphore");
export const election = page("election", "election", "Election");
