// The holds of a name along time, drawn from its audit: when each began, how long it lasted, and how it ended.

import { h, svg, time } from "./dom.js";

const [WIDTH, LANE, LANES] = [1000, 14, 6];
const TONES = { released: "good", resigned: "good", expired: "warn", forced: "bad" };

/** Return the picture; `nowMs` is cluster time, in which events are stamped. */
export function drawTimeline(events, held, nowMs) {
    const spans = events.filter((event) => event.event in TONES && event.lasted_ms !== undefined)
        .map((event) => ({ from: event.at_ms - event.lasted_ms, to: event.at_ms, tone: TONES[event.event], text: `${event.owner}, ${event.event}, token ${event.token}` }));
    for (const row of held) {
        spans.push({ from: nowMs - (row.since_ms || 0) - (performance.now() - row.at), to: nowMs, tone: "now", text: `${row.owner} holds it, token ${row.token}` });
    }
    if (!spans.length) return null;
    spans.sort((a, b) => a.from - b.from);
    const first = spans[0].from;
    const length = Math.max(1, nowMs - first);
    const x = (ms) => (WIDTH * (ms - first)) / length;
    const ends = [];
    const bars = spans.map((span) => {
        let lane = ends.findIndex((end) => end <= span.from);
        if (lane < 0) lane = Math.min(ends.length, LANES - 1);
        ends[lane] = span.to;
        const width = Math.max(2, x(span.to) - x(span.from));
        return svg("rect", { class: `span ${span.tone}`, x: x(span.from).toFixed(1), y: lane * LANE + 2, width: width.toFixed(1), height: LANE - 4, rx: 2 },
            svg("title", {}, `${span.text}, for ${time(span.to - span.from)}`));
    });
    const height = ends.length * LANE;
    return h("figure", { class: "timeline" },
        svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, preserveAspectRatio: "none", height, role: "img", "aria-label": `${spans.length} holds in ${time(length)}` },
            svg("path", { class: "grid", d: `M0 ${height - 0.5}H${WIDTH}` }), bars),
        h("figcaption", {}, h("span", { class: "dim" }, `${time(length)} ago`), h("span", { class: "dim" }, "now")));
}
