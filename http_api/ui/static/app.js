// The program of the page: which page is shown, when it is loaded again, how old it is, and who looks at it.

import { Problem, ask, identify } from "./api.js";
import { act, closeForms, openToken } from "./actions.js";
import { address, h, morph, morphChildren, number, time } from "./dom.js";
import { GROUPS, find } from "./pages.js";
import { remember } from "./table.js";
import { Watch } from "./watch.js";

const LOOK_MS = 2000; // between two loads while nothing tells of changes
const CALM_MS = 1000; // between two loads at least, whatever happens
const SHARE = 10; // a page rests ten times as long as its load took
const FINAL = new Set([400, 401, 403, 404, 410]); // refusals that asking again does not change
const OLD_MS = 5000; // from which age on a picture is marked as old

const at = (id) => document.getElementById(id);
const shown = { page: null, params: [], data: null, at: 0, lagMs: null, revision: null, failure: null };
const changed = new Set();
let stopping = null;
let isLoading = false;
let isDue = true;
let isGap = true; // whether something may have happened that the watch has not told
let dueAt = 0;
let isKnown = false;

// -- loading --------------------------------------------------------------------------------------------------

async function load() {
    if (isLoading || document.hidden) return;
    isLoading = true;
    isDue = false;
    const { page, params } = shown;
    const own = new AbortController();
    stopping = own;
    const began = performance.now();
    const events = new Set(changed);
    const isWhole = isGap || !watch.isFollowing;
    changed.clear();
    isGap = !watch.isFollowing;
    try {
        const data = page.load
            ? await page.load(params, { signal: own.signal, before: shown.data, changed: events, isWhole })
            : await overview(own.signal);
        if (stopping !== own) return;
        // What a node says is as old as the call that asked for it, and as what the node had heard by then.
        Object.assign(shown, { data, at: began, failure: null });
        shown.lagMs = data.lag_ms === undefined ? 0 : data.lag_ms;
        shown.revision = data.revision;
        draw();
    } catch (error) {
        isGap = true;
        if (error.name === "AbortError") return;
        if (!(error instanceof Problem)) throw error;
        shown.failure = error;
        draw();
    } finally {
        if (stopping === own) {
            isLoading = false;
            const rest = FINAL.has(shown.failure?.status) ? Infinity : SHARE * (performance.now() - began);
            dueAt = performance.now() + Math.max(CALM_MS, rest);
        }
    }
}

/** Load the overview, which the node renders. */
async function overview(signal) {
    const html = await (await ask("GET", "ui", { signal })).text();
    const fresh = new DOMParser().parseFromString(html, "text/html").getElementById("overview");
    morph(at("overview"), document.importNode(fresh, true));
    wireToken();
    const { lag, revision } = at("overview").dataset;
    return { lag_ms: lag === "" ? null : Number(lag), revision: Number(revision) };
}

// -- drawing --------------------------------------------------------------------------------------------------

function draw() {
    const { page, params, data, failure } = shown;
    at("overview").hidden = Boolean(page.load);
    at("view").hidden = !page.load;
    if (page.load) {
        const body = data ? page.draw(data, params, performance.now() - shown.at) : failure ? [refusal(failure)] : [];
        morphChildren(at("view"), [h("h1", {}, page.title(params)), ...body].flat(Infinity).filter(Boolean));
    }
    drawAge();
}

function refusal(failure) {
    const advice = failure.status === 401 ? "Type a token to go on." : failure.status === 403
        ? "Your token does not allow this page." : "";
    return h("p", { class: "hint", role: "alert" }, `${failure.message}. ${advice}`);
}

function drawAge() {
    const { failure, data, lagMs } = shown;
    const age = performance.now() - shown.at + (lagMs ?? 0);
    const isOld = data !== null && (age > OLD_MS || lagMs === null);
    let text = "";
    if (failure && failure.status === 0) text = data ? `the node does not answer; ${time(age)} old` : "the node does not answer";
    else if (data && lagMs === null) text = "this node has heard no leader: what is shown may be old";
    else if (data && lagMs > OLD_MS) text = `no leader heard: ${time(age)} old`;
    else if (data) text = `${Math.round(age / 1000)} s old${watch.isFollowing ? ", following" : ""}`;
    at("age").textContent = text;
    at("age").title = data && shown.revision ? `as this node has it, at revision ${number(shown.revision)}` : "";
    at("age").classList.toggle("old", isOld || Boolean(failure && failure.status === 0));
}

// -- where we are ---------------------------------------------------------------------------------------------

function go() {
    const [page, params] = find(window.location.hash === "#main" ? "" : window.location.hash);
    stopping?.abort();
    stopping = null;
    isLoading = false;
    Object.assign(shown, { page, params, data: null, failure: null, revision: null });
    document.title = `${page.title(params)} · ${document.querySelector(".node").textContent || "Holdfast"}`;
    for (const link of at("nav").querySelectorAll("a")) {
        const isHere = link.getAttribute("href") === address(page.path);
        link.removeAttribute("aria-current");
        if (isHere) {
            link.setAttribute("aria-current", "page");
            link.scrollIntoView({ block: "nearest", inline: "nearest" });
        }
    }
    draw();
    load();
}

function drawNav() {
    const links = (pages) => h("ul", {}, pages.map((page) => h("li", {}, h("a", { href: address(page.path) }, page.name))));
    at("nav").replaceChildren(...GROUPS.map(links));
}

// -- who looks ------------------------------------------------------------------------------------------------

async function learn(token) {
    const { node_id: node, principal } = await identify(token);
    isKnown = true;
    document.querySelector(".node").textContent = node;
    at("token-button").hidden = !principal; // a node that knows nobody asks nobody
    at("nav").hidden = false;
    at("who").hidden = !principal;
    at("who").textContent = principal;
    watch.start();
    go();
}

function wireToken() {
    for (const id of ["token-open", "token-button"]) {
        const opener = at(id);
        if (opener) opener.onclick = () => openToken(learn);
    }
}

const watch = new Watch(
    (event) => {
        if (event.kind === "lock") changed.add(event.name);
        isDue = true;
    },
    () => {
        isGap = isDue = true;
        drawAge();
    },
);

/** Say what became of an action, and look again. */
export function tell(text, isBad = false) {
    at("notice").textContent = text;
    at("notice").classList.toggle("bad", isBad);
    isDue = true;
    dueAt = 0;
}

document.addEventListener("click", (event) => {
    const element = event.target.closest("[data-do]");
    if (element) act(element.dataset.do, element.payload, { tell, draw });
});
document.addEventListener("input", (event) => {
    const name = event.target.dataset.input;
    if (name) {
        shown.page.typed?.(name, event.target.value);
        draw();
    }
});
document.addEventListener("scroll", (event) => remember(event.target, draw), true);
document.addEventListener("visibilitychange", () => {
    if (document.hidden) watch.stop();
    else if (isKnown) watch.start();
    dueAt = 0;
});
window.addEventListener("hashchange", () => {
    if (window.location.hash === "#main") return; // the link that skips to the content
    at("notice").textContent = "";
    closeForms();
    go();
    at("main").focus({ preventScroll: true });
    window.scrollTo(0, 0);
});

/** Each second: let ages grow, and load what may have changed. */
function step() {
    watch.check();
    const now = performance.now();
    const isOld = !watch.isFollowing || !shown.page.load || now - shown.at > 5 * LOOK_MS;
    if (isKnown && !document.hidden && now >= dueAt && (isDue || (isOld && now - shown.at >= LOOK_MS))) load();
    if (shown.data && shown.page.load && !document.hidden) draw();
    else drawAge();
}

drawNav();
wireToken();
learn("").catch((error) => {
    // A node that asks who its callers are has shown what everybody may know.
    if (error.status === 401) for (const id of ["token-open", "token-button"]) at(id).hidden = false;
    else tell(error.message, true);
    [shown.page, shown.params] = find("");
    drawAge();
});
setInterval(step, 1000);
