// Which pages there are, and which one an address means.

const OVERVIEW = { path: "", name: "Overview", title: () => "Overview" };

/** The links of the navigation, in groups. */
export const GROUPS = [[OVERVIEW]];

const PAGES = new Map(GROUPS.flat().map((page) => [page.path, page]));

/** Return the page of an address, and what follows its name there. */
export function find(hash) {
    const [path, ...params] = hash.replace(/^#\//, "").split("/").map(decodeURIComponent);
    return [PAGES.get(path) || OVERVIEW, params];
}
