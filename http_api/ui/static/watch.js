// Follows what happens in the cluster (GET /v1/watch) for as long as the page is looked at.
//
// EventSource sends no token, so the stream is read as what it is: blocks of lines with an empty line between.

import { ask } from "./api.js";

const SILENT_MS = 25000; // a node says something every ten seconds
const PAUSES_MS = [1000, 2000, 5000, 10000];

/** Tells `onEvent` of each event, and `onChange` whether the stream is followed now. */
export class Watch {
    constructor(onEvent, onChange) {
        this.onEvent = onEvent;
        this.onChange = onChange;
        this.isFollowing = false;
        this.stopping = null;
    }

    /** Begin, or begin again. */
    start() {
        this.stop();
        const stopping = new AbortController();
        this.stopping = stopping;
        this.#run(stopping.signal);
    }

    /** Begin again if nothing has been heard for too long: the connection may have ended without a word. */
    check() {
        if (this.isFollowing && performance.now() - this.heardAt > SILENT_MS) this.start();
    }

    /** End. */
    stop() {
        this.stopping?.abort();
        this.stopping = null;
        this.#told(false);
    }

    async #run(signal) {
        for (let failures = 0; !signal.aborted; failures++) {
            try {
                const response = await ask("GET", "v1/watch", { signal });
                failures = 0;
                this.heardAt = performance.now();
                this.#told(true);
                await this.#follow(response.body.getReader());
            } catch (error) {
                if (signal.aborted) return;
                if (error.status === 401 || error.status === 403) {
                    this.#told(false); // it may not watch: the page looks by itself
                    return;
                }
            }
            if (signal.aborted) return;
            this.#told(false);
            await new Promise((resolve) => setTimeout(resolve, PAUSES_MS[Math.min(failures, PAUSES_MS.length - 1)]));
        }
    }

    async #follow(reader) {
        const decoder = new TextDecoder();
        let text = "";
        for (;;) {
            const { done, value } = await reader.read();
            if (done) return;
            this.heardAt = performance.now();
            const blocks = (text + decoder.decode(value, { stream: true })).split("\n\n");
            text = blocks.pop();
            for (const block of blocks) {
                const data = block.split("\n").find((line) => line.startsWith("data: "));
                if (data) this.onEvent(JSON.parse(data.slice("data: ".length)));
            }
        }
    }

    #told(isFollowing) {
        if (isFollowing !== this.isFollowing) {
            this.isFollowing = isFollowing;
            this.onChange(isFollowing);
        }
    }
}
