// Which pages there are, and which one an address means.

import { audit } from "./pages/audit.js";
import { cells, elections, rateLimits, semaphores } from "./pages/listings.js";
import { locks } from "./pages/locks.js";
import { deadlocks, freezes, namespaces, principals, refusals } from "./pages/operators.js";
import { session, sessions } from "./pages/sessions.js";
import { election, lock, semaphore } from "./pages/thing.js";

const OVERVIEW = { path: "", name: "Overview", title: () => "Overview" };

/** The links of the navigation, in groups. */
export const GROUPS = [
    [OVERVIEW],
    [locks, semaphores, elections, rateLimits, cells],
    [sessions, principals, namespaces, freezes],
    [deadlocks, refusals, audit],
];

const PAGES = new Map([...GROUPS.flat(), lock, semaphore, election, session].map((page) => [page.path, page]));

/** Return the page of an address, and what follows its name there. */
export function find(hash) {
    const [path, ...params] = hash.replace(/^#\//, "").split("/").map(decodeURIComponent);
    return [PAGES.get(path) || OVERVIEW, params];
}
