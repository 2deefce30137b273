// Tables, of which only the rows that can be seen are drawn: ten thousand cost as much as fifty.

import { button, h, unlessBroken } from "./dom.js";

const ROW = 32; // pixels, as in page.css
const MARGIN = 12; // rows above and below
const tables = new Map();

function stateOf(id) {
    if (!tables.has(id)) tables.set(id, { top: 0, height: 640, by: null, isDown: false });
    return tables.get(id);
}

/** Keep where a table was scrolled to, and draw the rows that came into sight. */
export function remember(element, draw) {
    const state = tables.get(element.id);
    if (!state) return;
    state.height = element.clientHeight;
    if (Math.abs(state.top - element.scrollTop) < ROW) return;
    state.top = element.scrollTop;
    requestAnimationFrame(draw);
}

/** Sort by a column, null for the order in which rows came; without `isDown` the other way round if it is so already. */
export function sortBy(id, column, isDown) {
    const state = stateOf(id);
    state.isDown = isDown ?? (state.by === column ? !state.isDown : true);
    state.by = column;
    state.sorted = null;
}

/**
 * Return a table. A column has a `title`, a `cell` of a row, perhaps a `by` to sort by, a `class` and a `width`
 * in pixels, so that it keeps that when other rows come into sight; the first one names the row. `key` tells rows apart, and `label` names the table for those who hear it.
 */
export function table({ id, label, columns, rows, key, empty }) {
    if (!rows.length) return h("p", { class: "empty" }, empty);
    const state = stateOf(id);
    if (!document.getElementById(id)) state.top = 0;
    const ordered = inOrder(state, columns, rows);
    const first = Math.max(0, Math.min(Math.floor(state.top / ROW) - MARGIN, ordered.length));
    const last = Math.min(ordered.length, first + Math.ceil(state.height / ROW) + 2 * MARGIN);
    const body = ordered.slice(first, last).map((row, index) => line(columns, row, key(row), first + index));
    const gap = (count) => count > 0 && h("tr", { "aria-hidden": "true", class: "gap", size: { height: count * ROW } }, h("td", { colspan: columns.length }));
    return h("div", { class: "scroll tall", id, tabindex: 0, role: "region", "aria-label": label },
        h("table", { class: columns.some((column) => column.width) ? "rows fixed" : "rows", "aria-rowcount": ordered.length + 1, "aria-label": label },
            h("thead", {}, h("tr", { "aria-rowindex": 1 }, columns.map((column) => head(id, state, column)))),
            h("tbody", {}, gap(first), body, gap(ordered.length - last))));
}

function inOrder(state, columns, rows) {
    const column = columns.find((one) => one.title === state.by && one.by);
    if (!column) return rows;
    if (state.sorted && state.of === rows) return state.sorted;
    const keyed = rows.map((row) => [unlessBroken(() => column.by(row), ""), row]);
    const sign = state.isDown ? -1 : 1;
    keyed.sort(([a], [b]) => (a < b ? -sign : a > b ? sign : 0));
    Object.assign(state, { of: rows, sorted: keyed.map(([, row]) => row) });
    return state.sorted;
}

function head(id, state, column) {
    const isBy = state.by === column.title;
    const sorted = isBy ? (state.isDown ? "descending" : "ascending") : "none";
    const shape = { scope: "col", class: column.class, size: { width: column.width }, "aria-sort": column.by ? sorted : null };
    if (!column.by) return h("th", shape, column.title || h("span", { class: "unseen" }, "Actions"));
    const mark = isBy ? (state.isDown ? " ↓" : " ↑") : "";
    return h("th", shape, button([column.title, h("span", { "aria-hidden": "true" }, mark)], "sort", { id, column: column.title }, { class: "sort" }));
}

function line(columns, row, key, index) {
    const cells = columns.map((column, place) => {
        const content = unlessBroken(() => column.cell(row), "cannot be shown");
        return place === 0 ? h("th", { scope: "row", class: column.class }, content) : h("td", { class: column.class }, content);
    });
    return h("tr", { key, "aria-rowindex": index + 2 }, cells);
}
