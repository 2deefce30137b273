// Who waits for whom, drawn: those who wait for a thing on its left, those in their way on its right, and what
// these wait for in turn.

import { read, unlessRefused } from "./api.js";
import { address, h, svg } from "./dom.js";

const THINGS = 8; // things that are looked at
const WAITERS = 8; // those of a queue that are shown
const [WIDTH, HEIGHT, GAP_X, GAP_Y] = [150, 28, 42, 10];
const CHARS = 20;

/** Load the graph around a thing. `look` returns what is known of one. */
export async function loadGraph(kind, name, info, look, signal) {
    const graph = { nodes: new Map(), edges: [] };
    const add = (id, label, column, link) => graph.nodes.get(id) || graph.nodes.set(id, { id, label, column, link }).get(id);
    const client = (row, column) => add(`c ${row.session_name || ""} ${row.owner}`, row.owner, column, row.session_name && address("session", row.session_name));
    const thing = (of, called, column) => add(`t ${of} ${called}`, called, column, address(of, called));
    const join = (from, to, word) => graph.edges.push({ from: from.id, to: to.id, word });
    const start = thing(kind, name, 1);
    for (const waiter of info.queue.slice(0, WAITERS)) join(client(waiter, 0), start, "waits for");
    graph.hidden = Math.max(0, info.queue.length - WAITERS);
    const due = [[kind, name, info, start]];
    for (let looked = 0; due.length && looked < THINGS; looked++) {
        const [of, called, told, node] = due.shift();
        const known = told || await unlessRefused(look(of, called), {});
        for (const holder of known.holders || (known.leader ? [known.leader] : [])) {
            const isNew = !graph.nodes.has(`c ${holder.session_name || ""} ${holder.owner}`);
            const by = client(holder, node.column + 1);
            join(node, by, "is held by");
            if (!isNew || !holder.session_name) continue;
            for (const wait of (await waitsOf(holder.session_name, signal)).filter((row) => row.owner === holder.owner)) {
                const isKnown = graph.nodes.has(`t ${wait.kind} ${wait.name}`);
                const next = thing(wait.kind, wait.name, by.column + 1);
                join(by, next, "waits for");
                if (!isKnown) due.push([wait.kind, wait.name, null, next]);
            }
        }
    }
    return graph;
}

async function waitsOf(session, signal) {
    // It may have ended, or not be the caller's to see.
    return (await unlessRefused(read("v1/holds", { session_name: session }, signal), { tickets: [] })).tickets;
}

/** Return the picture, and below it the same in words for those who do not see it. */
export function drawGraph({ nodes, edges, hidden }) {
    const columns = [];
    for (const node of nodes.values()) (columns[node.column] ||= []).push(node);
    const rows = Math.max(...columns.filter(Boolean).map((column) => column.length));
    const at = new Map();
    columns.forEach((column, x) => column.forEach((node, y) => at.set(node.id, {
        x: x * (WIDTH + GAP_X), y: (y + (rows - column.length) / 2) * (HEIGHT + GAP_Y) + 4,
    })));
    const width = columns.length * (WIDTH + GAP_X) - GAP_X;
    const height = rows * (HEIGHT + GAP_Y) + 8;
    const words = edges.map((edge) => `${nodes.get(edge.from).label} ${edge.word} ${nodes.get(edge.to).label}`).join("; ");
    return h("div", { class: "scroll graph", id: "graph", tabindex: 0, role: "region", "aria-label": "Who waits for whom" },
        svg("svg", { viewBox: `-4 0 ${width + 8} ${height}`, width: width + 8, height, role: "img", "aria-label": words },
            edges.map((edge) => drawEdge(at.get(edge.from), at.get(edge.to), edge.word)),
            [...nodes.values()].map((node) => drawNode(node, at.get(node.id)))),
        hidden ? h("p", { class: "dim" }, `and ${hidden} more who wait`) : null);
}

function drawEdge(from, to, word) {
    const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x, to.y + HEIGHT / 2];
    const bend = Math.max(24, Math.abs(x2 - x1) / 2);
    return svg("g", { class: word === "waits for" ? "edge waits" : "edge holds" },
        svg("path", { d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2 - 6} ${y2}` }),
        svg("path", { class: "head", d: `M${x2} ${y2}l-8 -4v8z` }));
}

function drawNode(node, { x, y }) {
    const isThing = node.id.startsWith("t ");
    const text = node.label.length > CHARS ? `${node.label.slice(0, CHARS - 1)}…` : node.label;
    return svg("g", { class: isThing ? "thing" : "client" }, svg("title", {}, node.label),
        svg("rect", { x, y, width: WIDTH, height: HEIGHT, rx: isThing ? 5 : 15 }),
        svg("text", { x: x + WIDTH / 2, y: y + HEIGHT / 2 + 4.5, "text-anchor": "middle" }, text));
}
