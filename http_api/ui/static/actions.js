// What buttons do. Whatever ends something of somebody else asks for a reason, which the audit keeps.

import { Problem, call, part } from "./api.js";
import { h } from "./dom.js";
import { sortBy } from "./table.js";

const PATHS = {
    force: { lock: "v1/locks/force-release", semaphore: "v1/semaphores/force-release", election: "v1/elections/depose" },
    revoke: { lock: "v1/locks/revoke", semaphore: "v1/semaphores/revoke", election: "v1/elections/revoke" },
    withdraw: {
        lock: "v1/locks/withdraw-revocation", semaphore: "v1/semaphores/withdraw-revocation",
        election: "v1/elections/withdraw-revocation",
    },
};
const SECONDS = { type: "number", min: 0, step: 1, inputmode: "numeric" };

/** By name: what an action is called, what it says, which fields it has, what it sends, and what it tells. */
const ACTIONS = {
    force: {
        title: (on) => `End the hold of ${on.owner} on ${on.name}`,
        text: "Its holder loses it now, and may not know yet: what it protects must refuse older tokens.",
        verb: "End it", isDangerous: true,
        fields: (on) => (on.kind === "election" ? [] : [["delay", "Keep it from others for, in seconds", { ...SECONDS, value: 0 }]]),
        send: (on, typed) => ["POST", PATHS.force[on.kind],
            { name: on.name, token: on.token, ...(on.kind === "election" ? {} : { lock_delay_ms: 1000 * typed.delay }) }],
        told: (on) => `The hold of ${on.owner} on ${on.name} has ended.`,
    },
    revoke: {
        title: (on) => `Ask ${on.owner} to give up ${on.name}`,
        text: "The holder hears of it. When the time is over, its hold ends by force.",
        verb: "Ask", fields: () => [["grace", "Time that it has, in seconds", { ...SECONDS, value: 30 }]],
        send: (on, typed) => ["POST", PATHS.revoke[on.kind], { name: on.name, token: on.token, grace_ms: 1000 * typed.grace }],
        told: (on) => `${on.owner} was asked to give up ${on.name}.`,
    },
    withdraw: {
        title: (on) => `Let ${on.owner} keep ${on.name}`, text: "The request to give it up is taken back.", verb: "Take it back",
        send: (on) => ["POST", PATHS.withdraw[on.kind], { name: on.name, token: on.token }],
        told: (on) => `${on.owner} may keep ${on.name}.`,
    },
    wait: {
        title: (on) => `End the wait of ${on.owner} for ${on.name}`,
        text: "Its client hears that its wait has ended, and why.", verb: "End the wait", isDangerous: true,
        send: (on) => ["POST", "v1/waits/force-end", { name: on.name, kind: on.kind, ticket: on.ticket }],
        told: (on) => `The wait of ${on.owner} for ${on.name} has ended.`,
    },
    session: {
        title: (on) => `End the session ${on.session_name} of ${on.owner}`,
        text: "All that it holds and waits for ends with it.", verb: "End the session", isDangerous: true,
        send: (on) => ["POST", "v1/sessions/force-close", { session_name: on.session_name }],
        told: (on) => `The session ${on.session_name} has ended.`,
    },
    freeze: {
        title: (on) => (on.prefix ? `Freeze ${on.prefix}` : "Freeze a prefix"),
        text: "Nothing new is granted at and below it. Holders go on, and those who wait keep their places.", verb: "Freeze",
        fields: (on) => [
            ...(on.prefix ? [] : [["prefix", "Prefix", { required: true, maxlength: 512 }]]),
            ["minutes", "For, in minutes (empty: until it is thawed)", { ...SECONDS, min: 1 }],
        ],
        send: (on, typed) => ["PUT", `v1/freezes/${part(on.prefix || typed.prefix)}`, typed.minutes ? { for_ms: 60000 * typed.minutes } : {}],
        told: (on, answer) => `${answer.prefix} is frozen; ${answer.left.holds} holds and ${answer.left.waits} waits are left.`,
    },
    thaw: {
        title: (on) => `Thaw ${on.prefix}`, text: "Waits are served again.", verb: "Thaw",
        send: (on) => ["DELETE", `v1/freezes/${part(on.prefix)}`, {}],
        told: (on) => `${on.prefix} is thawed.`,
    },
};

/** Close what was asked on a page that is left: it would be about something that is not shown any more. */
export function closeForms() {
    for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
}

/** Do what a button says. */
export function act(name, payload, { tell, draw }) {
    if (name === "sort") {
        sortBy(payload.id, payload.column);
        draw();
    } else if (name === "call") {
        payload();
        draw();
    } else {
        openAction(ACTIONS[name], payload, tell);
    }
}

function openAction(action, on, tell) {
    // One id for all tries: a repetition after an unclear end does nothing twice.
    const request_id = crypto.getRandomValues(new Uint32Array(4)).join("-");
    const fields = [...(action.fields?.(on) || []), ["reason", "Reason, for the audit", { required: true, maxlength: 1024 }]];
    openForm({ ...action, title: action.title(on) }, fields, async (typed) => {
        const [method, path, body] = action.send(on, typed);
        const answer = await call(method, path, { body: { ...body, reason: typed.reason, request_id } });
        tell(action.told(on, answer));
    });
}

/** Ask for a token, and learn whose it is. */
export function openToken(learn) {
    const action = {
        title: "Who are you?", verb: "Use it",
        text: "The token stays in the memory of this page. It is gone when you close or reload it.",
    };
    const shape = { type: "password", required: true, autocomplete: "off", spellcheck: "false" };
    openForm(action, [["token", "Token", shape]], (typed) => learn(typed.token.trim()));
}

function openForm({ title, text, verb, isDangerous }, fields, send) {
    const failure = h("p", { class: "failure", role: "alert" });
    const inputs = fields.map(([name, label, shape]) => h("label", {}, label, h("input", { name, type: "text", ...shape })));
    const go = h("button", { type: "submit", class: isDangerous ? "danger" : "primary" }, verb);
    const cancel = h("button", { type: "button" }, "Cancel");
    const form = h("form", { method: "dialog" }, h("h2", { id: "dialog-title" }, title), h("p", {}, text), inputs, failure,
        h("div", { class: "buttons" }, cancel, go));
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    cancel.onclick = () => dialog.close();
    dialog.onclose = () => dialog.remove();
    form.onsubmit = async (event) => {
        event.preventDefault();
        const typed = Object.fromEntries(new FormData(form));
        go.disabled = true;
        try {
            await send(typed);
            dialog.close();
            if (document.activeElement === document.body) document.getElementById("main").focus();
        } catch (error) {
            if (!(error instanceof Problem)) throw error;
            failure.textContent = refusal(error);
        } finally {
            go.disabled = false;
        }
    };
    document.body.append(dialog);
    dialog.showModal();
    dialog.querySelector("input[required]").focus();
}

function refusal(error) {
    if (error.status === 403) return `You may not do that: ${error.message}.`;
    if (error.status === 0 || error.outcome === "unknown") {
        return `It is not known whether that happened: ${error.message}. Try again: it is not done twice.`;
    }
    return `Nothing has changed: ${error.message}.`;
}
