// What pages are made of: elements, their update in place, and how numbers and times are written.
//
// Texts of clients become text nodes and attributes, never markup. A page is drawn anew as a whole and then
// merged into what is shown, so that focus, selection and scroll positions stay.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Return an element. Of `props`, `payload` is what its action gets, `key` tells it from its neighbours, and
 * `size` has its `width` or `height` in pixels; the rest are attributes.
 */
export function h(tag, props = {}, ...children) {
    return filled(document.createElement(tag), props, children);
}

/** Return an element of a picture. */
export function svg(tag, props = {}, ...children) {
    return filled(document.createElementNS(SVG, tag), props, children);
}

function filled(element, { payload, key, size = {}, ...attributes }, children) {
    for (const [name, value] of Object.entries(attributes)) {
        if (value !== undefined && value !== null && value !== false) {
            element.setAttribute(name, value === true ? "" : value);
        }
    }
    Object.assign(element, { payload, key });
    for (const [name, value] of Object.entries(size)) {
        if (value !== undefined) element.style[name] = `${value}px`; // an attribute would be against the policy
    }
    element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
    return element;
}

/** Make `old` look like `fresh`, which is used up. What a person types or has focused stays as it is. */
export function morph(old, fresh) {
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || old.id !== fresh.id) {
        old.replaceWith(fresh);
        return;
    }
    if (old.nodeType !== Node.ELEMENT_NODE) {
        if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
        return;
    }
    for (const { name } of [...old.attributes]) {
        if (name !== "style" && !fresh.hasAttribute(name)) old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
        if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    if (old.style.cssText !== fresh.style.cssText) old.style.cssText = fresh.style.cssText;
    old.payload = fresh.payload;
    morphChildren(old, [...fresh.childNodes]);
}

/**
 * Make the children of `parent` look like `fresh`. Those with a key stay the elements that they are, so that
 * a row that has the focus does not become another one when rows come and go above it.
 */
export function morphChildren(parent, fresh) {
    const kept = new Set(fresh.map((child) => child.key));
    const keyed = new Map();
    for (const child of [...parent.childNodes]) {
        if (child.key === undefined) continue;
        if (kept.has(child.key)) keyed.set(child.key, child);
        else child.remove();
    }
    let next = parent.firstChild;
    for (const child of fresh) {
        const same = child.key === undefined ? next && next.key === undefined && next : keyed.get(child.key);
        if (!same) {
            parent.insertBefore(child, next);
            continue;
        }
        if (same === next) next = next.nextSibling;
        else parent.insertBefore(same, next);
        morph(same, child);
    }
    while (next) {
        const gone = next;
        next = next.nextSibling;
        gone.remove();
    }
}

/** Return a length of time: its largest unit, and the next one. */
export function time(ms) {
    if (ms === null || ms === undefined) return "";
    const seconds = Math.max(0, ms) / 1000;
    if (seconds < 1) return `${Math.max(0, Math.round(ms))} ms`;
    if (seconds < 10) return `${seconds.toFixed(1)} s`;
    if (seconds < 60) return `${Math.floor(seconds)} s`;
    const minutes = Math.floor(seconds / 60);
    if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
    const hours = Math.floor(minutes / 60);
    return hours < 24 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const whole = new Intl.NumberFormat("en");

/** Return a number with its thousands apart. */
export function number(value) {
    return value === null || value === undefined ? "" : whole.format(value);
}

/** Return "1 lock" or "2 locks". */
export function count(value, word) {
    return `${number(value)} ${word}${value === 1 ? "" : "s"}`;
}

/** Return the labels of a session as small marks. */
export function labels(all = {}) {
    return Object.entries(all).map(([name, value]) => h("span", { class: "mark" }, `${name}:${value}`));
}

/** Return a word on a ground of its own; `tone` is good, warn, bad or nothing. */
export function state(text, tone = "") {
    return h("span", { class: `state ${tone}` }, text);
}

/** Return a bar that is filled up to `used` of `most`. */
export function bar(used, most, name) {
    const part = most > 0 ? Math.min(1, Math.max(0, used / most)) : 0;
    const shape = { viewBox: "0 0 100 6", preserveAspectRatio: "none", role: "img", "aria-label": name, class: "bar" };
    return svg("svg", shape,
        svg("rect", { class: "rail", width: 100, height: 6, rx: 1 }),
        svg("rect", { class: part > 0.99 ? "full" : "fill", width: (100 * part).toFixed(1), height: 6, rx: 1 }));
}

/** Return a button that does `action` with `payload`. */
export function button(text, action, payload, props = {}) {
    return h("button", { type: "button", "data-do": action, payload, ...props }, text);
}

/** Return what `make` makes of a row, or `instead` if it fails: a row that cannot be shown hides no other. */
export function unlessBroken(make, instead) {
    try {
        return make();
    } catch (error) {
        console.error(error);
        return instead;
    }
}

/** Return the address of a page; `parts` may hold anything. */
export function address(...parts) {
    return `#/${parts.map(encodeURIComponent).join("/")}`;
}
