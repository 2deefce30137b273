// Which pages there are, and which one an address means.

import { address, h } from "./dom.js";
import { audit } from "./pages/audit.js";
import { cells, elections, rateLimits, semaphores } from "./pages/listings.js";
import { locks } from "./pages/locks.js";
import { deadlocks, freezes, namespaces, principals, refusals } from "./pages/operators.js";
import { session, sessions } from "./pages/sessions.js";
import { election, lock, semaphore } from "./pages/thing.js";

const OVERVIEW = { path: "", name: "Overview", title: () => "Overview" };

const NONE = {
    path: "no-such-page", title: () => "No such page", load: async () => ({ lag_ms: 0 }),
    draw: () => [h("p", {}, "This address means no page. ", h("a", { href: address("") }, "Go to the overview"), ".")],
};

/** The links of the navigation, in groups. */
export const GROUPS = [
    [OVERVIEW],
    [locks, semaphores, elections, rateLimits, cells],
    [sessions, principals, namespaces, freezes],
    [deadlocks, refusals, audit],
];

const OF_ONE = [lock, semaphore, election, session]; // their addresses go on with a name
const PAGES = new Map([...GROUPS.flat(), ...OF_ONE].map((page) => [page.path, page]));

/** Return the page of an address, and what follows its name there. */
export function find(hash) {
    let parts;
    try {
        parts = hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
    } catch (error) {
        if (!(error instanceof URIError)) throw error;
        return [NONE, []];
    }
    const [path, ...params] = parts;
    const page = PAGES.get(path);
    return page && (params[0] || !OF_ONE.includes(page)) ? [page, params] : [NONE, []];
}
